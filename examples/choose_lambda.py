"""Choose lambda by leaving one site out at a time: the model has to hold in a hospital that it has never seen.

    python examples/choose_lambda.py --folder PATH      # of processed.cleveland.data and so on
    python examples/choose_lambda.py --out my.png

l1-regularised logistic regression for a path of strengths. Figure: how well models of three sites do at the fourth, and which
columns enter as the penalty falls.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from patients import four_sites
from rich.console import Console

import fedlocal as fl
from fedlocal.report.figures import panels
from fedlocal.report.tables import table

COLORS = ("#3d5a80", "#e9b44c", "#7d5ba6", "#98c1d9")  # of sites
LINES = ("#c8553d", "#0b6e4f", "#3d5a80", "#e9b44c", "#7d5ba6", "#444444")  # of the largest weights
MEAN, QUIET = "#0b6e4f", "#c4c9cf"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", help="where the hospitals' files are; the cache when left out")
    parser.add_argument("--out", type=Path, default=Path("choose_lambda.png"), help="the figure")
    arguments = parser.parse_args()
    told, X, ill, sites = four_sites(arguments.folder)

    # what is missing becomes the mean over all sites; units are found anew for every fold, from its three sites alone
    X = X.fillna(dict(zip(X.columns, over_sites(X, sites).mean, strict=True)))
    model = fl.estimators.FederatedLogisticRegressionCV("l1", Cs=15, standardize=True)
    model.fit(X, ill, sites=sites)

    path = []  # of weights per standard deviation
    for C in model.Cs_:
        one = fl.estimators.FederatedLogisticRegression("l1", C=C, standardize=True).fit(X, ill, sites=sites)
        path.append(pd.Series(one.coef_[0] * over_sites(X, sites).scaling().scale, X.columns))
    weights = pd.DataFrame(path)
    scores = pd.DataFrame(model.scores_, columns=list(model.sites_))
    scores.insert(0, "lambda", 1 / (model.Cs_ * len(X)))  # the strength of the penalty beside the mean loss
    scores.insert(1, "columns", (weights != 0).sum(axis=1))
    scores["mean"] = model.scores_.mean(axis=1)
    scores["choice"] = np.where(model.Cs_ == model.C_, "chosen", "")

    draw(scores, weights, arguments.out)
    console = Console(highlight=False, soft_wrap=True)
    console.print(told)
    console.print(
        table(scores, "Accuracy at the site that was left out", dict.fromkeys(scores.columns[2:-1], "{:.3f}"))
    )
    console.print(
        f"lambda = {1 / (model.C_ * len(X)):.3g}, that is C = {model.C_:.3g}; the path is drawn in {arguments.out}"
    )


def over_sites(X: pd.DataFrame, sites: np.ndarray) -> fl.data.Moments:
    """Means and variances over all sites, of which each tells three numbers per column."""
    return fl.data.Moments.merged([fl.data.Moments.of(X[sites == site]) for site in np.unique(sites)])


def draw(scores: pd.DataFrame, weights: pd.DataFrame, out: Path) -> None:
    """Scores on the left, weights on the right, both against lambda."""
    strength, chosen = scores["lambda"], scores.loc[scores["choice"] == "chosen", "lambda"].item()
    with panels(2, out, "Choosing lambda: each site in turn is left out", size=(6.2, 3.9)) as (left, right):
        for site, color in zip(scores.columns[2:-2], COLORS, strict=True):
            left.plot(strength, scores[site], color=color, linewidth=1.5, label=site)
        left.plot(strength, scores["mean"], color=MEAN, linewidth=3.0, label="mean")
        left.set(title="Accuracy at the site that was left out")
        named = weights.loc[scores["choice"] == "chosen"].iloc[0].abs().nlargest(len(LINES)).index
        right.plot(strength, weights.drop(columns=named), color=QUIET, linewidth=1.1)
        for column, color in zip(named, LINES, strict=True):
            right.plot(strength, weights[column], color=color, label=column)
        right.set(title="Log-odds per standard deviation, all sites")
        for axis, heading in ((left, "left out"), (right, "largest weights")):
            axis.axvline(chosen, color="#444444", linewidth=1.2, linestyle="--", label="chosen lambda")
            axis.set(
                xscale="log", xlim=(strength.max(), strength.min()), xlabel="lambda; a weaker penalty to the right"
            )
            axis.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), title=heading, alignment="left", fontsize=9)


if __name__ == "__main__":
    main()
