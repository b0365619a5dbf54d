"""A sparse text classifier over twenty sites: which of 62,061 words tell computer talk from everything else.

    python examples/news20.py                       # fetches news20 into the cache, once
    python examples/news20.py --folder PATH         # or reads it from a folder
    python examples/news20.py --file ANY.libsvm --positive 1

l1-regularised logistic regression by FedDualAvg: each site takes local steps on single documents of its own, the server averages
dual states. A step costs the words of its document, not the size of the vocabulary. Several strengths of l1 walk side by side.
"""

import argparse
import time
from typing import Any

import numpy as np
from rich.console import Console

import fedlocal as fl
from fedlocal.report.tables import table

COMPUTERS = [2, 3, 4, 5, 6]  # comp.* among the twenty newsgroups


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", help="where news20.bz2 is; by default it is fetched")
    parser.add_argument("--file", help="another file in LIBSVM format")
    parser.add_argument("--positive", type=float, nargs="+", default=COMPUTERS, help="labels of the first class")
    parser.add_argument("--sites", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=100)
    arguments = parser.parse_args()

    X: Any
    X, labels = fl.data.read_libsvm(arguments.file) if arguments.file else fl.data.load("news20", arguments.folder)
    y = np.where(np.isin(labels, arguments.positive), 1.0, -1.0)
    lengths = np.sqrt(np.asarray((X * X).sum(axis=1)).ravel())
    X = X.multiply(1 / np.maximum(lengths, 1e-12)[:, None]).tocsr()  # documents of unit length
    rng = np.random.default_rng(0)
    order = rng.permutation(len(y))
    test, train = order[: len(y) // 5], order[len(y) // 5 :]
    sites = fl.data.partition.by_quantity(len(train), arguments.sites, concentration=5.0, seed=0)  # unequal sites
    data = fl.FederatedData.from_groups((X[train], y[train]), sites)
    held_out = fl.FederatedData.shared(X[test], y[test], num_clients=1)

    problem = fl.problems.Logistic(data, intercept=True)
    steps = max(1, data.num_examples // data.num_clients)
    began = time.perf_counter()
    result = fl.sweep(
        problem,
        lambda strength: fl.methods.FedDualAvg(5.0, 1.0, fl.regularizers.L1(strength)),
        {"strength": [1e-5, 3e-5, 1e-4, 3e-4, 1e-3]},
        rounds=arguments.rounds,
        local_steps=steps,
        batch_size=1,
        weights="examples",
        metrics=[fl.metrics.Density(), fl.metrics.Accuracy(held_out, name="accuracy_held_out")],
        eval_every=max(1, arguments.rounds // 5),
    )
    seconds = time.perf_counter() - began

    last: Any = result.history[result.history["round"] == arguments.rounds]
    shown = last[["strength", "loss", "objective", "density", "accuracy_held_out"]].reset_index(drop=True)
    shown["words"] = (shown["density"] * X.shape[1]).round().astype(int)
    console = Console()
    console.print(table(shown, f"{X.shape[1]:,} features, {data.num_clients} sites, {arguments.rounds} rounds"))
    taken = len(result.cells) * arguments.rounds * data.num_clients * steps
    engine = result.provenance["configuration"]["engine"]
    console.print(
        f"{taken:,} local steps by the {engine} engine in {seconds:.1f} s, evaluations and compiling included"
    )


if __name__ == "__main__":
    main()
