"""What honest sites say of a model is believed, whatever their data are; what contradicts itself is not."""

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

from fedlocal.flower.checks.assessment import Assessment, unlike_the_others
from fedlocal.flower.coordinator.certificate import SQUARED_SLOPE

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
        gradient = {"weights": features.T @ self.slopes / N + l2 * self.x["weights"]}
        gradient |= {"intercept": self.slopes.mean()} if intercept else {}
        self.said = Assessment(kind, {"loss": float(losses.mean() + penalty), "l2": l2}, gradient)


@over("kind", KINDS)
@over("l2", [0.0, 0.3])
@over("intercept", [True, False])
def test_honest_sites_are_believed(kind: str, l2: float, intercept: bool):
    for seed in range(60):
        rng = np.random.default_rng([1, seed])
        rows = Rows(kind, seed, float(10 ** rng.uniform(-3, 1)), l2, intercept)
        rows.said.check(rows.x, rows.second_moments)


@over("kind", KINDS)
@over("loss", [-1.0, 1e-9, 1e9])
def test_a_loss_that_contradicts_gradient_and_moments_is_not_believed(kind: str, loss: float):
    rows = Rows(kind, 3, 0.5, 0.0, True)
    said = Assessment(kind, {**rows.said.numbers, "loss": loss}, rows.said.gradient)
    possible = kind == "squares" and loss > 1  # targets may be large
    with nullcontext() if possible else pytest.raises(ValueError, match="its "):
        said.check(rows.x, rows.second_moments)


@over("kind", KINDS)
@over("part", ["weights", "intercept"])
def test_a_gradient_that_contradicts_the_loss_is_not_believed(kind: str, part: str):
    rows = Rows(kind, 3, 0.5, 0.0, True)
    said = Assessment(kind, rows.said.numbers, {**rows.said.gradient, part: rows.said.gradient[part] + 1e3})
    with pytest.raises(ValueError, match=r"its gradient is .* times as large as its loss and its moments allow"):
        said.check(rows.x, rows.second_moments)


@over("times", [-20.0, 20.0])
def test_loss_and_gradient_of_logistic_losses_differ_by_an_entropy(times: float):
    """Both may be possible alone: scores of 0.5 with slopes that all agree with them, or none."""
    rows = Rows("logistic", 3, 0.5, 0.0, False)
    wrong = times * rows.x["weights"] / np.sum(rows.x["weights"] ** 2) / 10
    said = Assessment("logistic", rows.said.numbers, {"weights": wrong})
    with pytest.raises(ValueError, match="an entropy, from 0 to log 2"):
        said.check(rows.x, None)


@over("kind", KINDS)
@over("l2", [0.0, 0.3])
@over("intercept", [True, False])
def test_honest_sites_agree_with_what_they_said_before(kind: str, l2: float, intercept: bool):
    for seed in range(20):
        rng = np.random.default_rng([2, seed])
        first, second = (Rows(kind, seed, float(10 ** rng.uniform(-3, 1)), l2, intercept) for _ in range(2))
        for moments in (first.second_moments, None):
            second.said.check_against(first.said, second.x, first.x, moments)
            first.said.check_against(second.said, first.x, second.x, moments)


@over("kind", KINDS)
def test_a_model_in_single_precision_may_be_rounded_in_another_way_here(kind: str):
    for seed in range(20):
        first, second = (Rows(kind, seed, scale, 0.1, True) for scale in (0.3, 0.3 * (1 + 1e-6)))
        x, z = ({name: np.float32(part) for name, part in rows.x.items()} for rows in (second, first))
        second.said.check_against(first.said, x, z, first.second_moments)


@over("kind", KINDS)
@over("change", [-1e-3, 1e-3])
def test_two_models_show_a_loss_that_is_a_little_false(kind: str, change: float):
    first, second = (Rows(kind, 5, scale, 0.1, True) for scale in (0.1, 0.1001))
    said = Assessment(kind, {**second.said.numbers, "loss": second.said.numbers["loss"] + change}, second.said.gradient)
    with pytest.raises(ValueError, match="not of the same data as at the model before"):
        said.check_against(first.said, second.x, first.x, first.second_moments)


@over("kind", KINDS)
def test_a_gradient_that_falls_along_the_way_is_not_that_of_a_convex_loss(kind: str):
    first, second = (Rows(kind, 5, scale, 0.0, False) for scale in (0.1, 0.2))
    d = second.x["weights"] - first.x["weights"]
    said = Assessment(kind, second.said.numbers, {"weights": first.said.gradient["weights"] - 0.01 * d})
    with pytest.raises(ValueError, match="not of the same data as at the model before"):
        said.check_against(first.said, second.x, first.x, first.second_moments)


def test_squared_slopes_are_at_most_so_much_of_logistic_losses():
    v = np.linspace(1e-6, 1 - 1e-12, 1_000_001)
    assert 0.9999 < np.max(v**2 / -np.log1p(-v)) / SQUARED_SLOPE <= 1


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
