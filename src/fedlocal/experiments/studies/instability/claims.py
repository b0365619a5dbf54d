"""Claims of the instability study: two runs of AGD separate exponentially, those of FedAc-I do not."""

from typing import Any

from fedlocal.experiments.runner.claims import Verdict
from fedlocal.experiments.studies.instability.settings import InstabilitySettings
from fedlocal.theory.constructions.instability import growth_factor

TEXT = 1.02  # the text's factor in three steps


def verdicts(settings: InstabilitySettings, runs: Any, table: Any, worst: Any) -> list[Verdict]:
    """Judge the theorem, its proof, and what is said about gradient descent and FedAc-I."""
    covered = table[table["kappa"] >= 25]
    text, shifted = covered[covered["stiff_step"] == 1], covered[covered["stiff_step"] == 0]
    off = (table["factor"] / table["theory"] - 1).abs().max()
    level, last = TEXT**settings.blocks, settings.blocks
    agd, stable = worst[worst["method"] == "AGD"], worst[worst["method"] == "FedAc-I"]
    end = runs[runs["step"] == runs["step"].max()]
    left = max(end["ag"].max(), end["w"].max())
    said = "|w_ag - u_ag| >= eps 1.02^K and |w - u| >= eps/2 1.02^K"

    def grown(claim: str, part: Any, least_ag: float, least_w: float) -> Verdict:
        ag, w = (f"at least {(part[column] / level).min():.3f} eps 1.02^{last}" for column in ("w_ag", "w"))
        holds = (part["w_ag"] >= least_ag * level).all() and (part["w"] >= least_w * level).all()
        return Verdict.of(claim, f"w_ag {ag}, w {w}", bool(holds))

    return [
        Verdict.of(
            "the distance grows by 2 (1 - 1/sqrt(kappa))^3 in three steps",
            f"to {off:.1e} for kappa from {table['kappa'].min():g} to {table['kappa'].max():g}",
            bool(off < 0.01),
        ),
        grown("proof: |w_ag - u_ag| >= eps/2 1.02^K and |w - u| >= eps 1.02^K, kappa >= 25", text, 0.5, 1.0),
        grown(f"theorem: {said}, on the objective of its proof", text, 1.0, 0.5),
        grown("theorem, on the objective whose first of three steps sees curvature L", shifted, 1.0, 0.5),
        Verdict.of(
            "this does not contradict convergence: the distance first expands and then shrinks",
            f"after {settings.further_steps} more steps at most {left:.1e} eps are left",
            bool(left < 1),
        ),
        Verdict.of(
            "two runs of gradient descent do not part on the same objective",
            f"their distance is never above {runs['gd'].max():.6g} eps",
            bool(runs["gd"].max() <= 1),
        ),
        Verdict.of(
            "FedAc-I's gamma keeps |x_ag - y_ag| within K local steps bounded, whatever the curvatures",
            f"at most {stable['ag'].max():.3g} eps at K = {', '.join(map(str, settings.worst_local_steps))}, where AGD comes to "
            f"{agd['ag'].max():.1e} eps in {settings.longest_agd} steps; |x - y|, which is not judged, comes to "
            f"{stable['w'].max():.3g} eps",
            bool((stable["ag"] <= stable["bound"]).all() and stable["ag"].max() < 10),
        ),
        _fastest(worst, settings.longest_agd),
    ]


def _fastest(worst: Any, steps: int) -> Verdict:
    """Judge the largest growth of AGD per step, over the last five steps, against that of the text's period of three."""
    rates = {}
    for kappa, part in worst[worst["method"] == "AGD"].groupby("kappa"):
        w = part.set_index("local_steps")["w"]
        rates[kappa] = (w[steps] / w[steps - 5]) ** 0.2
    listed = ", ".join(f"{rate:.4f} (kappa {k:g}, text {growth_factor(k) ** (1 / 3):.4f})" for k, rate in rates.items())
    five = max(abs(rate / ((1 - k**-0.5) * 4**0.2) - 1) for k, rate in rates.items())
    return Verdict.of(
        "curvature L in one of five steps is worse than in one of three: 4 (1 - 1/sqrt(kappa))^5 in five steps, the worst of all",
        f"a step multiplies by {listed}",
        five < 1e-3,
    )
