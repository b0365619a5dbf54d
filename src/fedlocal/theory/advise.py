"""advise: which method, which step size and how many local steps, for a problem and a number of rounds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd

from fedlocal import checks
from fedlocal.core import AbstractProblem, LocalMethod, Params, Regularizer
from fedlocal.engines import sweep
from fedlocal.means import client_weights
from fedlocal.problems import MLP
from fedlocal.progress import ProgressBar
from fedlocal.theory.around import around
from fedlocal.theory.bound import Bound, Setting
from fedlocal.theory.estimate import Estimate, estimate
from fedlocal.theory.families import COMPOSITE, NON_CONVEX, SMOOTH, Family, Numbers
from fedlocal.theory.local_model import LocalModel

MOST_STEPS = 256  # local steps in a round, unless the user says otherwise
STEP_SIZES = 36  # that are looked at, from 1e-5 to 4 times 1/L
MODULI = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5)  # times L: what an accelerated method may take for mu where F has none
PILOTS = 3  # methods that a pilot runs
PILOT_FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)  # times the advised step size
CURVE_POINTS = 30
CLEAR = 2.0  # a prediction is that much better than the next, or they count as alike


@dataclass(frozen=True)
class Choice:
    """A method with all its numbers, and what is known about it."""

    family: Family = field(repr=False)
    numbers: Numbers
    predicted: float | None  # expected objective above the optimum, from the local model
    guarantee: Bound | None  # the best bound that holds
    measured: float | None = None  # by the pilot

    @property
    def method(self) -> LocalMethod:
        return self.family.build(self.numbers)

    @property
    def score(self) -> float:
        """What choices are ranked by: measured, else predicted, else promised."""
        promised = math.inf if self.guarantee is None else self.guarantee.value
        return next((v for v in (self.measured, self.predicted) if v is not None), promised)


@dataclass(frozen=True)
class Advice:
    """What to run, and why."""

    choices: Sequence[Choice] = field(repr=False)  # best first
    options: dict[str, Any]  # for `fl.simulate`, with the best method
    estimate: Estimate = field(repr=False)
    model: LocalModel | None = field(repr=False)
    warnings: Sequence[str]
    confidence: str
    fraction: float | None = field(repr=False)  # of the clients that takes part in a round; None: all

    @property
    def best(self) -> Choice:
        return self.choices[0]

    @property
    def method(self) -> LocalMethod:
        """The best method: `fl.simulate(problem, advice.method, **advice.options)` runs it."""
        return self.best.method

    def table(self) -> pd.DataFrame:
        """One row per method, best first."""
        rows = []
        for choice in self.choices:
            row = {
                "method": choice.family.name,
                "local_steps": choice.numbers.local_steps,
                "step_size": choice.numbers.step_size,
                "predicted_error": _number(choice.predicted),
                "measured_error": _number(choice.measured),
                "guaranteed_error": _number(None if choice.guarantee is None else choice.guarantee.value),
                "theorem": "" if choice.guarantee is None else choice.guarantee.theorem,
            }
            rows.append(row)
        return pd.DataFrame(rows).dropna(axis="columns", how="all")

    def code(self) -> str:
        """Python that runs the choice, where `problem` (and `regularizer`) are there."""
        numbers = self.best.numbers
        options = ", ".join(f"{name}={value!r}" for name, value in self.options.items())
        built = self.best.family.code.format(
            step_size=numbers.step_size, strong_convexity=numbers.strong_convexity, local_steps=numbers.local_steps
        )
        return f"method = {built}\nresult = fl.simulate(problem, method, {options})"

    def curves(self) -> pd.DataFrame:
        """The predicted error of each choice after 1, 2, ... rounds: columns method, round, predicted_error."""
        rounds = self.options["rounds"]
        points = np.unique(np.round(np.geomspace(1, rounds, CURVE_POINTS)).astype(int))
        rows = [
            (choice.family.name, r, value)
            for choice in self.choices
            if choice.predicted is not None
            for r, value in zip(points, self._predicted(choice, points), strict=True)
        ]
        return pd.DataFrame(rows, columns=["method", "round", "predicted_error"])

    def figure(self, path: str | Path) -> None:
        """Draw the predicted error against rounds."""
        from fedlocal.report.figures import COLORS, panels  # here, for matplotlib takes a while to import

        curves = self.curves()
        if curves.empty:
            raise ValueError(
                "Advice.figure: nothing was predicted for this problem, only bounds are known; see table()"
            )
        with panels(1, Path(path), "What to expect of each method", width=7.0, height=4.4) as (axis,):
            for choice in self.choices:
                part = curves[curves["method"] == choice.family.name]
                if part.empty:
                    continue
                color = COLORS.get(choice.family.name, COLORS.get(choice.family.name.split("-")[0]))
                style = "--" if choice.family.name == "FedAc-II" else "-"
                label = (
                    f"{choice.family.name}, {choice.numbers.local_steps} local steps of {choice.numbers.step_size:.2g}"
                )
                axis.loglog(part["round"], part["predicted_error"], style, color=color, label=label)
                if choice.measured is not None:
                    axis.plot(self.options["rounds"], choice.measured, "o", color=color)
            axis.set(xlabel="round", ylabel="objective above the optimum")
            axis.legend(fontsize=9)

    def _predicted(self, choice: Choice, rounds: Sequence[int] | np.ndarray) -> list[float]:
        assert self.model is not None
        walker = _walker(choice.family, choice.numbers)
        return [
            float(self.model.predict([walker], int(r), choice.numbers.local_steps, self.fraction)[0]) for r in rounds
        ]

    def __str__(self) -> str:
        lines = [self.table().to_string(index=False, float_format=lambda v: f"{v:.3g}"), "", self.confidence]
        lines += [f"warning: {warning}" for warning in self.warnings]
        return "\n".join([*lines, "", self.code()])


def advise(
    problem: AbstractProblem,
    *,
    rounds: int,
    local_steps: int | None = None,
    clients: int | None = None,
    batch_size: int | None = 1,
    regularizer: Regularizer | None = None,
    weights: str = "uniform",
    x0: Params | None = None,
    pilot: bool = False,
    seed: int = 0,
    progress: bool = True,
) -> Advice:
    r"""Say which method to run on a problem with a number of rounds, with which step size and how many local steps.

    The constants of the problem are estimated, every bound that applies is evaluated with them, and the expected error of every
    method is predicted on the local model of the problem around its optimum (`theory/local_model.py`), for step sizes from 1e-5/L
    to 4/L and 1, 2, 4, ... local steps. Methods are ranked by what is predicted; a bound is what is guaranteed in the worst case,
    often orders of magnitude above.

    Args:
        problem: the losses of the clients.
        rounds: how often the clients can communicate.
        local_steps: the most steps that a client can take in a round; None: one pass over a usual client's examples, at most 256.
        clients: how many clients take part in a round; None means all.
        batch_size: examples per step; None means full gradients.
        regularizer: psi, for sparse or constrained models.
        weights: of the clients, "uniform" or "examples".
        x0: the starting point; the problem's own when None.
        pilot: also run the best three methods, each with five step sizes, and let the measurement decide.
        seed: of samples and of the pilot.

    Example:
        >>> import fedlocal as fl
        >>> problem = fl.problems.quadratics([[[1.0, 0.0], [0.0, 0.01]]] * 8, [[1.0, 1.0]] * 8, noise_std=0.01)
        >>> advice = fl.advise(problem, rounds=20, local_steps=16)
        >>> advice.best.family.name, advice.best.numbers.local_steps
        ('FedAc-I', 16)
    """
    checks.instance("advise", "problem", problem, AbstractProblem)
    rounds = checks.whole("advise", "rounds", rounds)
    if clients is not None:
        clients = checks.whole("advise", "clients", clients, at_most=problem.num_clients)
    most = (
        _usual_steps(problem, batch_size) if local_steps is None else checks.whole("advise", "local_steps", local_steps)
    )
    p = client_weights("advise", problem, weights)
    found = estimate(problem, x0=x0, batch_size=batch_size, weights=weights, regularizer=regularizer, seed=seed)
    with jax.enable_x64(True):
        start = problem.init(jax.random.key(seed)) if x0 is None else x0
    convex = not isinstance(problem, MLP)
    families = NON_CONVEX if not convex else COMPOSITE if regularizer is not None else SMOOTH
    model = around(problem, found.solution, start, p, batch_size, regularizer, seed) if convex else None
    fraction = None if clients in (None, problem.num_clients) else clients / problem.num_clients
    search = Search(found, model, fraction, rounds, most, regularizer, _alike(p, fraction))
    with ProgressBar("advise", len(families), progress) as bar:
        choices = []
        for i, family in enumerate(families):
            choices.append(search.best(family))
            bar.advance_to(i + 1, family.name)
    choices.sort(key=lambda choice: choice.score)
    options: dict[str, Any] = {"rounds": rounds, "batch_size": batch_size}
    options |= {"clients_per_round": clients} if fraction is not None else {}
    options |= {"weights": weights} if weights != "uniform" else {}
    if pilot:
        run = {**options, "seed": seed, "x0": x0, "progress": progress}
        tried = [_pilot(problem, choice, found.optimum, run) for choice in choices[:PILOTS]]
        choices = sorted([*tried, *choices[PILOTS:]], key=lambda choice: (choice.measured is None, choice.score))
    best = choices[0]
    notes = [*found.warnings, *_notes(best, found, model, convex)]
    options = {"rounds": rounds, "local_steps": best.numbers.local_steps, **options}
    return Advice(choices, options, found, model, notes, _confidence(choices, found, model), fraction)


@dataclass(frozen=True)
class Search:
    """What the best numbers of a family are looked for with."""

    found: Estimate
    model: LocalModel | None
    fraction: float | None
    rounds: int
    most_steps: int
    regularizer: Regularizer | None
    clients: int  # of equal weight, that average as much noise away

    def best(self, family: Family) -> Choice:
        """The choice with the smallest prediction; with the smallest bound where nothing can be predicted."""
        candidates = [self._with(family, steps) for steps in _powers_of_two(self.most_steps)]
        return min(candidates, key=lambda choice: choice.score)

    def _with(self, family: Family, local_steps: int) -> Choice:
        guarantee = None  # the theorems let all clients take part, where they differ
        if self.fraction is None or self.found.constants.heterogeneity == 0:
            guarantee = family.guarantee(self.found.constants, Setting(self.clients, self.rounds, local_steps))
        if self.model is None:
            step_size = 1 / (4 * self.found.local.smoothness)
            if guarantee is not None and guarantee.step_size is not None:
                step_size = guarantee.step_size
            return Choice(family, self._numbers(step_size, local_steps, self._moduli(family)[0]), None, guarantee)
        tried = [
            (value, self._numbers(step_size, local_steps, mu))
            for mu in self._moduli(family)
            for step_size, value in self._predicted(family, local_steps, mu)
        ]
        value, numbers = min(tried, key=lambda each: each[0])
        return Choice(family, numbers, float(value), guarantee)

    def _predicted(self, family: Family, local_steps: int, mu: float) -> list[tuple[float, float]]:
        assert self.model is not None
        largest = max(self.model.curvature.max(), self.found.local.smoothness / 100)  # there may be none left at x*
        step_sizes = np.geomspace(1e-5, 4.0, STEP_SIZES) / largest
        if family.accelerated:
            step_sizes = step_sizes[step_sizes * mu < 0.5]
        walkers = [_walker(family, self._numbers(float(s), local_steps, mu)) for s in step_sizes]
        values = self.model.predict(walkers, self.rounds, local_steps, self.fraction)
        return list(zip(map(float, step_sizes), map(float, values), strict=True))

    def _numbers(self, step_size: float, local_steps: int, mu: float) -> Numbers:
        return Numbers(step_size, local_steps, mu, self.regularizer)

    def _moduli(self, family: Family) -> list[float]:
        """What is taken for mu: the problem's own, or several where it has none that is known."""
        mu = self.found.constants.strong_convexity
        if mu > 0 or not family.accelerated:
            return [mu]
        return [factor * self.found.local.smoothness for factor in MODULI]


