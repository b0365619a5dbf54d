"""Results in a file: `Result.save`, `SweepResult.save`, and `load`, which reads both."""

from dataclasses import replace
from pathlib import Path
from types import NoneType
from typing import Any

from fedlocal.core import AbstractProblem, LocalMethod
from fedlocal.simulation.result import ProblemReference, Result
from fedlocal.simulation.saved.archive import read_archive, write_archive
from fedlocal.simulation.saved.values import ValueReader, ValueWriter
from fedlocal.simulation.sweeps.result import SweepResult
from fedlocal.util import checks
from fedlocal.util.files import AnyPath
from fedlocal.util.hashing import fingerprint
from fedlocal.util.provenance import version

COLUMNS = {"round", "loss", "objective"}  # of every history


def save_result(result: Result | SweepResult, path: AnyPath) -> None:
    """Write a result to a file, in one step; see `Result.save`."""
    writer = ValueWriter()
    content = writer.node("", result)
    write_archive(Path(path), {"fedlocal": version(), "content": content}, writer.arrays)


def load(path: AnyPath, problem: AbstractProblem | None = None) -> Any:
    """Return a `Result` or a `SweepResult` that its `save` wrote, equal to what was saved to the bit.

    The problem is not in the file, only its class and a fingerprint of its data and its loss. A method that cannot be described
    by plain values (a class of your own without `fedlocal.methods.method_spec.register`, an Optax optimiser) comes back as
    None; `provenance["methods not restored"]` has its text. Server states of other libraries come back as plain named tuples.

    Args:
        path: the file.
        problem: the problem of the run, which is checked against the fingerprint; with it `result.certificate()` works.

    Example:
        >>> import tempfile
        >>> import fedlocal as fl
        >>> problem = fl.problems.quadratics(matrices=[[[1.0]], [[3.0]]], optima=[[0.0], [1.0]])
        >>> result = fl.simulate(problem, fl.methods.FedAvg(0.1), rounds=200, local_steps=1)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     result.save(f"{folder}/run.npz")
        ...     again = fl.load(f"{folder}/run.npz", problem=problem)
        >>> bool((again.x == result.x).all()), again.history.equals(result.history)
        (True, True)
    """
    path = Path(path)
    if problem is not None:
        checks.instance("load", "problem", problem, AbstractProblem)
    if path.is_dir():
        raise ValueError(f"load: {path} is not a saved result of fedlocal (it is a folder)")
    try:
        result = _read(path)
    except OSError:
        raise
    except Exception as error:  # foreign bytes fail in many ways inside zipfile, numpy, json and pandas
        said = str(error) or type(error).__name__
        raise ValueError(f"load: {path} is not a saved result of fedlocal ({said})") from None
    if problem is None:
        return result
    reference: Any = result.problem
    if (got := fingerprint(problem.current())) != reference.fingerprint:
        given, wanted = f"a {type(problem).__name__} ({got})", f"a {reference.name} ({reference.fingerprint})"
        advice = "give the problem of the run, with the same data, loss and precision"
        raise ValueError(f"load: {path} is a result on {wanted}, and problem is {given}; {advice}")
    return replace(result, problem=problem)


def _read(path: Path) -> Result | SweepResult:
    header, arrays = read_archive(path)
    if "content" not in header:
        raise ValueError("its header has no content")
    reader = ValueReader(arrays)
    result = reader.value(header["content"])
    if not isinstance(result, (Result, SweepResult)):
        raise ValueError(f"it holds a {type(result).__name__}")
    _check(result)
    lost = {"methods not restored": reader.lost} if reader.lost else {}
    return replace(result, provenance={**result.provenance, **lost})


def _check(result: Result | SweepResult) -> None:
    """Raise a ValueError if parts of a result do not fit each other."""
    methods = result.methods if isinstance(result, SweepResult) else [result.method]
    if not isinstance(result.problem, ProblemReference) or not all(
        isinstance(m, (LocalMethod, NoneType)) for m in methods
    ):
        raise ValueError("its problem or its method is none")
    history = set(result.history.columns)
    if COLUMNS - history or not len(result.history):
        raise ValueError("its history is not that of a run")
    if isinstance(result, SweepResult):
        lengths = {len(part) for part in (result.cells, result.methods, result.points, result.servers)}
        if len(lengths) > 1 or "diverged" not in result.cells or "cell" not in history:
            raise ValueError("its cells do not fit each other")
