"""What honest sites say of a model is believed, whatever their data are; what contradicts itself is not."""

from typing import Any

import numpy as np
import pytest

from fedlocal.flower.checks.assessment import Assessment, unlike_the_others

over = pytest.mark.parametrize
N, D = 30, 3
KINDS = ("logistic", "squares")


class Rows:
    """A site's rows and a model, with all that is said of them, in plain NumPy."""

    def __init__(self, kind: str, seed: int, size: float, l2: float, intercept: bool):
        rng = np.random.default_rng(seed)
        self.kind, features = kind, rng.standard_normal((N, D)) * rng.exponential(2.0, D)
        self.x: dict[str, Any] = {"weights": size * rng.standard_normal(D)}
        self.x |= {"intercept": np.asarray(size * rng.standard_normal())} if intercept else {}
        self.second_moments = np.mean(features**2, axis=0)
        self.labels = np.where(rng.random(N) < 0.5, 1.0, -1.0) if kind == "logistic" else 3 * rng.standard_normal(N)
        scores = features @ self.x["weights"] + self.x.get("intercept", 0.0)
        if kind == "logistic":
            losses, self.slopes = (
                np.logaddexp(0, -self.labels * scores),
                -self.labels / (1 + np.exp(self.labels * scores)),
            )
        else:
            losses, self.slopes = (scores - self.labels) ** 2, 2 * (scores - self.labels)
        penalty = l2 / 2 * np.sum(self.x["weights"] ** 2)
        sums = {"positive": np.maximum(self.slopes, 0).mean(), "squares": np.mean(self.slopes**2), "l2": l2}
        gradient = {"weights": features.T @ self.slopes / N + l2 * self.x["weights"]}
        gradient |= {"intercept": self.slopes.mean()} if intercept else {}
        self.said = Assessment(kind, {"loss": float(losses.mean() + penalty), **sums}, gradient)

    def conjugate(self, factors: dict[str, float]) -> float:
        """The mean of l^*(factor u - shift)."""
        v = np.where(self.slopes > 0, factors["positive"], factors["negative"]) * self.slopes - factors["shift"]
        if self.kind == "squares":
            return float(np.mean(v**2 / 4 + v * self.labels))
        p = -self.labels * v
        with np.errstate(divide="ignore", invalid="ignore"):
            return float(np.mean(np.nan_to_num(p * np.log(p)) + np.nan_to_num((1 - p) * np.log1p(-p))))


def _factors(kind: str, rng: np.random.Generator) -> dict[str, float]:
    if kind == "logistic":
        return {"positive": float(rng.random()), "negative": float(rng.random()), "shift": 0.0}
    scale = float(rng.random())
    return {"positive": scale, "negative": scale, "shift": float(rng.standard_normal())}


@over("kind", KINDS)
@over("l2", [0.0, 0.3])
@over("intercept", [True, False])
def test_honest_sites_are_believed(kind: str, l2: float, intercept: bool):
    for seed in range(60):
        rng = np.random.default_rng([1, seed])
        rows = Rows(kind, seed, float(10 ** rng.uniform(-3, 1)), l2, intercept)
        rows.said.check(rows.x, rows.second_moments)
        factors = _factors(kind, rng) if intercept else {"positive": 0.4, "negative": 0.4, "shift": 0.0}
        rows.said.check_conjugate(rows.x, rows.second_moments, factors, rows.conjugate(factors))


@over("kind", KINDS)
@over("times", [0.99, 1.01])
def test_with_slopes_as_they_are_the_conjugate_follows(kind: str, times: float):
    """Fenchel-Young holds with equality."""
    rows, one = Rows(kind, 3, 0.5, 0.1, True), {"positive": 1.0, "negative": 1.0, "shift": 0.0}
    rows.said.check_conjugate(rows.x, rows.second_moments, one, rows.conjugate(one))
    with pytest.raises(ValueError, match="its conjugate is"):
        rows.said.check_conjugate(rows.x, rows.second_moments, one, times * rows.conjugate(one))


@over(
    ("kind", "name", "value"),
    [
        *(
            (kind, *false)
            for kind in KINDS
            for false in [("loss", -1.0), ("loss", 1e9), ("squares", 1e9), ("squares", 0.0)]
        ),
        ("logistic", "positive", -1.0),
        ("logistic", "positive", 9e9),
    ],
)
def test_numbers_that_contradict_each_other_are_not_believed(kind: str, name: str, value: float):
    rows = Rows(kind, 3, 0.5, 0.0, True)
    said = Assessment(kind, {**rows.said.numbers, name: value}, rows.said.gradient)
    with pytest.raises(ValueError, match="its "):
        said.check(rows.x, rows.second_moments)


def _with_loss(loss: float, kind: str = "squares", **more: float) -> Assessment:
    return Assessment(kind, {"loss": loss, "l2": 0.0, **more}, {})


def test_one_site_unlike_the_others_is_found():
    others = {"a": _with_loss(1.0), "c": _with_loss(9.0)}
    assert unlike_the_others({**others, "b": _with_loss(50.0)}) == {}
    for other in (_with_loss(1e5), _with_loss(-1e5), _with_loss(1.0, "logistic"), _with_loss(1.0, l2=2.0)):
        assert list(unlike_the_others({**others, "b": other})) == ["b"]


def test_a_number_that_most_sites_give_is_missed():
    said = {site: _with_loss(1.0, accuracy=0.9) for site in "ac"}
    assert unlike_the_others({**said, "b": _with_loss(1.0)}) == {"b": "it gives no accuracy, which most sites give"}
    assert unlike_the_others({"a": said["a"], "b": _with_loss(1.0)}) == {}


def test_of_two_sites_that_differ_none_is_blamed():
    assert unlike_the_others({"a": _with_loss(1.0), "b": _with_loss(1.0, "logistic")}) == {}
