"""What a sweep costs beside one of its cells, on lasso-1: a table of ratios measured in this run.

    python benchmarks/sweeps.py

Repeats are interleaved and medians taken; compile time is apart. Two grids of 49 cells: the text's, of which most cells diverge
and leave early, and one of the same size in which all stay finite to the end.
"""

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import fedlocal as fl
from fedlocal.experiments.runner.configuration import load

SAMPLING: dict[str, Any] = {"clients_per_round": 10, "local_epochs": 1, "batch_size": 10, "progress": False}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", fl.DivergenceWarning)

    data = fl.data.synthetic_lasso("I", seed=0)
    problem, psi = fl.problems.LeastSquares(data), fl.regularizers.L1(0.2)
    text: Any = load("lasso-1", "paper")
    grids = {
        "the text's grid": text.grid.pairs(),
        "all finite": {
            "client_step_size": np.geomspace(1e-4, 5e-4, 7).tolist(),
            "server_step_size": np.geomspace(0.03, 1, 7).tolist(),
        },
    }
    table = Table(title=f"49 cells of lasso-1, {arguments.rounds} rounds", title_justify="left")
    for column in ("method", "evaluated every", "one cell [s]", "grid", "49 cells [s]", "times one cell", "diverged"):
        table.add_column(column)
    for kind in (fl.methods.FedDualAvg, fl.methods.FedMiD):
        method = kind(0.0003, 1.0, psi)
        for every in (arguments.rounds, 10):
            common = {**SAMPLING, "rounds": arguments.rounds, "eval_every": every}
            common["metrics"] = [fl.metrics.SparseRecovery(data.truth)]
            contestants: dict[str, Callable[[], Any]] = {"one": lambda m=method, c=common: fl.simulate(problem, m, **c)}
            for name, grid in grids.items():
                contestants[name] = lambda m=method, g=grid, c=common: fl.sweep(problem, m, g, **c)
            results = {name: run() for name, run in contestants.items()}  # compiles
            seconds: dict[str, list[float]] = {name: [] for name in contestants}
            for _ in range(arguments.repeats):
                for name, run in contestants.items():
                    seconds[name].append(_seconds(run))
            one = float(np.median(seconds["one"]))
            for name in grids:
                many, lost = float(np.median(seconds[name])), int(results[name].cells["diverged"].notna().sum())
                table.add_row(
                    kind.__name__, str(every), f"{one:.2f}", name, f"{many:.2f}", f"{many / one:.1f}", f"{lost} of 49"
                )
    Console().print(table)


def _seconds(run: Callable[[], Any]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
