"""A sweep of 25 cells of femnist-2nn beside one large matrix product: GFLOPS measured in one run.

    python benchmarks/networks.py --folder PATH

PATH holds mnist_by_writer.npz. Repeats are interleaved and medians taken, and compile time is apart. The operations of a local
step are those of its dense products: 2 B n m for each of scores, gradient and, but for the first layer, derivatives by the
inputs. B counts the examples that there are: of the minibatches of ten almost half have one to three. Pixels that are zero in all
examples of a minibatch, which fedlocal leaves out, count as others.
"""

import argparse
import os
import time
import warnings
from collections.abc import Callable
from itertools import pairwise
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", str(os.cpu_count()))

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

import fedlocal as fl
from fedlocal.experiments.runner.configuration import load
from fedlocal.experiments.runner.methods import composite_method
from fedlocal.experiments.studies.femnist.problem import HandwritingTask
from fedlocal.simulation.plan import Plan, Sampling

SIDE = 4096  # of the large matrices


def operations(problem: Any, sampling: dict[str, Any], rounds: range) -> float:
    """Floating-point operations of one cell in these rounds, in minibatches as they are, short ones included."""
    plan, sizes = Plan.make(problem, Sampling(**sampling)), problem.sizes()
    widths = [int(np.prod(problem.data.arrays[0].shape[1:])), *problem.hidden, problem.num_classes]
    products = [n * m for n, m in pairwise(widths)]
    examples = sum(int(sizes[plan.cohort(r)].sum()) * sampling["local_epochs"] for r in rounds)
    return 2.0 * examples * (3 * sum(products) - products[0])


def square_product(multiply: Callable[[Any, Any], Any], a: Any) -> Callable[[], float]:
    """GFLOPS of one large product in float32."""

    def measure() -> float:
        began = time.perf_counter()
        multiply(a, a)
        return 2 * SIDE**3 / (time.perf_counter() - began) / 1e9

    return measure


def swept(problem: Any, method: Any, grid: Any, work: tuple[int, Any], **sampling: Any) -> Callable[[], float]:
    """GFLOPS of the rounds of a sweep; what a call costs apart from them is measured by a call with one round."""
    rounds, engine = work
    needed = 25 * operations(problem, sampling, range(1, rounds))

    def call(rounds: int) -> float:
        began = time.perf_counter()
        fl.sweep(problem, method, grid, rounds=rounds, eval_every=rounds, engine=engine, progress=False, **sampling)
        return time.perf_counter() - began

    return lambda: needed / (call(rounds) - call(1)) / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", required=True, help="folder of mnist_by_writer.npz")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--jax", action="store_true", help="measure engine='jax', too")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", fl.DivergenceWarning)

    settings: Any = load("femnist-2nn", "paper").model_copy(update={"folder": arguments.folder})
    task, grid = HandwritingTask(settings, 0), settings.grid.pairs()
    names = ("clients_per_round", "batch_size", "local_epochs", "weights")
    sampling = {name: getattr(settings, name) for name in names}
    a = np.random.default_rng(0).standard_normal((SIDE, SIDE), np.float32)
    multiply = jax.jit(lambda a, b: a @ b)
    contestants = {
        "sgemm of NumPy": square_product(np.matmul, a),
        "sgemm of XLA": square_product(lambda a, b: multiply(a, b).block_until_ready(), jax.numpy.asarray(a)),
    }
    for name in ("FedDualAvg", "FedMiD"):
        for engine in ("network", "jax") if arguments.jax else ("network",):
            method = composite_method(name, task.constraint)
            work = (arguments.rounds, engine)
            contestants[f"{name}, {engine}"] = swept(task.problem, method, grid, work, **sampling)
    found: dict[str, list[float]] = {name: [] for name in contestants}
    for repeat in range(arguments.repeats + 1):
        for name, measure in contestants.items():
            value = measure()
            if repeat:  # the first one compiles
                found[name].append(value)
    table = Table(
        "what", "GFLOPS", "of NumPy's sgemm", "of XLA's sgemm", title="25 cells of femnist-2nn", title_justify="left"
    )
    medians = {name: float(np.median(values)) for name, values in found.items()}
    for name, value in medians.items():
        parts = [f"{value / medians[f'sgemm of {library}']:.0%}" for library in ("NumPy", "XLA")]
        table.add_row(name, f"{value:.0f}", *parts)
    Console().print(table)


if __name__ == "__main__":
    main()
