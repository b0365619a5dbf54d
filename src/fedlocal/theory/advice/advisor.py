"""advise: recommends a method, a step size and a number of local steps for a problem and a number of rounds."""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd

from fedlocal.core import AbstractProblem, LocalMethod, Params, Regularizer
from fedlocal.core.types import Weights
from fedlocal.metrics import Loss
from fedlocal.problems import MLP, augmented
from fedlocal.problems.smooth_part import client_weights
from fedlocal.simulation.result import DivergenceWarning
from fedlocal.simulation.sweeps.grid_run import sweep
from fedlocal.theory.advice.families import COMPOSITE, SMOOTH, WITHOUT_THEORY
from fedlocal.theory.advice.local_fit import fit_local_model
from fedlocal.theory.advice.local_model import LocalModel
from fedlocal.theory.advice.search import Choice, ParameterSearch, affine_method
from fedlocal.theory.bounds.bound import OPTIONAL, Constants
from fedlocal.theory.constants.estimation import Estimate, estimate
from fedlocal.util import checks, html
from fedlocal.util.progress import ProgressBar

MOST_STEPS = 256  # default limit of local steps in a round
PILOTS = 3  # how many of the best methods a pilot runs
PILOT_FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)  # times the advised step size
CURVE_POINTS = 30
ORIGINAL = "original_loss"  # the column of F where a method runs on the l2-augmented objective
MOST_NOISE = 0.9  # fraction of the noise that the local model must hold for high confidence
CLEAR = 2.0  # predictions within this factor of each other count as equal


