r"""Assessment: what a site says of the model, and the relations that it must fulfil.

Loss, gradient, slopes and conjugates of one site hang together, whatever its data are. For scores s_i and slopes u_i = l_i'(s_i)
of its rows, with means over them and without the l2 penalty:
    mean u_i s_i = <x, grad F>,   |grad F|_j <= sqrt(mean u^2 mean a_j^2),   mean |u| <= sqrt(mean u^2),
    logistic: l_i = -log(1 - |u_i|), so that mean u^2 <= mean |u| <= mean l <= log 2 + mean |s|;   squares: u_i^2 = 4 l_i,
    and log(1 + exp(-mean |s|)) <= mean l by Jensen's inequality,
    mean s^2 <= (|intercept| + sum_j |w_j| sqrt(mean a_j^2))^2,
and for the conjugates Fenchel-Young: c u s - l <= l^*(c u) <= c l^*(u) = c (u s - l) for 0 <= c <= 1, since l^*(0) = 0.
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
from fedlocal.flower.messages import records
from fedlocal.util import serialization

SUMS = ("positive", "squares", "l2")  # of the slopes, for a duality gap
ROUNDING = 1e-6
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
        missing = [name for name in SUMS if name not in numbers]
        if missing and kind in ("logistic", "squares"):
            raise ValueError(f"it gives no {missing[0]}")
        return cls(kind, numbers, gradient)

    def check(self, x: Params, second_moments: np.ndarray | None) -> None:
        """Raise ValueError if the numbers cannot be true of the site's data, whatever they are."""
        if not self._is_linear(x):
            return
        loss, squares, size = self._loss(x), self.numbers["squares"], score_bound(x, second_moments)
        most = math.log(2) + size if self.kind == "logistic" else math.inf
        if not -ROUNDING <= loss <= most * (1 + ROUNDING):
            raise ValueError(f"its loss is {loss:.6g}, and its moments allow for {most:.3g}")
        wanted = (0.0, min(1.0, loss)) if self.kind == "logistic" else (4 * loss, 4 * loss)
        _check_inside("squares", squares, *wanted, size=4 * loss)
        largest = math.sqrt(max(squares, 0.0))
        if self.kind == "logistic":  # of squares it is not given
            mean = float(self.gradient["intercept"]) if "intercept" in self.gradient else None
            low, high = (0.0, largest) if mean is None else (max(0.0, mean), (largest + mean) / 2)
            _check_inside("positive", self.numbers["positive"], low, high, largest)
        if second_moments is not None:
            times = np.abs(self._slopes_by_column(x)) / (largest * np.sqrt(second_moments) * (1 + ROUNDING) + ROUNDING)
            if times.max(initial=0.0) > 1:
                raise ValueError(f"its gradient is {times.max():.3g} times as large as squares and its moments allow")
        least = float(np.logaddexp(0, -size)) if self.kind == "logistic" else 0.0
        if loss < least - ROUNDING:
            raise ValueError(f"its loss is {loss:.6g}, and its moments allow for {least:.3g} or more")

    def check_conjugate(
        self, x: Params, second_moments: np.ndarray | None, factors: Mapping[str, float], conjugate: float
    ) -> None:
        """Raise ValueError if the mean conjugate contradicts the loss and the gradient."""
        if not self._is_linear(x):
            return
        loss, size = self._loss(x), score_bound(x, second_moments)
        product = float(self._slopes_by_column(x) @ np.asarray(x["weights"], np.float64))
        product += float(self.gradient.get("intercept", 0.0)) * float(x.get("intercept", 0.0))
        small, large = sorted((factors["positive"], factors["negative"]))
        if self.kind == "logistic":
            apart = (large - small) * math.sqrt(max(self.numbers["squares"], 0.0))
            low = small * product - (apart * size if apart else 0.0) - loss
            high = small * (product - loss)
        else:  # mean of v^2 / 4 + v y for v = c u - shift, y = s - u / 2; only the mean score is unknown
            shift, mean = factors["shift"], float(self.gradient.get("intercept", 0.0))
            squares = small**2 * loss - small * shift * mean / 2 + shift**2 / 4
            known = squares + small * (product - 2 * loss) + shift * mean / 2
            unknown = abs(shift) * size if shift else 0.0
            low, high = known - unknown, known + unknown
        _check_inside("conjugate", conjugate, low, high, abs(loss) + abs(product))

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
    counts = Counter(name for own in assessed.values() for name in own.numbers if name not in SUMS)
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


def _check_inside(name: str, value: float, low: float, high: float, size: float) -> None:
    """`size` is that of the terms which the bounds are made of: their rounding errors are relative to it."""
    slack = ROUNDING * (1 + abs(size))
    if not low - slack <= value <= high + slack:
        raise ValueError(f"its {name} is {value:.6g}; from {low:.6g} to {high:.6g} agrees with its other numbers")
