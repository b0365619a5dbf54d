r"""Assessment: what a site says of the model, and the relations that it must fulfil.

Loss and gradient of one site hang together, whatever its data are. For scores s_i and slopes u_i = l_i'(s_i) of its rows, with
means over them and without the l2 penalty:
    |grad F|_j <= sqrt(mean u^2 mean a_j^2),   |mean u| <= sqrt(mean u^2),
    logistic: l_i = -log(1 - |u_i|), so that mean u^2 <= 0.4073 mean l;   squares: mean u^2 = 4 mean l,
    logistic: log(1 + exp(-mean |s|)) <= mean l <= log 2 + mean |s|, the former by Jensen's inequality,
    mean s^2 <= (|intercept| + sum_j |w_j| sqrt(mean a_j^2))^2,
and by Fenchel and Young mean l^*(u) = mean u s - mean l, where mean u s = <x, grad F>; for logistic losses -l^* is an entropy.
What it says of two models x and z hangs together, too, with the largest curvature L of l (1/4, 2) and d = x - z:
    0 <= F(x) - F(z) - <grad F(z), d> <= L/2 mean (a'd)^2,   also with x and z exchanged.
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from flwr.app import Message

from fedlocal.core import Params
from fedlocal.flower.coordinator.certificate import SQUARED_SLOPE
from fedlocal.flower.messages import records
from fedlocal.util import serialization

ROUNDING = 1e-6
EXACT = 1e-10  # between a site's own numbers, which are in float64, if the model is, too
LARGEST_CURVATURE = {"logistic": 0.25, "squares": 2.0}  # of a row's loss as a function of its score
BEYOND = 1000.0  # a loss as a multiple of the median of the other sites', where nothing else bounds it


@dataclass(frozen=True)
class Assessment:
    """What one site says of a linear model."""

    kind: str | None  # of its losses; None where it gives no gradient
    numbers: Mapping[str, float]
    gradient: Any  # None where the site gives none

    @classmethod
    def read(cls, reply: Message, x: Params) -> "Assessment":
        """Read a reply about the model x; raise ValueError if it is wrong."""
        numbers = records.only_metrics(reply.content)
        if not reply.content.array_records:
            return cls(None, numbers, None)
        kind = str(records.only_config(reply.content).get("kind"))
        like = jax.tree.map(lambda a: np.zeros(np.shape(a)), x)  # the shapes of the model, in float64
        gradient = serialization.from_arrays(records.only_arrays(reply.content), like)
        if not all(np.isfinite(a).all() for a in jax.tree.leaves(gradient)):
            raise ValueError("its gradient is not finite")
        if "l2" not in numbers and kind in ("logistic", "squares"):
            raise ValueError("it gives no l2")
        return cls(kind, numbers, gradient)

    def check(self, x: Params, second_moments: np.ndarray | None) -> None:
        """Raise ValueError if the numbers cannot be true of the site's data, whatever they are."""
        if not self._is_linear(x):
            return
        loss, size = self._loss(x), score_bound(x, second_moments)
        logistic = self.kind == "logistic"
        least, most = (float(np.logaddexp(0, -size)), math.log(2) + size) if logistic else (0.0, math.inf)
        if not least - ROUNDING <= loss <= most * (1 + ROUNDING):
            raise ValueError(f"its loss is {loss:.6g}, and its moments allow for {least:.3g} to {most:.3g}")
        largest = math.sqrt((SQUARED_SLOPE if logistic else 4.0) * max(loss, 0.0))  # root of the mean squared slope
        slopes = [abs(float(self.gradient["intercept"]))] if "intercept" in self.gradient else []
        if second_moments is not None:
            slopes.extend(np.abs(self._slopes_by_column(x)) / np.maximum(np.sqrt(second_moments), ROUNDING))
        times = max(slopes, default=0.0) / (largest * (1 + ROUNDING) + ROUNDING)
        if times > 1:
            raise ValueError(f"its gradient is {times:.3g} times as large as its loss and its moments allow")
        if logistic:
            product = self._derivative({name: np.asarray(part, np.float64) for name, part in x.items()}, x)
            slack = ROUNDING * (1 + loss + abs(product))
            if not -slack <= loss - product <= math.log(2) + slack:
                raise ValueError(f"its loss less <x, gradient> is {loss - product:.6g}, an entropy, from 0 to log 2")

    def check_against(self, before: "Assessment", x: Any, z: Any, second_moments: np.ndarray | None) -> None:
        """Raise ValueError if this, of the model x, cannot be of the same data as what was said before, of the model z."""
        if not self._is_linear(x) or (before.kind, before.numbers["l2"]) != (self.kind, self.numbers["l2"]):
            return
        d = {name: np.asarray(x[name], np.float64) - np.asarray(z[name], np.float64) for name in x}
        slopes = [said._derivative(d, at) for said, at in ((before, z), (self, x))]
        risen = self._loss(x) - before._loss(z)
        bends = (risen - slopes[0], slopes[1] - risen)
        most = LARGEST_CURVATURE[str(self.kind)] / 2 * score_bound(d, second_moments) ** 2
        rounding = EXACT if np.asarray(x["weights"]).dtype == np.float64 else ROUNDING
        slack = rounding * (1 + abs(self.numbers["loss"]) + abs(before.numbers["loss"]) + sum(map(abs, slopes)))
        if min(bends) < -slack or max(bends) > most + slack:
            why = f"{min(bends):.3g} and {max(bends):.3g} instead of 0 to {most:.3g}"
            raise ValueError(f"its loss and gradient are not of the same data as at the model before (curvature {why})")

    def _derivative(self, d: Any, x: Any) -> float:
        """<d, grad F(x)>, without the l2 penalty."""
        along = float(self._slopes_by_column(x) @ d["weights"])
        return along + float(self.gradient.get("intercept", 0.0)) * float(d.get("intercept", 0.0))

    def _is_linear(self, x: Any) -> bool:
        return self.kind in ("logistic", "squares") and isinstance(x, Mapping) and np.ndim(x["weights"]) == 1

    def _loss(self, x: Any) -> float:
        """Without the l2 penalty."""
        return self.numbers["loss"] - self.numbers["l2"] / 2 * float(np.sum(np.asarray(x["weights"], np.float64) ** 2))

    def _slopes_by_column(self, x: Any) -> np.ndarray:
        """mean u a_j: the gradient without the l2 penalty."""
        return self.gradient["weights"] - self.numbers["l2"] * np.asarray(x["weights"], np.float64)


