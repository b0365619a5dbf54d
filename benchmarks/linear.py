"""The fused kernels for linear models: gradients per second beside vectorised NumPy, and what a step costs on wide sparse data.

    python benchmarks/linear.py
    python benchmarks/linear.py --folder PATH    where news20.bz2 is, for its lines

The first table is a9a with 8192 clients and 64 local steps on one example each: 13 step sizes side by side, and one alone,
against NumPy simulators that run one step size after the other. Repeats are interleaved and medians taken; compile time is apart.
The second is FedDualAvg with l1 on made-up sparse data: more features at the same number of non-zeros, and the other way round.
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
    """Gradients per second of all step sizes together; what a call costs apart from its rounds is measured by a short one."""

    def call(rounds: int) -> float:
        began = time.perf_counter()
        options: dict[str, Any] = {"local_steps": STEPS, "batch_size": 1, "progress": False, "eval_every": rounds}
        fl.sweep(problem, lambda eta: make(eta), {"eta": step_sizes}, rounds=rounds, engine="linear", **options)
        return time.perf_counter() - began

    return lambda: 8 * CLIENTS * STEPS * len(step_sizes) / (call(9) - call(1))


def numpy_rate(run: Callable[[int], object]) -> Rate:
    def measure() -> float:
        began = time.perf_counter()
        run(1)
        return CLIENTS * STEPS / (time.perf_counter() - began)

    return measure


def medians(contestants: dict[str, Rate], repeats: int) -> dict[str, float]:
    """Median rate of each, over interleaved repeats after one that warms up."""
    rates: dict[str, list[float]] = {name: [] for name in contestants}
    for repeat in range(repeats + 1):
        for name, measure in contestants.items():
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
        contestants = {
            "fedlocal, 13 step sizes": sweep(problem, make, STEP_SIZES),
            "fedlocal, one": sweep(problem, make, [0.1]),
        } | {reference: numpy_rate(run) for reference, run in references.items()}
        found = medians(contestants, repeats)
        best = found["fedlocal, 13 step sizes"]
        for contestant, rate in found.items():
            ratio = "" if rate == best else f"{best / rate:.1f} times as fast"
            table.add_row(name, contestant, f"{rate / 1e6:,.2f}", ratio)
        table.add_section()
    return table


def step_cost(features: Any, labels: np.ndarray, repeats: int) -> tuple[float, float]:
    """What FedDualAvg with l1 takes on 20 sites, over all cores: nanoseconds for one more local step on one example, and
    milliseconds of a round apart from its steps. Both from rounds of 1000 and of 3000 steps."""
    sites = np.random.default_rng(0).integers(20, size=len(labels))
    problem = fl.problems.Logistic(fl.FederatedData.from_groups((features, labels), sites))
    method = fl.methods.FedDualAvg(0.5, 1.0, fl.regularizers.L1(1e-4))

    def call(rounds: int, steps: int) -> float:
        began = time.perf_counter()
        options: dict[str, Any] = {"batch_size": 1, "eval_every": rounds, "progress": False}
        fl.simulate(problem, method, rounds=rounds, local_steps=steps, **options)
        return time.perf_counter() - began

    def seconds_of_a_round(steps: int) -> float:
        return float(np.median([(call(11, steps) - call(1, steps)) / 10 for _ in range(repeats)]))

    call(1, 1000)
    few, many = seconds_of_a_round(1000), seconds_of_a_round(3000)
    step = (many - few) / 2000 / 20
    return step * 1e9, (few - 20 * 1000 * step) * 1e3


def wide(repeats: int, folder: str | None) -> Table:
    table = Table("data", "features", "non-zeros of a row", "a step (ns)", "a round beside (ms)", title_justify="left")
    table.title = "FedDualAvg with l1: what a local step costs"
    rng = np.random.default_rng(0)
    rows = 20_000
    labels = np.where(rng.random(rows) < 0.5, 1.0, -1.0)
    for width, filled in ((1_000, 80), (10_000, 80), (100_000, 80), (1_000_000, 80), (100_000, 20), (100_000, 320)):
        columns = rng.integers(width, size=(rows, filled))
        values = rng.standard_normal((rows, filled))
        places = (np.repeat(np.arange(rows), filled), columns.ravel())
        features = scipy.sparse.csr_array((values.ravel(), places), shape=(rows, width))
        step, beside = step_cost(features, labels, repeats)
        table.add_row("made up", f"{width:,}", f"{features.nnz / rows:.0f}", f"{step:,.0f}", f"{beside:.1f}")
    if folder is not None:
        news: Any
        news, topics = fl.data.load("news20", folder)
        step, beside = step_cost(news, np.where(topics <= 10, 1.0, -1.0), repeats)
        filled = f"{news.nnz / news.shape[0]:.0f}"
        table.add_row("news20", f"{news.shape[1]:,}", filled, f"{step:,.0f}", f"{beside:.1f}")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--folder", help="where news20.bz2 is")
    arguments = parser.parse_args()
    console = Console(width=110)
    with console.status("measuring"):
        tables = [beside_numpy(arguments.repeats), wide(arguments.repeats, arguments.folder)]
    for table in tables:
        console.print(table)


if __name__ == "__main__":
    main()
