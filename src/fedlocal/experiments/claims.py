"""Claims of the text against what was measured: each becomes a verdict, one line."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from rich.markup import escape

from fedlocal.experiments.settings.shared import Claim, Grid

HOLDS, FAILS, UNMEASURED = "holds", "does not hold", "not measured"


@dataclass(frozen=True)
class Verdict:
    """A claim, what was measured, and whether it holds."""

    claim: str
    measured: str
    outcome: str  # HOLDS, FAILS or UNMEASURED

    @classmethod
    def of(cls, claim: str, measured: str, holds: bool) -> "Verdict":
        return cls(claim, measured, HOLDS if holds else FAILS)

    def to_json(self) -> dict[str, str]:
        return asdict(self)

    def styled(self) -> str:
        """One line for rich."""
        color = {HOLDS: "green", FAILS: "red"}.get(self.outcome, "yellow")
        return f"[{color}]{self.outcome}[/]: {escape(self.claim)} ({escape(self.measured)})"


@dataclass(frozen=True)
class Tuned:
    """A method with its best step sizes."""

    client_step_size: float
    server_step_size: float
    curve: pd.DataFrame  # one row per evaluated round, averaged over seeds
    late: Mapping[str, float]  # every column averaged over the last rounds
    diverged: Mapping[tuple[float, float], float]  # (client, server) -> first round of divergence, where it diverged
    tied: Sequence[tuple[float, float]]  # pairs with the best score, this one among them


@dataclass(frozen=True)
class Findings:
    """What claims are checked against."""

    methods: Mapping[str, Tuned]
    grid: Grid
    text_grid: Grid  # that of the text, where another one was run
    rounds: int
    elsewhere: Callable[[str], "Findings | None"]  # another experiment's findings, where it was run


def judge(claim: Claim, findings: Findings) -> Verdict:
    """The verdict on one claim."""
    missing = [name for name in (claim.method, *claim.than) if name not in findings.methods]
    if missing:
        return _unmeasured(claim, f"{missing[0]} was not run")
    return CHECKS[claim.check](claim, findings)


def first_round(curve: pd.DataFrame, metric: str, level: float, largest: bool) -> int | None:
    """The first evaluated round at which the metric has come to the level for good: it holds there and in nine of ten later
    evaluations, and those are at least a twentieth of all. A rank that passes through the true one does not count."""
    there = (curve[metric] >= level if largest else curve[metric] <= level).to_numpy()
    left = np.arange(len(there), 0, -1)
    settled = there & (np.cumsum(there[::-1])[::-1] >= 0.9 * left) & (left >= max(2, len(there) / 20))
    return int(curve["round"].iloc[settled.argmax()]) if settled.any() else None


def _reaches(claim: Claim, found: Findings) -> Verdict:
    """The metric comes to the level in less than `within` rounds."""
    metric, level, within = _need(claim, "metric", "level", "within")
    when = first_round(found.methods[claim.method].curve, metric, level, claim.largest)
    if when is None and found.rounds < within:
        return _unmeasured(claim, f"not within the {found.rounds} rounds that were run")
    said = f"{_name(metric)} {_sign(claim)} {level:g} " + (f"from round {when}" if when is not None else "never")
    return Verdict.of(claim.text, said, when is not None and when < within)


def _never(claim: Claim, found: Findings) -> Verdict:
    """The metric does not come to the level in all rounds, of which there are at least `within`."""
    metric, level, within = _need(claim, "metric", "level", "within")
    curve = found.methods[claim.method].curve
    when = first_round(curve, metric, level, claim.largest)
    if when is None and found.rounds < within:
        return _unmeasured(claim, f"only {found.rounds} rounds were run")
    best = curve[metric].max() if claim.largest else curve[metric].min()
    lasting = "never for good" if when is None else f"from round {when}"
    said = f"{_name(metric)} {_sign(claim)} {level:g} {lasting}, best {best:.3g} in {found.rounds} rounds"
    return Verdict.of(claim.text, said, when is None)


def _ends(claim: Claim, found: Findings) -> Verdict:
    """Over the last rounds the metric is at the level on average."""
    metric, level = _need(claim, "metric", "level")
    late = found.methods[claim.method].late[metric]
    holds = late >= level if claim.largest else late <= level
    return Verdict.of(claim.text, f"{_name(metric)} {late:.3g} over the last rounds", bool(holds))


def _better(claim: Claim, found: Findings) -> Verdict:
    """Over the last rounds the metric is better than that of every other method, by the margin at least."""
    lead, said = _lead(claim, found)
    return Verdict.of(claim.text, said, lead > claim.margin)


def _close(claim: Claim, found: Findings) -> Verdict:
    """Over the last rounds the metric is at most the margin worse than that of every other method."""
    lead, said = _lead(claim, found)
    return Verdict.of(claim.text, said, lead >= -claim.margin)


def _lead(claim: Claim, found: Findings) -> tuple[float, str]:
    """By how much a method is better than the best of others over the last rounds, and in words."""
    (metric,) = _need(claim, "metric")
    sign = 1 if claim.largest else -1
    own = found.methods[claim.method].late[metric]
    others = {name: found.methods[name].late[metric] for name in claim.than}
    said = f"{_name(metric)} {own:.3g} against " + ", ".join(f"{value:.3g} ({name})" for name, value in others.items())
    return min(sign * (own - value) for value in others.values()), said


def _fastest(claim: Claim, found: Findings) -> Verdict:
    """The metric comes to the level in fewer rounds than with every other method."""
    metric, level = _need(claim, "metric", "level")
    when = {
        name: first_round(found.methods[name].curve, metric, level, claim.largest)
        for name in [claim.method, *claim.than]
    }
    own = when[claim.method]
    said = f"rounds until {_name(metric)} {_sign(claim)} {level:g}: " + ", ".join(
        f"{'never' if r is None else r} ({name})" for name, r in when.items()
    )
    if all(r is None for r in when.values()):
        return _unmeasured(claim, f"{said}, in {found.rounds} rounds")
    faster = all(r is None or (own is not None and own < r) for name, r in when.items() if name != claim.method)
    return Verdict.of(claim.text, said, own is not None and faster)


def _tuned(claim: Claim, found: Findings) -> Verdict:
    """The text's pair of step sizes has the best score, alone or with others."""
    (wanted,) = _need(claim, "step_sizes")
    tuned = found.methods[claim.method]
    best = [(tuned.client_step_size, tuned.server_step_size)]
    best += [pair for pair in tuned.tied if pair != best[0]]
    said = "best is " + ", as good are ".join(
        [_pair(best[0]), *([" and ".join(map(_pair, best[1:]))] if best[1:] else [])]
    )
    if wanted[0] not in found.grid.client_step_size or wanted[1] not in found.grid.server_step_size:
        return _unmeasured(claim, f"{said}; the text's pair is not in the grid that was run")
    when = tuned.diverged.get(tuple(wanted))
    said += f"; {_pair(wanted)} diverged in round {when:g}" if when is not None else ""
    return Verdict.of(claim.text, said, any(np.allclose(pair, wanted) for pair in best))