def score_bound(x: Any, second_moments: np.ndarray | None) -> float:
    """Return an upper bound of the root of the mean squared score of a linear model."""
    if second_moments is None:
        return math.inf
    sizes = np.abs(np.asarray(x["weights"], np.float64)) @ np.sqrt(second_moments)
    return float(sizes) + abs(float(x.get("intercept", 0.0)))


def unlike_the_others(assessed: Mapping[str, Assessment]) -> dict[str, str]:
    """Return the sites whose loss is of another kind than most sites', or beyond comparison, and why."""
    wrong: dict[str, str] = {}
    kinds = {site: (own.kind, own.numbers.get("l2")) for site, own in assessed.items() if own.kind is not None}
    counts = Counter(name for own in assessed.values() for name in own.numbers if name != "l2")
    usual, count = Counter(kinds.values()).most_common(1)[0] if kinds else ((None, None), 0)
    for site, own in assessed.items():
        kind, loss = kinds.get(site, usual), own.numbers["loss"]
        others = [abs(other.numbers["loss"]) for name, other in assessed.items() if name != site]
        missing = sorted(n for n, given in counts.items() if 2 * given > len(assessed) and n not in own.numbers)
        if 2 * count > len(kinds) and kind != usual:
            wrong[site] = "its loss is of kind {!r} with l2 = {}; most have {!r} with l2 = {}".format(*kind, *usual)
        elif missing:
            wrong[site] = f"it gives no {missing[0]}, which most sites give"
        elif others and abs(loss) > BEYOND * max(float(np.median(others)), ROUNDING):
            wrong[site] = f"its loss is {loss:.6g}; the median of the other sites' is {np.median(others):.6g}"
    return wrong
