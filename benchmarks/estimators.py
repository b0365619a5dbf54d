"""l1 logistic regression on news20 over 20 sites, beside scikit-learn's liblinear and saga on the pooled data.

    python benchmarks/estimators.py --folder PATH    where news20.bz2 is

Two of the twenty groups against the rest, no intercept (liblinear would penalise it), word counts as they are and with rows of
length one. Each solver gets the loosest of its own tolerances at which the KKT residual ||x - prox(x - grad F(x))||, F the mean
loss, is at most 1e-4; saga gives up after --patience seconds. Repeats are interleaved, medians are taken.
"""

import argparse
import os
import time
import warnings
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # its threads would spin into the next measurement

import numpy as np
import scipy.sparse
from rich.console import Console
from rich.table import Table
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import normalize

import fedlocal as fl

TARGET = 1e-4  # KKT residual
SITES = 20
TOLERANCES = [10.0**-k for k in range(1, 9)]
STRENGTHS = {"counts": (0.1, 1.0), "rows of length one": (1.0, 10.0)}  # C


def news20(folder: str | None) -> tuple[Any, np.ndarray]:
    """Word counts, and +1 for the first two groups."""
    features, labels = fl.data.load("news20", folder)
    matrix = scipy.sparse.csr_matrix(features, dtype=np.float64)
    matrix.indices, matrix.indptr = matrix.indices.astype(np.int32), matrix.indptr.astype(np.int32)  # for liblinear
    return matrix, np.where(np.isin(labels, (1, 2)), 1, -1)


def kkt_residual(X: Any, y: np.ndarray, x: np.ndarray, C: float) -> float:
    n = len(y)
    moved = x - X.T @ (-y * expit(-y * (X @ x)) / n)
    return float(np.linalg.norm(x - np.sign(moved) * np.maximum(np.abs(moved) - 1 / (C * n), 0)))


def contestants(C: float, sites: np.ndarray) -> dict[str, Callable[[Any, np.ndarray, float], Any]]:
    """name -> (X, y, tolerance) -> a fitted model."""
    options: dict[str, Any] = {"l1_ratio": 1.0, "C": C, "fit_intercept": False, "max_iter": 10_000}
    ours = fl.estimators.FederatedLogisticRegression
    return {
        "fedlocal, 20 sites": lambda X, y, tol: ours(penalty="l1", C=C, fit_intercept=False, tol=tol).fit(
            X, y, sites=sites
        ),
        "liblinear, pooled": lambda X, y, tol: LogisticRegression(solver="liblinear", tol=tol, **options).fit(X, y),
        "saga, pooled": lambda X, y, tol: LogisticRegression(solver="saga", tol=tol, **options).fit(X, y),
    }


def loosest(
    fit: Callable[..., Any], X: Any, y: np.ndarray, C: float, patience: float
) -> tuple[float | None, float, Any]:
    """The loosest tolerance that reaches the target within the patience, the residual there, and the model."""
    began, residual, model = time.perf_counter(), np.inf, None
    for tol in TOLERANCES:
        model = fit(X, y, tol)
        residual = kkt_residual(X, y, model.coef_[0], C)
        if residual <= TARGET:
            return tol, residual, model
        if time.perf_counter() - began > patience:
            break
    return None, residual, model


def compare(X: Any, y: np.ndarray, C: float, repeats: int, patience: float, title: str, console: Console) -> None:
    sites = np.random.default_rng(0).integers(0, SITES, len(y))
    fits = contestants(C, sites)
    chosen = {name: loosest(fit, X, y, C, patience) for name, fit in fits.items()}
    seconds: dict[str, list[float]] = {name: [] for name in fits}
    for _ in range(repeats):
        for name, fit in fits.items():
            tol = chosen[name][0]
            if tol is not None:
                began = time.perf_counter()
                fit(X, y, tol)
                seconds[name].append(time.perf_counter() - began)
    reference = float(np.median(seconds["liblinear, pooled"]))
    table = Table(title=f"{title}, C = {C:g}", title_justify="left")
    for column in ("solver", "tolerance", "KKT residual", "weights", "seconds", "times liblinear"):
        table.add_column(column, justify="left" if column == "solver" else "right")
    for name, (tol, residual, model) in chosen.items():
        taken = f"{np.median(seconds[name]):.2f}" if tol is not None else f"gave up after {patience:g}"
        ratio = f"{np.median(seconds[name]) / reference:.1f}" if tol is not None else ""
        weights = str(np.count_nonzero(model.coef_))
        table.add_row(name, f"{tol:g}" if tol is not None else "", f"{residual:.1e}", weights, taken, ratio)
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", help="where news20.bz2 is; None: the cache or the internet")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--patience", type=float, default=60.0, help="seconds that saga may try")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # that a looser tolerance was not enough is what the table says
    X, y = news20(options.folder)
    for title, strengths in STRENGTHS.items():
        data = X if title == "counts" else normalize(X)
        for C in strengths:
            compare(data, y, C, options.repeats, options.patience, title, Console())


if __name__ == "__main__":
    main()
