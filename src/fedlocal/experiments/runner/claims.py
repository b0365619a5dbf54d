"""Claims of the text compared with measurements: each claim gets a verdict of one line."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from rich.markup import escape

from fedlocal.experiments.runner.settings import Claim, StepSizeGrid

HOLDS, FAILS, UNMEASURED = "holds", "does not hold", "not measured"
TOO_SMALL = "not measured at this scale"
AT_THE_END = ("ends", "close")  # checks of the last rounds that methods may pass before they have moved


@dataclass(frozen=True)
class Verdict:
    """A claim, the measurement in words, and the outcome of the comparison."""

    claim: str
    measured: str
    outcome: str  # HOLDS, FAILS, UNMEASURED or TOO_SMALL

    @classmethod
    def of(cls, claim: str, measured: str, holds: bool) -> "Verdict":
        return cls(claim, measured, HOLDS if holds else FAILS)

    @classmethod
    def unmeasured(cls, claim: str, why: str) -> "Verdict":
        return cls(claim, why, UNMEASURED)

    def at_scale(self, scale: str) -> "Verdict":
        """Return the verdict as it counts at a scale: of a small run, that it does not show something says nothing."""
        return replace(self, outcome=TOO_SMALL) if scale == "quick" and self.outcome == FAILS else self

    def styled(self) -> str:
        """Return the verdict as one line with rich markup."""
        color = {HOLDS: "green", FAILS: "red"}.get(self.outcome, "yellow")
        return f"[{color}]{self.outcome}[/]: {escape(self.claim)} ({escape(self.measured)})"


@dataclass(frozen=True)
class TunedMethod:
    """A method with its best step sizes."""

    client_step_size: float
    server_step_size: float
    curve: pd.DataFrame  # one row per evaluated round, averaged over seeds
    late: Mapping[str, float]  # every column averaged over the last rounds
    diverged: Mapping[tuple[float, float], float]  # (client, server) -> first round of divergence, where it diverged
    tied: Sequence[tuple[float, float]]  # pairs with the best score, this one among them
    # pair -> round after which halving dropped it
    dropped: Mapping[tuple[float, float], float] = field(default_factory=dict)
    half_widths: Mapping[str, float] = field(default_factory=dict)  # of `late`: of 95 % t intervals over several seeds

    @property
    def pair(self) -> tuple[float, float]:
        return self.client_step_size, self.server_step_size

    @property
    def dropped_in_words(self) -> str:
        """How many pairs halving dropped, after how many rounds."""
        return ", ".join(f"{n} at {r}" for r, n in sorted(Counter(self.dropped.values()).items()))


@dataclass(frozen=True)
class TunedResults:
    """The results that claims are compared with."""

    methods: Mapping[str, TunedMethod]
    grid: StepSizeGrid
    text_grid: StepSizeGrid  # the text's grid, which may differ from the one that was run
    rounds: int
    text_rounds: int  # of the text's runs, which may be longer than the one that was run
    results_of: Callable[[str], "TunedResults | None"]  # results of another experiment; None if it was not run
    of_seed: Mapping[int, "TunedResults"] = field(default_factory=dict)  # of each seed alone, if there are several


def with_seeds(verdict: Verdict, alone: Mapping[int, Verdict]) -> Verdict:
    """Return the verdict on means over seeds; where the seeds disagree, it says with how many of them the claim holds alone.

    Args:
        verdict: on the means.
        alone: of each seed, as a run with this one alone would judge; none where there is one seed.
    """
    if all(each.outcome == verdict.outcome for each in alone.values()):
        return verdict
    held = sum(each.outcome == HOLDS for each in alone.values())
    return replace(verdict, measured=f"{verdict.measured}; alone it holds with {held} of {len(alone)} seeds")


def judge(claim: Claim, results: TunedResults) -> Verdict:
    """Return the verdict on one claim, on means over the seeds; it says where the seeds disagree."""
    alone = {seed: _judged(claim, of_seed) for seed, of_seed in results.of_seed.items()}
    return with_seeds(_judged(claim, results), alone)


def _judged(claim: Claim, results: TunedResults) -> Verdict:
    """In a run with fewer rounds than the text's, that a claim fails says nothing, nor that methods are close at the end."""
    missing = [name for name in (claim.method, *claim.than) if name not in results.methods]
    if missing:
        return Verdict.unmeasured(claim.text, f"{missing[0]} was not run")
    verdict = CHECKS[claim.check](claim, results)
    if results.rounds >= results.text_rounds or verdict.outcome == UNMEASURED:
        return verdict
    if verdict.outcome == HOLDS and claim.check not in AT_THE_END:
        return verdict
    length = f"{results.rounds} of the text's {results.text_rounds} rounds"
    return replace(verdict, outcome=TOO_SMALL, measured=f"{verdict.measured}; after {length}")