@dataclass(frozen=True)
class Advice:
    """The recommended methods with their parameters, predictions and bounds, and how reliable they are."""

    choices: Sequence[Choice] = field(repr=False)  # one per method, best first
    problem: AbstractProblem = field(
        repr=False
    )  # what the best method runs on: the given problem, or the l2-augmented one
    options: dict[str, Any]  # keyword arguments of `fl.simulate` for the best method
    estimate: Estimate = field(repr=False)
    model: LocalModel | None = field(repr=False)
    warnings: Sequence[str]
    confidence: str  # one sentence
    participation: float | None = field(repr=False)  # the fraction of the clients in a round; None: all

    @property
    def best(self) -> Choice:
        return self.choices[0]

    @property
    def method(self) -> LocalMethod:
        """The best method: `fl.simulate(advice.problem, advice.method, **advice.options)` runs it."""
        return self.best.method

    def table(self) -> pd.DataFrame:
        """Return one row per method, best first."""
        rows = (
            {
                "method": choice.family.name,
                "local_steps": choice.parameters.local_steps,
                "step_size": choice.parameters.step_size,
                "regularization": choice.regularization or None,
                "predicted_error": choice.predicted,
                "measured_error": choice.measured,
                "best_bound": choice.bound and choice.bound.value,
                "its_step_size": choice.bound and choice.bound.step_size,
                "theorem": choice.bound and choice.bound.theorem,
            }
            for choice in self.choices
        )
        return pd.DataFrame(rows).dropna(axis="columns", how="all").fillna({"theorem": ""})

    def code(self) -> str:
        """Return Python code that runs the best choice, given `problem` (and `regularizer`)."""
        given = {name: repr(value) for name, value in self.options.items()}
        lines, name = [], "problem"
        if "x0" in given:
            given["x0"] = "x0"
        if self.best.regularization:
            center = ", x0" if "x0" in given else ""
            lines, name = (
                [f"augmented = fl.problems.augmented(problem, {self.best.regularization:.6g}{center})"],
                "augmented",
            )
            weights = f", weights={given['weights']}" if "weights" in given else ""
            given["metrics"] = f"[fl.metrics.Loss(problem, {ORIGINAL!r}{weights})]"
        built = self.best.family.code.format(**vars(self.best.parameters))
        options = ", ".join(f"{option}={value}" for option, value in given.items())
        return "\n".join([*lines, f"method = {built}", f"result = fl.simulate({name}, method, {options})"])

    def curves(self) -> pd.DataFrame:
        """Return the predicted error of each choice after 1, 2, ... rounds: columns method, round, predicted_error."""
        points = np.unique(np.round(np.geomspace(1, self.options["rounds"], CURVE_POINTS)).astype(int))
        rows = [
            (choice.family.name, r, value)
            for choice in self.choices
            if choice.predicted is not None
            for r, value in zip(points, self._predicted(choice, points), strict=True)
        ]
        return pd.DataFrame(rows, columns=["method", "round", "predicted_error"])

    def figure(self, path: str | Path) -> None:
        """Draw the predicted error against rounds; the ending of the path says the format, none means PNG and PDF."""
        from fedlocal.report.figures import panels  # imported here because matplotlib is slow to import

        curves = self.curves()
        if curves.empty:
            known = "nothing was predicted for this problem, only bounds are known"
            raise ValueError(f"Advice.figure: {known}; see table()")
        with panels(1, Path(path), "What to expect of each method", size=(7.0, 4.4)) as (axis,):
            for choice in self.choices:
                part = curves[curves["method"] == choice.family.name]
                if part.empty:
                    continue
                color, steps = choice.family.row.color, choice.parameters
                label = f"{choice.family.name}, {steps.local_steps} local steps of {steps.step_size:.2g}"
                axis.loglog(part["round"], part["predicted_error"], color=color, label=label)
                if choice.measured is not None:
                    axis.plot(self.options["rounds"], choice.measured, "o", color=color)
            axis.set(xlabel="round", ylabel="objective above the optimum")
            axis.legend(fontsize=9)

    def _predicted(self, choice: Choice, rounds: Sequence[int] | np.ndarray) -> list[float]:
        assert self.model is not None
        methods, steps = [affine_method(choice.family, choice.parameters)], choice.parameters.local_steps
        lam = choice.regularization
        return [float(self.model.predict(methods, int(r), steps, self.participation, lam)[0]) for r in rounds]

    def __repr__(self) -> str:
        best = self.best.parameters
        steps = f"{best.local_steps} local steps of {best.step_size:.3g}"
        return f"Advice({self.best.family.name}, {steps}; {self.confidence.rstrip('.')})"

    def _repr_html_(self) -> str:
        table = self.table()
        rows = html.table(list(table), table.to_numpy(object).tolist())
        notes = (html.paragraph(note) for note in (self.confidence, *(f"warning: {each}" for each in self.warnings)))
        return html.section(repr(self), rows, *notes, html.code(self.code()))

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
    weights: Weights = "uniform",
    x0: Params | None = None,
    pilot: bool = False,
    seed: int = 0,
    progress: bool = True,
) -> Advice:
    r"""Recommend a method, its step size and a number of local steps for a problem and a number of rounds.

    The constants of the problem are estimated, the bounds that apply to each method are evaluated with them, and the expected
    error of every method is predicted on the local model of the problem at its optimum (`theory/advice/local_model.py`), for
    step sizes from 1e-5/L to 4/L and 1, 2, 4, ... local steps. Methods are ranked by the predicted error. Beside it stands the
    smallest bound of a theorem: it holds in the worst case, for the theorem's own step size and output, uses certified constants
    alone, and is often orders of magnitude above the prediction. Methods that need strong convexity run on F + lambda/2
    ||x - x0||^2 if F is not known to have it; lambda is chosen like the step size, and errors are those of F.

    Args:
        problem: the losses of the clients.
        rounds: the number of communications.
        local_steps: the largest number of steps in a round; None: one pass over a median client's examples, at most 256.
        clients: the number of clients that take part in a round; None means all.
        batch_size: examples per step; None means full gradients.
        regularizer: psi, for sparse or constrained models.
        weights: how clients count in F, "uniform" or "examples".
        x0: the starting point; the problem's own when None.
        pilot: also run the best three methods, each with five step sizes, and rank them by the measured error.
        seed: the seed of samples and of the pilot.
        progress: show a progress bar.

    Example:
        >>> import fedlocal as fl
        >>> problem = fl.problems.quadratics([[[1.0, 0.0], [0.0, 0.01]]] * 8, [[1.0, 1.0]] * 8, noise_std=0.01)
        >>> advice = fl.advise(problem, rounds=20, local_steps=16)
        >>> advice.best.family.name, advice.best.parameters.local_steps
        ('FedAc-I', 16)
    """
    checks.instance("advise", "problem", problem, AbstractProblem)
    rounds = checks.whole("advise", "rounds", rounds)
    if batch_size is not None:
        batch_size = checks.whole("advise", "batch_size", batch_size)
    if clients is not None:
        clients = checks.whole("advise", "clients", clients, at_most=problem.num_clients)
    most = _largest_steps(problem, local_steps, batch_size)
    p = client_weights("advise", problem, weights)
    found = estimate(problem, x0=x0, batch_size=batch_size, weights=weights, regularizer=regularizer, seed=seed)
    with jax.enable_x64(True):
        start = problem.init(jax.random.key(seed)) if x0 is None else x0
    convex = not isinstance(problem, MLP)
    families = COMPOSITE
    if regularizer is None:
        families = [family for family in SMOOTH if convex or family.name in WITHOUT_THEORY]
    model = fit_local_model(problem, found.solution, start, p, batch_size, regularizer, seed) if convex else None
    participation = None if clients in (None, problem.num_clients) else clients / problem.num_clients
    constants = _certified(found) if convex else None
    equal = max(1, int((participation or 1.0) / np.sum(p**2) + 1e-9))  # clients whose mean has the same variance
    search = ParameterSearch(found, constants, model, participation, rounds, most, regularizer, equal)
    choices = []
    with ProgressBar("advise", len(families), progress) as bar:
        for i, family in enumerate(families):
            choices.append(search.best(family))
            bar.advance_to(i + 1, family.name)
    choices.sort(key=lambda choice: choice.rank)
    options: dict[str, Any] = {"rounds": rounds, "batch_size": batch_size}
    weighted = None if weights == "uniform" else weights
    chosen = {"clients_per_round": participation and clients, "weights": weighted, "seed": seed or None, "x0": x0}
    options |= {name: value for name, value in chosen.items() if value is not None}
    if pilot:
        given = {**options, "progress": progress}
        tried = [_pilot(problem, start, choice, search, given) for choice in choices[:PILOTS]]
        choices = sorted([*tried, *choices[PILOTS:]], key=lambda choice: choice.rank)
    best = choices[0]
    notes = [*found.warnings, *_notes(best, found, model, convex, regularizer)]
    options = {"rounds": rounds, "local_steps": best.parameters.local_steps, **options}
    if best.regularization:
        options["metrics"] = [Loss(problem, ORIGINAL, weights)]
    confidence = _confidence(choices, found, model)
    return Advice(choices, _runs_on(problem, best, start), options, found, model, notes, confidence, participation)


