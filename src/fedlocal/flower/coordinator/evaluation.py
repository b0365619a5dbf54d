"""Evaluations: loss, objective and certificate of a run's model, from what sites say of it."""

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, RecordDict

from fedlocal.core import Params, Regularizer
from fedlocal.flower.checks.assessment import SUMS, Assessment
from fedlocal.flower.checks.examiner import Examiner
from fedlocal.flower.coordinator.certificate import Means, dual_point, residual
from fedlocal.flower.messages import records
from fedlocal.flower.messages.grids import PollingGrid
from fedlocal.flower.messages.records import ARRAYS, CONFIG, WEIGHT
from fedlocal.flower.site.certificate_sums import CONJUGATE
from fedlocal.flower.site.question import NUMBER
from fedlocal.regularizers import Zero

EXTRA_SECONDS = 60.0  # for which Flower keeps a message after the time for its answer is over
log = logging.getLogger("fedlocal")
AskConjugates = Callable[[dict[str, float]], dict[str, float]]  # factors -> a mean conjugate per site


@dataclass(frozen=True)
class EvaluationResult:
    """An evaluation, one row of the history."""

    numbers: dict[str, float]  # means over sites
    no_gap_because: str | None


@dataclass
class Evaluator:
    """Makes an evaluation of what sites said of the model; asks them a second question where there is a dual point."""

    grid: PollingGrid
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

    def evaluate(self, means: Mapping[str, float], least: int) -> EvaluationResult:
        """Return the evaluation; `means` are those of the sites' numbers, and `least` sites are waited for."""
        server, said = self.examiner.coordinator, self.examiner.assessments
        second = self.examiner.sites.mean_second_moments(list(said), self.examiner.schedule.weights)
        psi = server.method.regularizer
        return measure(psi, server.solution(), means, said, second, lambda factors: self._conjugates(factors, least))

    def _conjugates(self, factors: dict[str, float], least: int) -> dict[str, float]:
        """Ask the sites of the evaluation for the mean conjugates of their losses, at the same state."""
        state = records.to_record(self.examiner.coordinator.payload.arrays)
        named = {f"{CONJUGATE}{name}": value for name, value in factors.items()}
        online = self.examiner.sites.registry.online(self.grid)
        nodes = {site: online[site] for site in self.examiner.assessments if site in online}
        asked = self.questions(MessageType.EVALUATE, state, named, nodes)
        replies = self.grid.receive([message for message, _ in asked], self.timeout, least)
        return self.examiner.conjugates(replies, asked, factors)


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
    ask_conjugates: AskConjugates,
) -> EvaluationResult:
    """Return loss, objective, KKT residual and duality gap; the last two as far as the sites gave what they need.

    Args:
        psi: the regulariser of the objective; None for none.
        x: the model.
        means: means over sites of the numbers that they gave.
        said: what each site said of the model.
        second_moments: (d,) mean squares of the columns over these sites, where they are known.
        ask_conjugates: asks the second question.
    """
    psi = Zero() if psi is None else psi
    with jax.enable_x64(True):
        penalty = float(psi.value(jax.tree.map(lambda a: np.asarray(a, np.float64), x)))
    given = {name: float(value) for name, value in means.items() if name not in SUMS}
    found = {**given, "objective": given["loss"] + penalty}  # and what there is of a certificate
    if any(own.gradient is None for own in said.values()):
        return EvaluationResult(found, "a site's policy keeps its gradient back")
    sums = _means(means, said, second_moments)
    found["kkt_residual"] = residual(psi, x, sums)
    dual = dual_point(psi, x, sums)
    if isinstance(dual, str):
        return EvaluationResult(found, dual)
    factors, conjugate_of_penalties = dual
    conjugates = ask_conjugates(factors)
    if set(conjugates) != set(said):
        return EvaluationResult(found, "a site did not answer the second question")
    conjugate = sum(w * conjugates[site] for w, site in zip(_weights(said), said, strict=True))
    found["duality_gap"] = found["objective"] + conjugate + conjugate_of_penalties
    return EvaluationResult(found, None)


def _means(means: Mapping[str, float], said: Mapping[str, Assessment], second: np.ndarray | None) -> Means:
    weights, gradients = _weights(said), [own.gradient for own in said.values()]
    gradient = jax.tree.map(lambda *parts: sum(w * g for w, g in zip(weights, parts, strict=True)), *gradients)
    kinds = {str(own.kind) for own in said.values()}
    strengths = {float(own.numbers.get("l2", math.nan)) for own in said.values()}
    if len(kinds) > 1 or not kinds <= {"logistic", "squares"} or len(strengths) > 1 or not set(SUMS) <= set(means):
        return Means(float(means["loss"]), gradient, None)
    sums = {name: float(means[name]) for name in SUMS}
    return Means(float(means["loss"]), gradient, kinds.pop(), **sums, second_moments=second)


def _weights(said: Mapping[str, Assessment]) -> list[float]:
    weights = [float(own.numbers[WEIGHT]) for own in said.values()]
    return [weight / sum(weights) for weight in weights]


def distance(row: Mapping[str, Any]) -> float:
    """Return how far from optimal an evaluation is: the duality gap relative to the objective, else the KKT residual."""
    gap = row.get("duality_gap", math.nan)
    if not math.isnan(gap):
        return max(gap, 0.0) / max(abs(row["objective"]), 1e-300)
    return row.get("kkt_residual", math.nan)


def in_words(row: Mapping[str, Any]) -> str:
    """Return the certificate of an evaluation as a sentence."""
    gap, rest = row.get("duality_gap", math.nan), row.get("kkt_residual", math.nan)
    if not math.isnan(gap):
        return f"duality gap {distance(row):.2g} of the objective, KKT residual {rest:.2g}"
    return "no certificate" if math.isnan(rest) else f"KKT residual {rest:.2g}"