def first_round(curve: pd.DataFrame, metric: str, level: float, largest: bool) -> int | None:
    """Return the first evaluated round from which on the metric stays at the level, or None.

    The level must be reached in this round and in nine of ten evaluations from it on, and these must be at least a twentieth
    of all. A rank that passes through the true one does not count.
    """
    reached = (curve[metric] >= level if largest else curve[metric] <= level).to_numpy()
    left = np.arange(len(reached), 0, -1)
    settled = reached & (np.cumsum(reached[::-1])[::-1] >= 0.9 * left) & (left >= max(2, len(reached) / 20))
    return int(curve["round"].iloc[settled.argmax()]) if settled.any() else None


def _reaches(claim: Claim, results: TunedResults) -> Verdict:
    """The metric reaches the level in less than `within` rounds."""
    metric, level, within = _need(claim, "metric", "level", "within")
    when = first_round(results.methods[claim.method].curve, metric, level, claim.largest)
    if when is None and results.rounds < within:
        return Verdict.unmeasured(claim.text, f"not within the {results.rounds} rounds that were run")
    measured = f"{_name(metric)} {_sign(claim)} {level:g} " + (f"from round {when}" if when is not None else "never")
    return Verdict.of(claim.text, measured, when is not None and when < within)


def _never(claim: Claim, results: TunedResults) -> Verdict:
    """The metric does not reach the level in any round, and at least `within` rounds were run."""
    metric, level, within = _need(claim, "metric", "level", "within")
    curve = results.methods[claim.method].curve
    when = first_round(curve, metric, level, claim.largest)
    if when is None and results.rounds < within:
        return Verdict.unmeasured(claim.text, f"only {results.rounds} rounds were run")
    best = curve[metric].max() if claim.largest else curve[metric].min()
    lasting = "never for good" if when is None else f"from round {when}"
    measured = f"{_name(metric)} {_sign(claim)} {level:g} {lasting}, best {best:.3g} in {results.rounds} rounds"
    return Verdict.of(claim.text, measured, when is None)


def _ends(claim: Claim, results: TunedResults) -> Verdict:
    """Over the last rounds the metric is at the level on average."""
    metric, level = _need(claim, "metric", "level")
    late = results.methods[claim.method].late[metric]
    holds = late >= level if claim.largest else late <= level
    return Verdict.of(claim.text, f"{_name(metric)} {late:.3g} over the last rounds", bool(holds))


def _leads(claim: Claim, results: TunedResults, close: bool) -> Verdict:
    """Over the last rounds the metric is better than that of every other method by the margin, or at most that much worse."""
    (metric,) = _need(claim, "metric")
    sign = 1 if claim.largest else -1
    own = results.methods[claim.method].late[metric]
    others = {name: results.methods[name].late[metric] for name in claim.than}
    listed = ", ".join(f"{value:.3g} ({name})" for name, value in others.items())
    measured = f"{_name(metric)} {own:.3g} against {listed}"
    lead = min(sign * (own - value) for value in others.values())
    return Verdict.of(claim.text, measured, lead >= -claim.margin if close else lead > claim.margin)


def _fastest(claim: Claim, results: TunedResults) -> Verdict:
    """The metric reaches the level in fewer rounds than with every other method."""
    metric, level = _need(claim, "metric", "level")
    names = [claim.method, *claim.than]
    when = {name: first_round(results.methods[name].curve, metric, level, claim.largest) for name in names}
    own = when[claim.method]
    listed = ", ".join(f"{_or_never(r)} ({name})" for name, r in when.items())
    measured = f"rounds until {_name(metric)} {_sign(claim)} {level:g}: {listed}"
    if all(r is None for r in when.values()):
        return Verdict.unmeasured(claim.text, f"{measured}, in {results.rounds} rounds")
    faster = own is not None and all(r is None or own < r for name, r in when.items() if name != claim.method)
    return Verdict.of(claim.text, measured, faster)


