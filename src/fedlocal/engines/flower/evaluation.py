"""Evaluation: loss, objective and certificate of a run's model, from what sites say of it."""

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from flwr.app import Message

from fedlocal import wire
from fedlocal.core import Params, Regularizer
from fedlocal.engines.flower import records
from fedlocal.engines.flower.certificate import DualPoint, Means, dual_point, residual
from fedlocal.engines.flower.records import WEIGHT
from fedlocal.regularizers import Zero

SUMS = ("positive", "squares", "l2")
log = logging.getLogger("fedlocal")
AskConjugates = Callable[[dict[str, float]], dict[str, float] | None]  # factors -> a mean conjugate per site


@dataclass(frozen=True)
class Measured:
    """An evaluation, one row of the history."""

    numbers: dict[str, float]  # means over sites
    no_gap_because: str | None


def measure(
    psi: Regularizer | None,
    x: Params,
    means: Mapping[str, float],
    replies: Mapping[str, Message],
    second_moments: np.ndarray | None,
    ask_conjugates: AskConjugates,
) -> Measured:
    """Loss, objective, KKT residual and duality gap; the last two as far as the sites gave what they need."""
    psi = Zero() if psi is None else psi
    with jax.enable_x64(True):
        penalty = float(psi.value(jax.tree.map(lambda a: np.asarray(a, np.float64), x)))
    given = {name: float(value) for name, value in means.items() if name not in SUMS}
    found = {**given, "objective": given["loss"] + penalty}  # and what there is of a certificate
    if not all(reply.content.array_records for reply in replies.values()):
        return Measured(found, "a site's policy keeps its gradient back")
    sums = _means(x, means, replies, second_moments)
    found["kkt_residual"] = residual(psi, x, sums)
    dual = dual_point(psi, x, sums)
    if isinstance(dual, str):
        return Measured(found, dual)
    conjugates = ask_conjugates(dual.factors)
    if conjugates is None or set(conjugates) != set(replies):
        return Measured(found, "a site did not answer the second question")
    found["duality_gap"] = _gap(found["objective"], dual, conjugates, replies)
    return Measured(found, None)


def _means(x: Params, means: Mapping[str, float], replies: Mapping[str, Message], second: np.ndarray | None) -> Means:
    weights = _weights(replies)
    gradients = [gradient_of(reply, x) for reply in replies.values()]
    gradient = jax.tree.map(lambda *parts: sum(w * g for w, g in zip(weights, parts, strict=True)), *gradients)
    kinds = {str(records.only_config(reply.content).get("kind")) for reply in replies.values()}
    strengths = {float(records.only_metrics(reply.content).get("l2", math.nan)) for reply in replies.values()}
    if len(kinds) > 1 or not kinds <= {"logistic", "squares"} or len(strengths) > 1 or not set(SUMS) <= set(means):
        return Means(float(means["loss"]), gradient, None)
    sums = {name: float(means[name]) for name in SUMS}
    return Means(float(means["loss"]), gradient, kinds.pop(), **sums, second_moments=second)


def gradient_of(reply: Message, x: Params) -> Any:
    """The gradient in a reply, of the form of the model and in float64."""
    like = jax.tree.map(lambda a: np.zeros(np.shape(a)), x)
    gradient = wire.from_arrays(records.only_arrays(reply.content), like)
    if not all(np.isfinite(a).all() for a in jax.tree.leaves(gradient)):
        raise ValueError("its gradient is not finite")
    return gradient


def _gap(objective: float, dual: DualPoint, conjugates: Mapping[str, float], replies: Mapping[str, Message]) -> float:
    weights = _weights(replies)
    conjugate = sum(w * conjugates[site] for w, site in zip(weights, replies, strict=True))
    return objective + conjugate + dual.conjugate


def _weights(replies: Mapping[str, Message]) -> list[float]:
    weights = [float(records.only_metrics(reply.content)[WEIGHT]) for reply in replies.values()]
    return [weight / sum(weights) for weight in weights]


def distance(row: Mapping[str, Any]) -> float:
    """How far from optimal an evaluation is: the duality gap relative to the objective, else the KKT residual."""
    gap = row.get("duality_gap", math.nan)
    if not math.isnan(gap):
        return max(gap, 0.0) / max(abs(row["objective"]), 1e-300)
    return row.get("kkt_residual", math.nan)


def in_words(row: Mapping[str, Any]) -> str:
    """The certificate of an evaluation."""
    gap, rest = row.get("duality_gap", math.nan), row.get("kkt_residual", math.nan)
    if not math.isnan(gap):
        return f"duality gap {distance(row):.2g} of the objective, KKT residual {rest:.2g}"
    return "no certificate" if math.isnan(rest) else f"KKT residual {rest:.2g}"
