"""Speed of the compiled loops for linear models: gradients per second beside vectorised NumPy, and the cost of a step.

    python benchmarks/linear.py
    python benchmarks/linear.py --folder PATH    the folder of news20.bz2, which adds a line for it

The first table is a9a with 8192 clients and 64 local steps on one example each: 13 step sizes together, and one alone, against
NumPy simulators that run one step size after the other. Repeats are interleaved, and medians reported; compile time is excluded.
The second is FedDualAvg with l1 on synthetic sparse data: more features with the same number of non-zeros per row, then more
non-zeros with the same number of features.
"""

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # NumPy's BLAS threads would spin into the next measurement

import numpy as np
import scipy.sparse
from rich.console import Console
from rich.table import Table

import fedlocal as fl
import reference_numpy
from workloads import Logistic

STEP_SIZES = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0]
CLIENTS, STEPS, L2 = 8192, 64, 1e-3
METHODS: dict[str, Callable[[float], fl.LocalMethod]] = {
    "FedAvg": lambda eta: fl.methods.FedAvg(eta),
    "FedAc": lambda eta: fl.methods.FedAc.one(step_size=eta, strong_convexity=L2, local_steps=STEPS),
}
Rate = Callable[[], float]  # one measurement: gradients per second


def sweep(problem: Any, make: Callable[[float], fl.LocalMethod], step_sizes: list[float]) -> Rate:
    """Measure gradients per second of all step sizes together, without those of the first nine rounds, which are slower."""

    def call(rounds: int) -> float:
        began = time.perf_counter()
        options: dict[str, Any] = {"local_steps": STEPS, "batch_size": 1, "progress": False, "eval_every": rounds}
        fl.sweep(problem, lambda eta: make(eta), {"eta": step_sizes}, rounds=rounds, engine="linear", **options)
        return time.perf_counter() - began

    return lambda: 64 * CLIENTS * STEPS * len(step_sizes) / (call(73) - call(9))


def numpy_rate(run: Callable[[int], object]) -> Rate:
    def measure() -> float:
        began = time.perf_counter()
        run(1)
        return CLIENTS * STEPS / (time.perf_counter() - began)

    return measure


def medians(simulators: dict[str, Rate], repeats: int) -> dict[str, float]:
    """Return the median rate of each over interleaved repeats, after one that warms up."""
    rates: dict[str, list[float]] = {name: [] for name in simulators}
    for repeat in range(repeats + 1):
        for name, measure in simulators.items():
            rate = measure()
            if repeat:
                rates[name].append(rate)
    return {name: float(np.median(values)) for name, values in rates.items()}


def beside_numpy(repeats: int) -> Table:
    X, y = fl.data.a9a()
    dense = np.asarray(X.todense(), np.float32)
    problem = fl.problems.Logistic(fl.FederatedData.shared(X, y, num_clients=CLIENTS), l2=L2)
    table = Table("method", "simulator", "million gradients/s", "13 step sizes are", title_justify="left")
    table.title = f"a9a, {CLIENTS} clients, {STEPS} local steps, one example each"
    for name, make in METHODS.items():
        workload = Logistic(dense, np.asarray(y, np.float32), l2=L2, local_steps=STEPS)
        references = {"NumPy, vectorised": reference_numpy.make_plain(workload, CLIENTS)}
        references["NumPy, tuned"] = reference_numpy.make(workload, CLIENTS)
        if name == "FedAc":
            references = {"NumPy, vectorised": reference_numpy.make_fed_ac(workload, CLIENTS)}
        simulators = {
            "fedlocal, 13 step sizes": sweep(problem, make, STEP_SIZES),
            "fedlocal, one": sweep(problem, make, [0.1]),
        } | {reference: numpy_rate(run) for reference, run in references.items()}
        found = medians(simulators, repeats)
        best = found["fedlocal, 13 step sizes"]
        for simulator, rate in found.items():
            ratio = "" if rate == best else f"{best / rate:.1f} times as fast"
            table.add_row(name, simulator, f"{rate / 1e6:,.2f}", ratio)
        table.add_section()
    return table


def step_cost(features: Any, labels: np.ndarray, repeats: int) -> tuple[float, float]:
    """Return what FedDualAvg with l1 takes on 20 sites with all cores: nanoseconds for one more local step on one example, and
    milliseconds of a round without its steps. Both come from rounds of 1000 and of 3000 steps."""
    sites = np.random.default_rng(0).integers(20, size=len(labels))
    problem = fl.problems.Logistic(fl.FederatedData.from_groups((features, labels), sites))
    method = fl.methods.FedDualAvg(0.5, 1.0, fl.regularizers.L1(1e-4))

    def call(rounds: int, steps: int) -> float:
        began = time.perf_counter()
        options: dict[str, Any] = {"batch_size": 1, "eval_every": rounds, "progress": False, "engine": "linear"}
        fl.simulate(problem, method, rounds=rounds, local_steps=steps, **options)
        return time.perf_counter() - began

    def seconds_of_a_round(steps: int) -> float:
        return float(np.median([(call(11, steps) - call(1, steps)) / 10 for _ in range(repeats)]))

    call(1, 1000)
    few, many = seconds_of_a_round(1000), seconds_of_a_round(3000)
    step = (many - few) / 2000 / 20
    return step * 1e9, (few - 20 * 1000 * step) * 1e3


def wide(repeats: int, folder: str | None) -> Table:
    table = Table("data", "features", "non-zeros of a row", "a step (ns)", "rest of a round (ms)", title_justify="left")
    table.title = "FedDualAvg with l1: cost of a local step"
    rng = np.random.default_rng(0)
    rows = 20_000
    labels = np.where(rng.random(rows) < 0.5, 1.0, -1.0)
    for width, filled in ((1_000, 80), (10_000, 80), (100_000, 80), (1_000_000, 80), (100_000, 20), (100_000, 320)):
        columns = rng.integers(width, size=(rows, filled))
        values = rng.standard_normal((rows, filled))
        places = (np.repeat(np.arange(rows), filled), columns.ravel())
        features = scipy.sparse.csr_array((values.ravel(), places), shape=(rows, width))
        step, rest = step_cost(features, labels, repeats)
        table.add_row("synthetic", f"{width:,}", f"{features.nnz / rows:.0f}", f"{step:,.0f}", f"{rest:.1f}")
    if folder is not None:
        news: Any
        news, topics = fl.data.load("news20", folder)
        step, rest = step_cost(news, np.where(topics <= 10, 1.0, -1.0), repeats)
        filled = f"{news.nnz / news.shape[0]:.0f}"
        table.add_row("news20", f"{news.shape[1]:,}", filled, f"{step:,.0f}", f"{rest:.1f}")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--folder", help="folder of news20.bz2")
    arguments = parser.parse_args()
    console = Console(width=110)
    with console.status("measuring"):
        tables = [beside_numpy(arguments.repeats), wide(arguments.repeats, arguments.folder)]
    for table in tables:
        console.print(table)


if __name__ == "__main__":
    main()
