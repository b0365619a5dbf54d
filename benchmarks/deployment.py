"""What a round costs between processes: three tiny sites, medians of milliseconds per round.

    python benchmarks/deployment.py

(a) sites in this process, all messages through bytes; (b) Flower's SuperLink and SuperNodes, each site with a process of its own;
(c) the same with Flower's default, a new process per message. Flower's SuperNode looks for messages every three seconds, so
(b) cannot be faster than that.
"""

import argparse
import logging
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import fedlocal as fl
from deployment.deployed.methods import METHODS
from deployment.stage import STEPS, Stage, federation, stage
from fedlocal.flower import InProcess, Policy, Strategy, client_app
from flower_processes import poll


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="of (b) and (c); (a) runs a hundred times as many")
    arguments = parser.parse_args()
    logging.getLogger("flwr").setLevel(logging.WARNING)
    table = Table(
        title=f"FedDualAvg, 3 sites, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}", title_justify="left"
    )
    for column in ("deployment", "rounds", "median [ms]", "fastest [ms]", "slowest [ms]"):
        table.add_column(column)
    measured = {
        "in this process": in_process(100 * arguments.rounds),
        "sites with processes of their own": deployed(arguments.rounds, own_process=True),
        "a process per message": deployed(arguments.rounds, own_process=False),
    }
    for name, seconds in measured.items():
        numbers = [1000 * f(seconds) for f in (np.median, np.min, np.max)]
        table.add_row(
            name, str(len(seconds)), *(f"{number:.3g}" if number < 100 else f"{number:.0f}" for number in numbers)
        )
    Console().print(table)


def in_process(rounds: int) -> list[float]:
    """Seconds of each round but the first, which compiles."""
    problem, ends = federation(), []

    class Timed(InProcess):
        def push_messages(self, messages):
            ends.append(time.perf_counter())
            return super().push_messages(messages)

    app = client_app(
        lambda context: fl.problems.only(problem, int(str(context.node_config["m"]))), policy=Policy.open()
    )
    steps = [STEPS[site] for site in "abc"]
    sampling = {"local_steps": steps, "batch_size": 2, "weights": "examples", "eval_every": rounds + 1}
    strategy = Strategy(METHODS["fed_dual_avg"], rounds=rounds + 1, sites=["a", "b", "c"], **sampling)
    strategy.start(Timed(app, {site: {"m": m} for m, site in enumerate("abc")}))
    return np.diff(ends[1:]).tolist()[1:]  # without the sites' introduction; ends with the question for the loss


def deployed(rounds: int, own_process: bool) -> list[float]:
    """Seconds of each round but the first, by when the checkpoints were written."""
    with tempfile.TemporaryDirectory() as folder, stage(Path(folder)) as s:
        start = s.site if own_process else s.stock_site
        for node in [start(name) for name in "abc"]:
            node.node_id()
        run = s.run("timed", rounds=rounds + 1)
        ends = [poll(lambda r=r: _when(s, r), f"round {r}", 600) for r in range(1, rounds + 2)]
        run.wait()
    return np.diff(ends).tolist()


def _when(s: Stage, rounds: int) -> float | None:
    """When so many rounds were done, once they are."""
    return time.perf_counter() if s.progress("timed")[0] >= rounds else None


if __name__ == "__main__":
    main()
