"""Claims of the study of primal averaging: clients are sparse, their average is not."""

import pandas as pd

from fedlocal.experiments.runner.claims import Verdict


def verdicts(table: pd.DataFrame) -> list[Verdict]:
    """Judge the claims by the densities in the table."""
    mid, dual = table.set_index("method").loc["FedMiD"], table.set_index("method").loc["FedDualAvg"]
    return [
        Verdict.of(
            "each client of FedMiD can locate a sparse solution",
            f"at most {mid['client_densest']:.1%} of the weights of a client are not zero",
            bool(mid["client_densest"] < 0.5),
        ),
        Verdict.of(
            "simply averaging them yields a much denser solution",
            f"{mid['average_of_clients']:.1%} of the average against {mid['client_mean']:.1%} of a client",
            bool(mid["average_of_clients"] > 2 * mid["client_mean"]),
        ),
        Verdict.of(
            "FedDualAvg, which averages in the dual space, keeps the sparsity",
            f"{dual['server']:.1%} of its server's weights are not zero, {dual['truth']:.1%} of the truth; of FedMiD's average "
            f"{mid['average_of_clients']:.1%}, and {mid['server']:.1%} after the server's proximal step",
            bool(
                abs(dual["server"] - dual["truth"])
                < min(abs(mid[k] - dual["truth"]) for k in ("average_of_clients", "server"))
            ),
        ),
    ]