def _inside_grid(claim: Claim, found: Findings) -> Verdict:
    """Every method's best pair lies in the text's grid, seen from a grid that reaches below its client step sizes."""
    pairs = {name: (t.client_step_size, t.server_step_size) for name, t in found.methods.items()}
    text = (found.text_grid.client_step_size, found.text_grid.server_step_size)
    said = "best " + ", ".join(f"{_pair(pair)} {name}" for name, pair in pairs.items())
    if min(found.grid.client_step_size) >= min(text[0]):
        return _unmeasured(claim, f"{said}; --grid wide looks beyond the grid")
    inside = all(min(w) <= v <= max(w) for pair in pairs.values() for v, w in zip(pair, text, strict=True))
    return Verdict.of(claim.text, said, inside)


def _compared(claim: Claim, found: Findings, slower: bool) -> Verdict:
    """The metric takes more (or fewer) rounds to come to the level than in another experiment."""
    metric, level, other = _need(claim, "metric", "level", "other")
    there = found.elsewhere(other)
    if there is None or claim.method not in there.methods:
        return _unmeasured(claim, f"run {other} with the same options first")
    here = first_round(found.methods[claim.method].curve, metric, level, claim.largest)
    before = first_round(there.methods[claim.method].curve, metric, level, claim.largest)
    said = f"rounds until {_name(metric)} {_sign(claim)} {level:g}: {_or_never(here)}, on {other} {_or_never(before)}"
    if here is None and before is None:
        return _unmeasured(claim, said)
    late, early = (here, before) if slower else (before, here)
    return Verdict.of(claim.text, said, early is not None and (late is None or late > early))


CHECKS: dict[str, Callable[[Claim, Findings], Verdict]] = {
    "reaches": _reaches,
    "never": _never,
    "ends": _ends,
    "better": _better,
    "close": _close,
    "fastest": _fastest,
    "tuned": _tuned,
    "inside_grid": _inside_grid,
    "slower_than_on": partial(_compared, slower=True),
    "faster_than_on": partial(_compared, slower=False),
}


def _need(claim: Claim, *names: str) -> tuple[Any, ...]:
    missing = [name for name in names if getattr(claim, name) is None]
    if missing:
        raise ValueError(f"run: the claim {claim.text!r} needs {missing[0]!r}")
    return tuple(getattr(claim, name) for name in names)


def _unmeasured(claim: Claim, why: str) -> Verdict:
    return Verdict(claim.text, why, UNMEASURED)


def _name(metric: str) -> str:
    return {"f1": "F1"}.get(metric, metric.replace("_", " "))


def _pair(step_sizes: Sequence[float]) -> str:
    return f"({step_sizes[0]:g}, {step_sizes[1]:g})"


def _sign(claim: Claim) -> str:
    return ">=" if claim.largest else "<="


def _or_never(r: int | None) -> str:
    return "never" if r is None else str(r)