def _runs_on(problem: AbstractProblem, choice: Choice, start: Params) -> AbstractProblem:
    """Return the problem, or the l2-augmented one if the choice runs on that."""
    return augmented(problem, choice.regularization, start) if choice.regularization else problem


def _pilot(
    problem: AbstractProblem, start: Params, choice: Choice, search: ParameterSearch, options: dict[str, Any]
) -> Choice:
    """Run a choice with several step sizes; return it with the best of them and its measured error."""
    parameters = choice.parameters
    step_sizes = [factor * parameters.step_size for factor in PILOT_FACTORS]
    if choice.family.accelerated:
        step_sizes = [s for s in step_sizes if s * parameters.strong_convexity < 0.5]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DivergenceWarning)  # large step sizes may diverge
        outcome = sweep(
            _runs_on(problem, choice, start),
            lambda step_size: choice.family.row.make(replace(parameters, step_size=step_size)),
            {"step_size": step_sizes},
            local_steps=parameters.local_steps,
            eval_every=options["rounds"],
            metrics=[Loss(problem, ORIGINAL, options.get("weights", "uniform"))] if choice.regularization else [],
            **options,
        )
    ends = outcome.history.groupby("step_size").tail(1)
    column = ORIGINAL if choice.regularization else "objective"
    errors = dict(zip(ends["step_size"], ends[column] - search.found.optimum, strict=True))
    finite = {float(size): float(error) for size, error in errors.items() if math.isfinite(error)}
    if not finite:
        return replace(choice, measured=math.inf)
    best = min(finite, key=finite.__getitem__)
    return search.with_measurement(choice, best, finite[best])