def _tuned(claim: Claim, results: TunedResults) -> Verdict:
    """The text's pair of step sizes has the best score; other pairs may have the same."""
    (wanted,) = _need(claim, "step_sizes")
    tuned = results.methods[claim.method]
    others = [pair for pair in tuned.tied if pair != tuned.pair]
    measured = f"best is {_pair(tuned.pair)}" + (f", as good are {' and '.join(map(_pair, others))}" if others else "")
    if wanted[0] not in results.grid.client_step_size or wanted[1] not in results.grid.server_step_size:
        return Verdict.unmeasured(claim.text, f"{measured}; the text's pair is not in the grid that was run")
    if (when := tuned.dropped.get(tuple(wanted))) is not None:
        return Verdict.unmeasured(
            claim.text, f"{measured} of those that ran all rounds; halving dropped {_pair(wanted)} after round {when:g}"
        )
    measured += _halved([tuned])
    when = tuned.diverged.get(tuple(wanted))
    measured += f"; {_pair(wanted)} diverged in round {when:g}" if when is not None else ""
    return Verdict.of(claim.text, measured, any(np.allclose(pair, wanted) for pair in (tuned.pair, *others)))


def _larger_steps(claim: Claim, results: TunedResults) -> Verdict:
    """The product of the best client and server step size is larger than that of every other method."""
    steps = {name: float(np.prod(results.methods[name].pair)) for name in (claim.method, *claim.than)}
    listed = ", ".join(f"{step:g} ({name})" for name, step in steps.items())
    larger = all(steps[claim.method] > steps[name] * (1 + 1e-9) for name in claim.than)
    return Verdict.of(claim.text, f"client times server step size {listed}" + _halved(results.methods.values()), larger)


def _inside_grid(claim: Claim, results: TunedResults) -> Verdict:
    """Every method's best pair lies in the text's grid. This needs a grid with smaller client step sizes than the text's."""
    pairs = {name: tuned.pair for name, tuned in results.methods.items()}
    text = (results.text_grid.client_step_size, results.text_grid.server_step_size)
    measured = "best " + ", ".join(f"{_pair(pair)} {name}" for name, pair in pairs.items())
    if min(results.grid.client_step_size) >= min(text[0]):
        return Verdict.unmeasured(claim.text, f"{measured}; --grid wide looks beyond the grid")
    measured += _halved(results.methods.values())
    inside = all(min(w) <= v <= max(w) for pair in pairs.values() for v, w in zip(pair, text, strict=True))
    return Verdict.of(claim.text, measured, inside)


def _halved(methods: Iterable[TunedMethod]) -> str:
    """Say what halving leaves open about the best pair."""
    dropped = max(len(tuned.dropped) for tuned in methods)
    open_ = f"; among the pairs that ran all rounds: up to {dropped} that halving dropped might have become better"
    return open_ if dropped else ""


def _compared(claim: Claim, results: TunedResults, slower: bool) -> Verdict:
    """The metric needs more (or fewer) rounds to reach the level than in another experiment."""
    metric, level, other = _need(claim, "metric", "level", "other")
    others = results.results_of(other)
    if others is None or claim.method not in others.methods:
        return Verdict.unmeasured(claim.text, f"run {other} with the same options first")
    curves = (each.methods[claim.method].curve for each in (results, others))
    here, before = (first_round(curve, metric, level, claim.largest) for curve in curves)
    reached = f"{_name(metric)} {_sign(claim)} {level:g}"
    measured = f"rounds until {reached}: {_or_never(here)}, on {other} {_or_never(before)}"
    if here is None and before is None:
        return Verdict.unmeasured(claim.text, measured)
    late, early = (here, before) if slower else (before, here)
    return Verdict.of(claim.text, measured, early is not None and (late is None or late > early))


CHECKS: dict[str, Callable[[Claim, TunedResults], Verdict]] = {
    "reaches": _reaches,
    "never": _never,
    "ends": _ends,
    "better": partial(_leads, close=False),
    "close": partial(_leads, close=True),
    "fastest": _fastest,
    "tuned": _tuned,
    "larger_steps": _larger_steps,
    "inside_grid": _inside_grid,
    "slower_than_on": partial(_compared, slower=True),
    "faster_than_on": partial(_compared, slower=False),
}


def _need(claim: Claim, *names: str) -> tuple[Any, ...]:
    missing = [name for name in names if getattr(claim, name) is None]
    if missing:
        raise ValueError(f"run: the claim {claim.text!r} needs {missing[0]!r}")
    return tuple(getattr(claim, name) for name in names)


def _name(metric: str) -> str:
    return {"f1": "F1"}.get(metric, metric.replace("_", " "))


def _pair(step_sizes: Sequence[float]) -> str:
    return f"({step_sizes[0]:g}, {step_sizes[1]:g})"


def _sign(claim: Claim) -> str:
    return ">=" if claim.largest else "<="


def _or_never(r: int | None) -> str:
    return "never" if r is None else str(r)
