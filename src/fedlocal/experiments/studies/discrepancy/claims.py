"""Claims of the study of discrepancies: every lemma's bound holds, and discrepancies grow as the text says."""

from typing import Any

from fedlocal.experiments.runner.claims import Verdict
from fedlocal.experiments.studies.discrepancy.lemmas import LEMMAS, TITLES
from fedlocal.experiments.studies.discrepancy.settings import DiscrepancySettings


def verdicts(settings: DiscrepancySettings, table: Any) -> list[Verdict]:
    """Judge bounds, convergence and growth by the rows of the table."""
    judged = []
    for name, lemma in LEMMAS.items():
        rows = table[table["method"] == name]
        worst = rows["ratio"].max()
        claim = f"{name} stays below lemma {lemma.label} at every step{lemma.narrowed}"
        judged.append(Verdict.of(claim, f"at most {worst:.2g} of the bound, over {len(rows)} cases", bool(worst <= 1)))
    rows = table[table["convergence_ratio"].notna()]
    worst = rows["convergence_ratio"].max()
    claim = "shadow and potentials converge as the lemmas say, given the discrepancy that was measured"
    judged.append(Verdict.of(claim, f"at most {worst:.2g} of the right side", bool(worst <= 1)))
    longest = table[table["local_steps"] == max(settings.local_steps)].set_index(["problem", "method"])
    for problem, limit, word in (("quadratic", 1, "linearly"), ("unequal", 2, "quadratically"), ("a9a", 1, "linearly")):
        found = longest["exponent"][problem, "FedAvg"]
        claim = f"FedAvg's discrepancy grows at most {word} in k on {TITLES[problem]}"
        judged.append(Verdict.of(claim, f"like k^{found:.2f}", bool(found <= limit + 0.05)))
    for problem in ("quadratic", "a9a"):
        vanilla, stable = longest.loc[problem, "FedAc-vanilla"], longest.loc[problem, "FedAc-I"]
        factor = vanilla["largest"] / stable["largest"]
        claim = f"the cross term of vanilla acceleration is larger and grows faster than FedAc-I's on {TITLES[problem]}"
        grows = f"like k^{vanilla['exponent']:.2f} against k^{stable['exponent']:.2f}"
        measured = f"{factor:.3g} times the cross term, a product of two distances, {grows}"
        faster = vanilla["exponent"] > stable["exponent"]
        judged.append(Verdict.of(claim, measured, bool(factor > 1 and faster)))
    return judged
