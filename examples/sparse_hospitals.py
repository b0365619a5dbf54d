"""A sparse model over four hospitals: which columns tell who is ill, found while all rows stay where they are.

    python examples/sparse_hospitals.py --folder PATH      # of processed.cleveland.data and so on

l1-regularised logistic regression: rounds of FedDualAvg, in which hospitals take local steps and send models; then few rounds of
proximal Newton, until a duality gap certifies that the model is that of all patients in one table.
"""

import argparse

import numpy as np
import pandas as pd
from patients import four_sites
from rich.console import Console

import fedlocal as fl
from fedlocal.report.tables import table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", help="where the hospitals' files are; the cache when left out")
    parser.add_argument("--C", type=float, default=0.1, help="the smaller, the fewer columns; as in scikit-learn")
    arguments = parser.parse_args()
    told, X, ill, sites = four_sites(arguments.folder)

    # columns in common units: of each column a hospital tells how many values it has, their mean and sum of squares
    moments = [fl.data.Moments.of(X[sites == site]) for site in np.unique(sites)]
    scaling = fl.data.Moments.merged(moments).scaling()
    standard = pd.DataFrame(scaling.apply(X), columns=X.columns)  # what is missing becomes the mean

    model = fl.estimators.FederatedLogisticRegression(
        penalty="l1", C=arguments.C, method="fed_dual_avg", local_steps=10, local_rounds=60
    )
    model.fit(standard, ill, sites=sites)

    per_deviation = model.coef_[0]
    per_unit, _ = scaling.unscale(per_deviation, model.intercept_[0])
    frame = pd.DataFrame({"column": X.columns, "per_standard_deviation": per_deviation, "per_unit": per_unit})
    order = np.argsort(-np.abs(per_deviation))[
        : np.count_nonzero(per_deviation)
    ]  # those that are not zero, largest first
    shown = ["phase", "round", "objective", "duality_gap", "nonzeros", "sent"]
    ends = model.history_.drop_duplicates("phase", keep="last").filter(items=shown)

    console = Console(highlight=False, soft_wrap=True)
    console.print(told)
    title = f"Log-odds of being ill: {len(order)} of {len(frame)} columns, the others are zero"
    console.print(table(frame.iloc[order], title))
    formats = {"objective": "{:.6f}", "duality_gap": "{:.1e}"}
    console.print(table(ends, "After the local rounds, and at the end", formats))
    sent = model.communication_
    console.print(
        f"certificate: {model.certificate_}\n"
        f"right: {model.score(standard, ill):.1%} of these patients\n"
        f"each site told {3 * len(X.columns)} numbers about its columns; then, in {sent.rounds} exchanges with the server, it "
        f"received {sent.numbers_down:,} numbers and sent {sent.numbers_up:,}"
    )


if __name__ == "__main__":
    main()
