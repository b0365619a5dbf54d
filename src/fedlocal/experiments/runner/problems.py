"""Problem, regulariser and starting point of an experiment, for programs that run it in another way, such as deployed apps."""

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

from fedlocal.core import AbstractProblem, Params, Regularizer
from fedlocal.experiments.runner.configuration import load, names
from fedlocal.experiments.runner.settings import StudySettings
from fedlocal.experiments.studies import KINDS
from fedlocal.regularizers import Zero


def problem_of(name: str, *, seed: int = 0, clients: int | None = None) -> AbstractProblem:
    """Return the problem of an experiment at the text's size.

    Args:
        name: one of `experiments.names()`, of a study whose runs share one problem.
        seed: seed of the data, where they are drawn.
        clients: number of clients, where the experiment varies it; None where its data fix it.

    Example:
        >>> from fedlocal import experiments
        >>> experiments.problem_of("lasso-1").num_clients
        64
    """
    settings = load(name, "paper")
    problem = _module(settings).make_problem(settings, seed=seed, clients=clients)
    if clients not in (None, problem.num_clients):
        raise ValueError(f"problem_of: {name} has {problem.num_clients} clients, got {clients}")
    return problem


def regularizer_of(name: str, *, seed: int = 0) -> Regularizer:
    """Return the regulariser psi of an experiment at the text's size; a strength that depends on the data is computed.

    Args:
        name: one of `experiments.names()`, of a study whose runs share one problem.
        seed: seed of the data, where they are drawn.
    """
    settings = load(name, "paper")
    make = getattr(_module(settings), "make_regularizer", None)
    return Zero() if make is None else make(settings, seed=seed)


def start_of(name: str) -> Params | None:
    """Return the point from which the runs of an experiment start at the text's size; None: from the problem's own start."""
    settings = load(name, "paper")
    start = getattr(_module(settings), "make_start", None)
    return None if start is None else start(settings)


def _module(settings: StudySettings) -> ModuleType:
    paths = {kind: f"fedlocal.experiments.studies.{kind}.problem" for kind in KINDS}
    having = [kind for kind, path in paths.items() if find_spec(path)]
    if settings.kind not in having:
        known = ", ".join(name for name in names() if load(name).kind in having)
        raise ValueError(f"problem_of: {settings.name} has no single problem; these experiments have one: {known}")
    return import_module(paths[settings.kind])
