"""compare: several methods with several seeds, on the same clients and minibatches."""

import os
from collections.abc import Iterable, Mapping, Sequence

from fedlocal.core import AbstractProblem, LocalMethod, Params
from fedlocal.core.types import Weights
from fedlocal.samplers import AnySampler
from fedlocal.simulation.averages import Average, AverageName
from fedlocal.simulation.engines import EngineName
from fedlocal.simulation.recorder import MetricLike
from fedlocal.simulation.sweeps.grid import Make
from fedlocal.simulation.sweeps.grid_run import sweep
from fedlocal.simulation.sweeps.result import SweepResult
from fedlocal.util import checks


def compare(
    problem: AbstractProblem,
    methods: Mapping[str, Make] | Sequence[LocalMethod],
    *,
    rounds: int,
    seeds: Iterable[int] = range(5),
    local_steps: int | Sequence[int] | None = None,
    local_epochs: int | None = None,
    batch_size: int | None = None,
    clients_per_round: int | None = None,
    weights: Weights = "uniform",
    sampler: AnySampler = "uniform",
    x0: Params | None = None,
    eval_every: int = 1,
    metrics: Sequence[MetricLike] = (),
    progress: bool = True,
    checkpoint: str | os.PathLike[str] | None = None,
    average: AverageName | Average | None = None,
    engine: EngineName = "auto",
) -> SweepResult:
    r"""Run several methods with several seeds: `.history` is one tidy table, `.plot()` a figure with a band over the seeds.

    It is a sweep over "method" and "seed". All methods see the same clients and the same minibatches for a seed, and the seeds of
    a method share a compiled program. `.summary(metric)` has the mean and the spread of each method. The column "objective" is
    F + psi with the psi of each method; "loss" is F alone.

    Args:
        problem: the losses of the clients.
        methods: {name: method}, or a list of methods, which are named by their classes.
        rounds: communication rounds.
        seeds: whole numbers, one run of every method for each.
        local_steps, local_epochs, batch_size, clients_per_round, weights, sampler, x0: as in `simulate`.
        eval_every, metrics, progress, average, engine: as in `simulate`.
        checkpoint: a file to save the state to, atomically; a comparison that finds it continues from it, to the same bits.

    Example:
        >>> import fedlocal as fl
        >>> problem = fl.problems.quadratics(matrices=[[[1.0]], [[3.0]]], optima=[[0.0], [1.0]], noise_std=0.1)
        >>> methods = [fl.methods.FedAvg(0.1), fl.methods.Scaffold(0.1)]
        >>> compared = fl.compare(problem, methods, seeds=range(3), rounds=20, local_steps=4, batch_size=1)
        >>> compared.summary("loss")[["method", "runs"]].to_numpy().tolist()
        [['FedAvg', 3], ['Scaffold', 3]]
    """
    if isinstance(seeds, str) or not isinstance(seeds, Iterable):
        raise TypeError(f"compare: seeds must be whole numbers, as range(5) or [0, 1, 2], got {seeds!r}")
    chosen = [checks.whole("compare", "seeds", seed, at_least=0) for seed in seeds]
    if not chosen or len(set(chosen)) < len(chosen):
        raise ValueError(f"compare: seeds must be different whole numbers, at least one, got {chosen}")
    return sweep(
        problem,
        _by_name(methods),
        {"seed": chosen},
        rounds=rounds,
        local_steps=local_steps,
        local_epochs=local_epochs,
        batch_size=batch_size,
        clients_per_round=clients_per_round,
        weights=weights,
        sampler=sampler,
        x0=x0,
        eval_every=eval_every,
        metrics=metrics,
        progress=progress,
        checkpoint=checkpoint,
        average=average,
        engine=engine,
    )


def _by_name(methods: Mapping[str, Make] | Sequence[LocalMethod]) -> Mapping[str, Make]:
    """Name the methods of a list by their classes, or by all that they hold if two are of one class."""
    if isinstance(methods, Mapping):
        return methods
    if not isinstance(methods, Sequence) or not all(isinstance(method, LocalMethod) for method in methods):
        raise TypeError(f"compare: methods must be a dict {{name: method}} or a list of methods, got {methods!r}")
    names = [type(method).__name__ for method in methods]
    if len(set(names)) < len(names):
        names = [str(method) for method in methods]
    if len(set(names)) < len(names):
        raise ValueError("compare: methods has the same method twice; give a dict {name: method}")
    return dict(zip(names, methods, strict=True))
