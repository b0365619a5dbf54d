"""Evaluations: loss, objective and certificate of a run's model, from what sites say of it."""

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict

from fedlocal.core import Params, Regularizer
from fedlocal.flower.checks.assessment import Assessment
from fedlocal.flower.checks.examiner import Examiner
from fedlocal.flower.coordinator.certificate import Means, duality_gap, residual
from fedlocal.flower.messages.records import ARRAYS, CONFIG, WEIGHT
from fedlocal.flower.site.question import NUMBER
from fedlocal.regularizers import Zero

EXTRA_SECONDS = 60.0  # for which Flower keeps a message after the time for its answer is over
log = logging.getLogger("fedlocal")


@dataclass(frozen=True)
class EvaluationResult:
    """An evaluation, one row of the history."""

    numbers: dict[str, float]  # means over sites
    no_gap_because: str | None


@dataclass
class Evaluator:
    """Makes the questions of a round, and an evaluation of what sites said of the model."""

    timeout: float  # seconds for an answer
    examiner: Examiner

    def questions(
        self, kind: str, arrays: ArrayRecord, config: Mapping[str, Any], nodes: Mapping[str, int]
    ) -> list[tuple[Message, str]]:
        """Return a message of this kind (train, evaluate) for each site: state, method, settings of the round, moments."""
        sites, server, asked = self.examiner.sites, self.examiner.coordinator, []
        largest, ttl = max(sites.registry.examples.values(), default=0), self.timeout + EXTRA_SECONDS
        numbers = {f"{NUMBER}{name}": value for name, value in server.payload.numbers.items()}
        for site, node in nodes.items():
            settings = self.examiner.schedule.settings(server.done, sites.registry.names.index(site), largest)
            moments = sites.moments.to_config(site)
            values = {**config, **server.description, **numbers, **moments, **settings.to_config()}
            content = RecordDict({ARRAYS: arrays, CONFIG: ConfigRecord(values)})
            asked.append((Message(content, node, kind, ttl=ttl, group_id=str(server.done)), site))
        return asked

    def evaluate(self, means: Mapping[str, float]) -> EvaluationResult:
        """Return the evaluation; `means` are those of the sites' numbers."""
        server, said = self.examiner.coordinator, self.examiner.assessments
        second = self.examiner.sites.mean_second_moments(list(said), self.examiner.schedule.weights)
        psi = server.method.regularizer
        return measure(psi, server.solution(), means, said, second)


@dataclass
class Convergence:
    """How far a run is from the optimum, by its last evaluation."""

    history: list[dict[str, float]]  # of the run, which adds to it
    tol: float | None = None  # at which the run has converged
    no_gap_because: str | None = field(default=None, init=False)  # in the last evaluation

    def reached(self, done: int) -> bool:
        """Return True if the model after `done` rounds was found to be within `tol` of the optimum."""
        last = self.history[-1] if self.history else None
        return self.tol is not None and last is not None and last["round"] == done and distance(last) <= self.tol

    def confirmed(self, done: int) -> bool:
        """Return True if the model before was within `tol`, too.

        One evaluation may look so because of a single false answer. In the next one, answers of that site that make another
        model look optimal contradict its earlier ones, and the true ones do, too (`Assessment.check_against`).
        """
        return self.reached(done) and len(self.history) > 1 and distance(self.history[-2]) <= (self.tol or 0.0)

    def log(self, done: int) -> None:
        """Log a sentence about the last evaluation."""
        if not self.history:
            return
        why = f" (no duality gap: {self.no_gap_because})" if self.no_gap_because else ""
        said = f"after {done} rounds: {in_words(self.history[-1])}{why}"
        if self.tol is None or self.reached(done):
            log.info("%s%s", "" if self.tol is None else "converged ", said)
        else:
            log.warning("not converged %s; tol is %g. More rounds may help", said, self.tol)

    def to_json(self, done: int) -> dict[str, Any]:
        """Return the last evaluation's certificate and what was asked for."""
        last = self.history[-1] if self.history else {}
        names = ("round", "objective", "kkt_residual", "duality_gap")
        known = {name: last[name] for name in names if name in last}
        asked = {"converged": self.reached(done), "tol": self.tol, "rounds": done}
        return {**asked, **known, "no_gap_because": self.no_gap_because}


def measure(
    psi: Regularizer | None,
    x: Params,
    means: Mapping[str, float],
    said: Mapping[str, Assessment],
    second_moments: np.ndarray | None,
) -> EvaluationResult:
    """Return loss, objective, KKT residual and duality gap; the last two as far as the sites gave what they need.

    Args:
        psi: the regulariser of the objective; None for none.
        x: the model.
        means: means over sites of the numbers that they gave.
        said: what each site said of the model.
        second_moments: (d,) mean squares of the columns over these sites, where they are known.
    """
    psi = Zero() if psi is None else psi
    with jax.enable_x64(True):
        penalty = float(psi.value(jax.tree.map(lambda a: np.asarray(a, np.float64), x)))
    given = {name: float(value) for name, value in means.items() if name != "l2"}
    found = {**given, "objective": given["loss"] + penalty}  # and what there is of a certificate
    if any(own.gradient is None for own in said.values()):
        return EvaluationResult(found, "a site's policy keeps its gradient back")
    sums = _means(means, said, second_moments)
    found["kkt_residual"] = residual(psi, x, sums)
    gap = duality_gap(psi, x, sums)
    if isinstance(gap, str):
        return EvaluationResult(found, gap)
    return EvaluationResult({**found, "duality_gap": gap}, None)


def _means(means: Mapping[str, float], said: Mapping[str, Assessment], second: np.ndarray | None) -> Means:
    weights, gradients = _weights(said), [own.gradient for own in said.values()]
    gradient = jax.tree.map(lambda *parts: sum(w * g for w, g in zip(weights, parts, strict=True)), *gradients)
    kinds = {str(own.kind) for own in said.values()}
    strengths = {float(own.numbers.get("l2", math.nan)) for own in said.values()}
    if len(kinds) > 1 or not kinds <= {"logistic", "squares"} or len(strengths) > 1:
        return Means(float(means["loss"]), gradient, None)
    return Means(float(means["loss"]), gradient, kinds.pop(), strengths.pop(), second)


def _weights(said: Mapping[str, Assessment]) -> list[float]:
    weights = [float(own.numbers[WEIGHT]) for own in said.values()]
    return [weight / sum(weights) for weight in weights]


def distance(row: Mapping[str, Any]) -> float:
    """Return how far from optimal an evaluation is: the relative duality gap or the KKT residual, whichever is smaller.

    For l1 penalties the gap is of the order of the KKT residual times the loss over the strength, as sites send no sums from
    which a better dual point could be made; without a gap the residual is all there is.
    """
    known = [value for value in (relative_gap(row), row.get("kkt_residual", math.nan)) if not math.isnan(value)]
    return min(known, default=math.nan)


def relative_gap(row: Mapping[str, Any]) -> float:
    """Return the duality gap of an evaluation relative to its objective; nan where there is none."""
    return max(row["duality_gap"], 0.0) / max(abs(row["objective"]), 1e-300) if "duality_gap" in row else math.nan


def in_words(row: Mapping[str, Any]) -> str:
    """Return the certificate of an evaluation as a sentence."""
    gap, rest = relative_gap(row), row.get("kkt_residual", math.nan)
    if not math.isnan(gap):
        return f"duality gap {gap:.2g} of the objective, KKT residual {rest:.2g}"
    return "no certificate" if math.isnan(rest) else f"KKT residual {rest:.2g}"
