"""Compare methods on your own data: who comes how near to the optimum in how many rounds?

    python examples/compare_methods.py                                          # breast-cancer data, four unequal sites
    python examples/compare_methods.py mine.csv --target label --sites ward     # your table: numbers, and two classes

Logistic regression with an l2 penalty by FedAvg and FedAc, with l1 by FedMiD and FedDualAvg. Every method runs with all step
sizes side by side and shows its best; what is optimal is known from a certified fit.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from sklearn.datasets import load_breast_cancer

import fedlocal as fl
from fedlocal.report.figures import COLORS, panels, plain_log_scale
from fedlocal.report.tables import table

STRENGTH = {"l2": 0.01, "l1": 0.01}
LOCAL_STEPS = 10  # full gradients of a site's own rows, in a round
STEP_SIZES = [0.01, 0.03, 0.1, 0.3, 1.0]
NEAR = 1e-3  # above the optimum

psi = fl.regularizers.L1(STRENGTH["l1"])
METHODS = {
    "FedAvg": ("l2", lambda eta: fl.methods.FedAvg(eta)),
    "FedAc-I": (
        "l2",
        lambda eta: fl.methods.FedAc.one(step_size=eta, strong_convexity=STRENGTH["l2"], local_steps=LOCAL_STEPS),
    ),
    "FedMiD": ("l1", lambda eta: fl.methods.FedMiD(eta, 1.0, psi)),
    "FedDualAvg": ("l1", lambda eta: fl.methods.FedDualAvg(eta, 1.0, psi)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", help="CSV, Parquet, npz or LIBSVM; breast-cancer data when left out")
    parser.add_argument("--target", help="the column with the classes: the largest number against all others")
    parser.add_argument("--sites", help="the column that says where a row belongs; four random sites when left out")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--out", type=Path, default=Path("compare_methods.png"), help="the figure")
    arguments = parser.parse_args()
    X, y, sites = read(arguments.file, arguments.target, arguments.sites)
    result, curves = compare(X, y, sites, arguments.rounds)
    draw(curves, arguments.out)
    title = f"{len(y):,} rows of {len(np.unique(sites))} sites, {X.shape[1]} columns: after {arguments.rounds} rounds"
    console = Console(highlight=False, soft_wrap=True)
    console.print(table(result, title, {"above_optimum": "{:.1e}"}))
    console.print(f"near: from that round on within {NEAR} of the optimum; the curves are drawn in {arguments.out}")


def compare(X: Any, y: np.ndarray, sites: np.ndarray, rounds: int) -> tuple[pd.DataFrame, dict[str, pd.Series]]:
    """A row per method, and how far above the optimum it was after each round."""
    data, rows, curves = fl.FederatedData.from_groups((X, y), sites), [], {}
    settings: dict[str, Any] = {"rounds": rounds, "local_steps": LOCAL_STEPS, "weights": "examples"}
    for name, (penalty, method) in METHODS.items():
        problem = fl.problems.Logistic(data, l2=STRENGTH["l2"] if penalty == "l2" else 0.0, intercept=True)
        sweep = fl.sweep(problem, method, {"eta": STEP_SIZES}, **settings)
        cell = sweep.best("objective", rule="last")
        best, optimal = sweep.cell(cell), fl.estimators.FederatedLogisticRegression(penalty)
        optimal.set_params(C=1 / (STRENGTH[penalty] * len(y))).fit(X, y, sites=sites)
        curves[name] = above = best.history.set_index("round")["objective"] - optimal.certificate_.objective
        near = int(np.max(np.flatnonzero(above > NEAR), initial=-1)) + 1
        row = {"penalty": penalty, "method": name, "best_step_size": STEP_SIZES[cell]}
        row |= {"above_optimum": above.iloc[-1], "near": near if near <= rounds else "never"}
        kept = {"weights_not_zero": np.count_nonzero(best.x["weights"]), "at_optimum": np.count_nonzero(optimal.coef_)}
        rows.append(row | kept)
    return pd.DataFrame(rows), curves


def read(file: str | None, target: str | None, site: str | None) -> tuple[Any, np.ndarray, np.ndarray]:
    """Features in common units, classes -1 and 1, sites."""
    if file is None:
        known: Any = load_breast_cancer()
        X, y = known["data"], known["target"]
        sites = fl.data.partition.dirichlet(y, 4, concentration=2.0, seed=0)  # unequal in size and classes
    else:
        X, y, sites = fl.data.read_examples(file, target, site, missing=True)
        sites = fl.data.partition.iid(len(y), 4) if sites is None else sites
    moments = [fl.data.Moments.of(X[sites == name]) for name in np.unique(sites)]
    return fl.data.Moments.merged(moments).scaling().apply(X), np.where(y == y.max(), 1.0, -1.0), sites


def draw(curves: dict[str, pd.Series], out: Path) -> None:
    with panels(2, out, "Objective above the optimum, each method with its best step size") as axes:
        for axis, penalty in zip(axes, STRENGTH, strict=True):
            for name, (own, _) in METHODS.items():
                if own == penalty:
                    axis.plot(curves[name][1:], color=COLORS[name], label=name)
            axis.set(title=f"{penalty} penalty", xlabel="communication rounds")
            plain_log_scale(axis)
            axis.legend()


if __name__ == "__main__":
    main()
