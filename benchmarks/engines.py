"""fedlocal beside other simulators: one table, each line a ratio measured in this run.

    python benchmarks/engines.py --fedjax /path/to/python --fedjax /path/to/another/python

Repeats are interleaved and medians taken, so that whatever else the machine does falls on all alike; compile time is apart.
`--fedjax` names the interpreter of an environment with FedJAX (see reference_fedjax.py); of several, the fastest counts.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # NumPy's BLAS threads would spin into the next measurement

import numpy as np
from rich.console import Console
from rich.table import Table

import fedlocal as fl
import reference_jax
import reference_numpy
import workloads
from fedlocal.core import AbstractProblem

Seconds = Callable[[], float]  # one measurement: seconds per round


def ours(problem: AbstractProblem, method: fl.LocalMethod, rounds: int, **sampling: Any) -> Seconds:
    """Seconds per round of `simulate`; what a call costs apart from its rounds is measured by a call with one round."""

    def call(rounds: int) -> float:
        began = time.perf_counter()
        fl.simulate(problem, method, rounds=rounds, eval_every=rounds, progress=False, **sampling)
        return time.perf_counter() - began

    return lambda: (call(rounds) - call(1)) / (rounds - 1)


def timed(run: Callable[[int], object], rounds: int) -> Seconds:
    """Seconds per round of a reference."""

    def measure() -> float:
        began = time.perf_counter()
        run(rounds)
        return (time.perf_counter() - began) / rounds

    return measure


class FedJax:
    """FedJAX in another interpreter, asked over a pipe."""

    def __init__(self, python: str):
        script = str(Path(__file__).with_name("reference_fedjax.py"))
        self.process = subprocess.Popen([python, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, workload: str, rounds: int) -> Seconds:
        def measure() -> float:
            assert self.process.stdin is not None
            assert self.process.stdout is not None
            print(json.dumps({"workload": workload, "rounds": rounds}), file=self.process.stdin, flush=True)
            return json.loads(self.process.stdout.readline())["seconds"] / rounds

        return measure


def medians(contestants: dict[str, Seconds], repeats: int) -> dict[str, float]:
    """Median seconds per round of each, over interleaved repeats after one that warms up."""
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for repeat in range(repeats + 1):
        for name, measure in contestants.items():
            seconds = measure()
            if repeat:
                times[name].append(seconds)
    return {name: float(np.median(values)) for name, values in times.items()}


def logistic(clients: int, rounds: int, fedjax: list[FedJax]) -> dict[str, Seconds]:
    """W1: fedlocal with the fused kernels, which long runs have by themselves."""
    w = workloads.w1()
    data = fl.FederatedData.shared(w.features, w.labels, num_clients=clients)
    problem, method = fl.problems.Logistic(data, l2=w.l2), fl.methods.FedAvg(w.client_step_size)
    sampling = {"local_steps": w.local_steps, "batch_size": w.batch_size}
    contestants = {
        "fedlocal": ours(problem, method, rounds, **sampling, engine="linear"),
        "fedlocal, engine='jax'": ours(problem, method, rounds, **sampling, engine="jax"),
        "JAX by hand": timed(reference_jax.make_w1(w, clients, block=clients), rounds // 4),
        "NumPy": timed(reference_numpy.make_plain(w, clients), max(3, rounds // 10)),
        "NumPy, tuned": timed(reference_numpy.make(w, clients), max(3, rounds // 10)),
    }
    if clients >= 2048:
        contestants["JAX by hand, tuned"] = timed(reference_jax.make_w1(w, clients), rounds // 4)
    else:
        contestants |= {f"FedJAX {i}": f.ask("w1", 3) for i, f in enumerate(fedjax)}
    return contestants


def network(rounds: int, fedjax: list[FedJax]) -> dict[str, Seconds]:
    """W2: fedlocal with the fused kernels, which long runs have by themselves."""
    w = workloads.w2()
    clients, examples, width = w.features.shape
    arrays = [w.features.reshape(-1, width), w.labels.reshape(-1)]
    data = fl.FederatedData(arrays, np.arange(clients) * examples, np.full(clients, examples))
    problem, method = fl.problems.MLP(data, hidden=(200, 200), num_classes=10), fl.methods.FedAvg(w.client_step_size)
    x0 = [{"weights": a, "bias": b} for a, b in zip(w.weights, w.biases, strict=True)]
    sampling = {"local_epochs": 1, "batch_size": w.batch_size, "clients_per_round": w.clients_per_round, "x0": x0}
    return {
        "fedlocal": ours(problem, method, rounds, **sampling, engine="network"),
        "fedlocal, engine='jax'": ours(problem, method, rounds, **sampling, engine="jax"),
        "JAX by hand": timed(reference_jax.make_w2(w, vmap=True), rounds),
        "JAX by hand, tuned": timed(reference_jax.make_w2(w), rounds),
    } | {f"FedJAX {i}": f.ask("w2", 10) for i, f in enumerate(fedjax)}


def lasso(rounds: int, fedjax: list[FedJax]) -> dict[str, Seconds]:
    w = workloads.w3()
    clients, examples, width = w.features.shape
    arrays = [w.features.reshape(-1, width), w.targets.reshape(-1)]
    data = fl.FederatedData(arrays, np.arange(clients) * examples, np.full(clients, examples))
    method = fl.methods.FedDualAvg(w.client_step_size, w.server_step_size, fl.regularizers.L1(w.l1))
    sampling = {"local_epochs": 1, "batch_size": w.batch_size, "clients_per_round": w.clients_per_round}
    return {
        "fedlocal": ours(fl.problems.LeastSquares(data), method, rounds, **sampling),
        "JAX by hand": timed(reference_jax.make_w3(w), rounds),
    } | {f"FedJAX {i}": f.ask("w3", 40) for i, f in enumerate(fedjax)}


def population(clients: int, rounds: int, own_rows: bool = True) -> Seconds:
    """Ten of many clients with 8 examples each train a small network for five epochs.

    own_rows=False lets all clients share the rows of a thousand: then only the number of clients differs, not the amount of data,
    which beyond the processor's cache takes longer to read whatever the simulator.
    """
    rng = np.random.default_rng(0)
    holders = clients if own_rows else 1000
    arrays = [rng.standard_normal((8 * holders, 64), np.float32), rng.integers(10, size=8 * holders)]
    data = fl.FederatedData(arrays, np.arange(clients) % holders * 8, np.full(clients, 8))
    problem, method = fl.problems.MLP(data, hidden=(32,), num_classes=10), fl.methods.FedAvg(0.01)
    return ours(problem, method, rounds, local_epochs=5, batch_size=4, clients_per_round=10)


def memory(clients: int) -> float:
    """MiB by which a run raises the process's memory at most, after a first run has compiled; in a process of its own."""
    code = (
        "import pathlib, sys; sys.path.insert(0, sys.argv[1]); import engines\n"
        "run = engines.population(int(sys.argv[2]), 400); run()\n"
        "pathlib.Path('/proc/self/clear_refs').write_text('5')  # the peak starts anew\n"
        "status = lambda: dict(line.split(':') for line in open('/proc/self/status'))\n"
        "before = int(status()['VmRSS'].split()[0]); run()\n"
        "print((int(status()['VmHWM'].split()[0]) - before) / 1024)"
    )
    command = [sys.executable, "-c", code, str(Path(__file__).parent), str(clients)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fedjax", action="append", default=[], help="Python of an environment with FedJAX")
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()
    fedjax = [FedJax(python) for python in arguments.fedjax]
    console = Console(width=110)
    out = Table("workload", "simulator", "rounds/s", "fedlocal is", title="Engines", title_justify="left", expand=False)
    out.columns[0].no_wrap = out.columns[1].no_wrap = out.columns[3].no_wrap = True
    plans = {
        "W1 logistic, 256 clients": lambda: logistic(256, 1000, fedjax),
        "W1 logistic, 8192 clients": lambda: logistic(8192, 40, fedjax),
        "W2 MLP, 10 of 1000 clients": lambda: network(40, fedjax),
        "W3 LASSO, 10 of 64 clients": lambda: lasso(300, fedjax),
    }
    with console.status("measuring") as status:
        for label, make in plans.items():
            status.update(f"measuring {label}")
            found = medians(make(), arguments.repeats)
            others = {n: s for n, s in found.items() if not n.startswith("FedJAX")}
            if fedjax:
                others["FedJAX"] = min((s for n, s in found.items() if n.startswith("FedJAX")), default=np.nan)
            for name, seconds in others.items():
                if np.isfinite(seconds):
                    ratio = "" if name == "fedlocal" else f"{seconds / found['fedlocal']:.2f} times as fast"
                    out.add_row(label, name, f"{1 / seconds:,.1f}", ratio)
            out.add_section()
        status.update("measuring many clients")
        crowds = {
            "10 of 1,000 clients": (1_000, True),
            "10 of 100,000, the same rows": (100_000, False),
            "10 of 100,000, own rows": (100_000, True),
        }
        found = medians({label: population(m, 300, own) for label, (m, own) in crowds.items()}, arguments.repeats)
        for label, (clients, own) in crowds.items():
            ratio = found["10 of 1,000 clients"] / found[label]
            adds = f"fedlocal, a run adds {memory(clients):.0f} MiB" if own else "fedlocal"
            out.add_row(label, adds, f"{1 / found[label]:,.1f}", f"{ratio:.2f} times as fast")
    console.print(out)
    if not fedjax:
        console.print("FedJAX was not measured: give --fedjax")


if __name__ == "__main__":
    main()