def _certified(found: Estimate) -> Constants | None:
    """Return the certified constants, with None for the others; None if L or sigma is not certified."""
    proven = found.certified
    if not (proven["smoothness"] and proven["noise"]):
        return None
    unknown = {name: None for name in OPTIONAL if not proven[name]}
    if not proven["strong_convexity"]:
        unknown["strong_convexity"] = 0.0  # pyright: ignore[reportArgumentType]
    return replace(found.constants, **unknown)  # pyright: ignore[reportArgumentType]


def _largest_steps(problem: AbstractProblem, local_steps: int | None, batch_size: int | None) -> int:
    """Return `local_steps`, or by default the steps of one pass over a median client's examples."""
    if local_steps is not None:
        return checks.whole("advise", "local_steps", local_steps)
    sizes = problem.sizes()
    if sizes is None or batch_size is None:
        return MOST_STEPS
    return int(np.clip(np.median(sizes) // batch_size, 1, MOST_STEPS))


def _notes(
    best: Choice, found: Estimate, model: LocalModel | None, convex: bool, regularizer: Regularizer | None
) -> list[str]:
    """Return what limits the validity of the advice, one sentence each."""
    notes = []
    if not convex:
        unknown = "nothing is predicted, step sizes are 1/(4 L) of sampled points; use a pilot"
        notes.append(f"the problem is not convex: {unknown}")
    elif model is None and all(not np.any(leaf) for leaf in jax.tree.leaves(found.solution)):
        notes.append("the optimum is zero: the regulariser is too strong for this data")
    elif model is None:
        notes.append(f"nothing can be predicted with {type(regularizer).__name__}, only bounded; a pilot helps")
    elif model.noise_seen < MOST_NOISE:
        notes.append(f"only {model.noise_seen:.0%} of the noise is in the directions that were looked at; use a pilot")
    if convex and best.bound is None:
        name = best.family.name
        notes.append(f"no theorem with proven constants applies to {name} here, so nothing bounds its error")
    elif best.predicted is None and best.bound is not None and best.bound.product:
        product = f"small client step sizes whose product with the server's is {best.bound.step_size:.3g}"
        notes.append(f"the bound of {best.family.name} is about {product}; the program takes 1/(4 L) and 1")
    if best.predicted is not None and not math.isfinite(best.predicted):
        notes.append("every step size that was looked at diverges on the local model; scale the data")
    if best.regularization:
        run_on = f"it runs on F + lambda/2 ||x - x0||^2 with lambda = {best.regularization:.3g}"
        notes.append(f"F is not known to be strongly convex, as {best.family.name} needs: {run_on}; {ORIGINAL} is F")
    return notes


def _confidence(choices: Sequence[Choice], found: Estimate, model: LocalModel | None) -> str:
    """Return one sentence on how reliable the advice is."""
    best, rest = choices[0], choices[1:]
    if best.measured is not None and math.isfinite(best.measured):
        off = "" if best.predicted is None else f"; predicted is {best.predicted:.2g}"
        return f"Measured by a pilot: {best.measured:.2g} above the optimum{off}."
    if model is None or best.predicted is None or not math.isfinite(best.predicted):
        ranked = "ranked by worst-case bounds alone" if math.isfinite(best.score) else "nothing ranks the methods"
        return f"Low confidence: {ranked}; pilot=True measures."
    gap, modelled = found.constants.gap, float(model.curvature @ model.start**2) / 2
    close = [choice for choice in rest if choice.predicted is not None and choice.score <= CLEAR * best.score]
    near = [choice.family.name for choice in close]
    others = f"; {', '.join(near)} within a factor {CLEAR:g}" if near else ""
    if gap is None:
        return f"Low confidence: the start is outside the constraint{others}."
    ratio = modelled / gap if gap else 1.0
    sure = 1 / 2 < ratio < 2 and not found.warnings and model.noise_seen > MOST_NOISE
    level = "High" if sure else "Medium" if 1 / 10 < ratio < 10 else "Low"
    return f"{level} confidence: the local model explains {ratio:.0%} of the start's error{others}."