def _walker(family: Family, numbers: Numbers) -> LocalMethod:
    """The method as the local model walks it: a proximal one like FedAvg, in the coordinates that psi leaves free."""
    return SMOOTH_FED_AVG.build(numbers) if family.composite else family.build(numbers)


SMOOTH_FED_AVG = next(family for family in SMOOTH if family.name == "FedAvg")


def _pilot(problem: AbstractProblem, choice: Choice, optimum: float, options: dict[str, Any]) -> Choice:
    """The choice with the step size that did best, and how well."""
    numbers = choice.numbers
    step_sizes = [factor * numbers.step_size for factor in PILOT_FACTORS]
    if choice.family.accelerated:
        step_sizes = [s for s in step_sizes if s * numbers.strong_convexity < 0.5]
    cells = {"step_size": step_sizes}
    outcome = sweep(
        problem,
        lambda step_size: choice.family.build(replace(numbers, step_size=step_size)),
        cells,
        local_steps=numbers.local_steps,
        eval_every=options["rounds"],
        **options,
    )
    ends = outcome.history.groupby("step_size")["objective"].last() - optimum
    errors = {float(size): float(error) for size, error in ends.items() if math.isfinite(error)}  # pyright: ignore[reportArgumentType]
    if not errors:
        return replace(choice, measured=math.inf)
    best = min(errors, key=errors.__getitem__)
    return replace(choice, numbers=replace(numbers, step_size=best), measured=errors[best])


