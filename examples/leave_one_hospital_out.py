"""Leave one hospital out: a model of three hospitals, judged by the patients of the fourth.

    python examples/leave_one_hospital_out.py --folder PATH      # of processed.cleveland.data and so on; else they are fetched

For each hospital in turn: the federated fit of the three others, scikit-learn's fit of their patients in one table (pooled), and
of each of them alone (only). Nothing looks at the hospital that is left out, neither means and variances nor the choice of C:
that is the one with which models of two of the three are right most often at the third. All fits of a row have the same C.
"""

import argparse
from typing import Any, Literal

import numpy as np
import pandas as pd
import sklearn
from patients import Patients, hospitals
from rich.console import Console
from sklearn.linear_model import LogisticRegression

import fedlocal as fl
from fedlocal.report.tables import table

CHOICES = np.logspace(-3, 2, 11)  # of C
NEW = tuple(int(part) for part in sklearn.__version__.split(".")[:2]) >= (1, 8)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", help="where the hospitals' files are; the cache when left out")
    arguments = parser.parse_args()
    console = Console(highlight=False, width=124)
    for penalty in ("l1", "l2"):
        shown, apart = compare(hospitals(arguments.folder), penalty)
        formats = {"patients": "{:.0f}", "ill": "{:.1f}", "C": "{:.3g}"} | dict.fromkeys(shown.columns[4:], "{:.1f}")
        console.print(table(shown, f"Right at the hospital that was left out, in %: {penalty}", formats))
        console.print(f"largest difference between a federated and a pooled weight: {apart:.1e}\n")


def compare(patients: Patients, penalty: Literal["l1", "l2"]) -> tuple[pd.DataFrame, float]:
    """A row per hospital that is left out, and their mean; how far federated and pooled weights are apart at most."""
    rows, apart = [], 0.0
    names = list(dict.fromkeys(patients.sites))
    for left_out in names:
        test, others = patients.sites == left_out, [name for name in names if name != left_out]
        X, y, sites = patients.features[~test].to_numpy(), patients.ill[~test], patients.sites[~test]
        scaling = fl.data.Moments.merged([fl.data.Moments.of(X[sites == name]) for name in others]).scaling()
        chosen = fl.estimators.FederatedLogisticRegressionCV(penalty, Cs=CHOICES).fit(scaling.apply(X), y, sites=sites)
        federated = fl.estimators.FederatedLogisticRegression(penalty, C=chosen.C_)
        federated.fit(scaling.apply(X), y, sites=sites)
        pooled = by_scikit_learn(scaling.apply(X), y, penalty, chosen.C_)
        apart = max(apart, float(np.abs(federated.coef_ - pooled.coef_).max()))

        new, ill = patients.features[test].to_numpy(), patients.ill[test]
        row: dict[str, Any] = {"left_out": left_out, "patients": len(ill), "ill": 100 * ill.mean(), "C": chosen.C_}
        row["federated"] = 100 * federated.score(scaling.apply(new), ill)
        row["pooled"] = 100 * pooled.score(scaling.apply(new), ill)
        for name in names:
            row[f"only_{name}"] = np.nan
            if name != left_out:
                own = fl.data.Moments.of(X[sites == name]).scaling()
                alone = by_scikit_learn(own.apply(X[sites == name]), y[sites == name], penalty, chosen.C_)
                row[f"only_{name}"] = 100 * alone.score(own.apply(new), ill)
        rows.append(row)
    every = pd.DataFrame(rows)
    every["mean_of_only"] = every.filter(like="only_").mean(axis=1)
    mean = every[["federated", "pooled", "mean_of_only"]].mean()
    return pd.concat([every, pd.DataFrame([{"left_out": "mean", **mean}])], ignore_index=True), apart


def by_scikit_learn(X: np.ndarray, y: np.ndarray, penalty: str, C: float) -> LogisticRegression:
    """The fit of one table; of its solvers, saga is the one for l1 that leaves the intercept free."""
    kind: dict[str, Any] = {"l1_ratio": float(penalty == "l1")} if NEW else {"penalty": penalty}
    solver = "saga" if penalty == "l1" else "lbfgs"
    return LogisticRegression(C=C, solver=solver, tol=1e-8, max_iter=100_000, **kind).fit(X, y)


if __name__ == "__main__":
    main()