def _alike(p: np.ndarray, fraction: float | None) -> int:
    """As many clients of equal weight leave the same variance in their mean."""
    return max(1, int((fraction or 1.0) / np.sum(p**2) + 1e-9))


def _usual_steps(problem: AbstractProblem, batch_size: int | None) -> int:
    sizes = problem.sizes()
    if sizes is None or batch_size is None:
        return MOST_STEPS
    return int(np.clip(np.median(sizes) // batch_size, 1, MOST_STEPS))


def _powers_of_two(most: int) -> list[int]:
    return sorted({2**i for i in range(most.bit_length())} | {most})


def _notes(best: Choice, found: Estimate, model: LocalModel | None, convex: bool) -> list[str]:
    """What the user should know about this advice."""
    notes = []
    if not convex:
        notes.append("the problem is not convex: step sizes come from a bound on gradient norms; run it with a pilot")
    elif model is None:
        notes.append("nothing can be predicted with this regulariser, only bounded; a pilot helps")
    if best.guarantee is None:
        notes.append(f"no theorem's conditions hold for {best.family.name} here, so its error is not bounded")
    if best.predicted is not None and not math.isfinite(best.predicted):
        notes.append(
            "every step size that was looked at diverges on the local model; give more rounds or scale the data"
        )
    if best.family.accelerated and found.constants.strong_convexity == 0:
        notes.append("mu is not known to be positive; strong_convexity is the one with the best prediction")
    return notes


def _confidence(choices: Sequence[Choice], found: Estimate, model: LocalModel | None) -> str:
    """How sure the advice is, in a sentence."""
    best, rest = choices[0], choices[1:]
    if best.measured is not None:
        off = "" if not best.predicted else f"; predicted was {best.predicted:.2g}"
        return f"Measured by a pilot: {best.measured:.2g} above the optimum{off}."
    if model is None or best.predicted is None:
        return "Low confidence: ranked by worst-case bounds alone; pilot=True measures."
    gap, modelled = found.constants.gap, float(model.curvature @ model.start**2) / 2
    close = [choice.family.name for choice in rest if choice.score < CLEAR * best.score]
    alike = (
        f"; {', '.join(close)} within a factor {CLEAR:g}" if close else f"; every other method is {CLEAR:g} times worse"
    )
    ratio = modelled / gap if gap else 1.0
    level = "High" if 1 / 2 < ratio < 2 and not found.warnings else "Medium" if 1 / 10 < ratio < 10 else "Low"
    return f"{level} confidence: the local model explains {ratio:.0%} of the start's error{alike}."


def _number(value: float | None) -> float:
    return math.nan if value is None else value
