"""Losses of scores: derivatives are those of the value, conjugates are maxima, bounds hold, NumPy and JAX agree."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

from fedlocal.losses import (
    LOSSES,
    HuberLoss,
    LogisticLoss,
    SmoothedQuantileLoss,
    SoftmaxLoss,
    SquaredLoss,
    UnivariateLoss,
    regression_loss,
)

ALL = {
    "squares": SquaredLoss(),
    "half_squares": SquaredLoss(0.5),
    "huber": HuberLoss(),
    "huber of another size": HuberLoss(0.4),
    "smoothed quantile": SmoothedQuantileLoss(0.2, 0.5),
    "logistic": LogisticLoss(),
    "softmax": SoftmaxLoss(4),
}
UNIVARIATE = {name: loss for name, loss in ALL.items() if isinstance(loss, UnivariateLoss)}
EXAMPLES = 40
over_all = pytest.mark.parametrize("loss", ALL.values(), ids=ALL)
over_univariate = pytest.mark.parametrize("loss", UNIVARIATE.values(), ids=UNIVARIATE)


def examples(loss, size=3.0):
    """Scores and targets in NumPy."""
    rng = np.random.default_rng(0)
    scores = size * rng.normal(size=(EXAMPLES, loss.outputs) if loss.outputs > 1 else EXAMPLES)
    targets = {
        "numbers": rng.normal(size=EXAMPLES),
        "signs": np.where(rng.random(EXAMPLES) < 0.5, -1.0, 1.0),
        "classes": rng.integers(0, loss.outputs, EXAMPLES),
    }
    return scores, targets[loss.targets]


def along(loss, scores, targets, directions, order):
    """(n,) derivatives of this order of t -> l(s + t v) at 0, by differentiating the value."""

    def one(s, b, v):
        fn = lambda t: loss.value((s + t * v)[None], b[None])[0]  # noqa: E731
        for _ in range(order):
            fn = jax.grad(fn)
        return fn(0.0)

    with jax.enable_x64(True):
        return np.asarray(jax.jit(jax.vmap(one))(*map(jnp.asarray, (scores, targets, directions))))


def directions(loss):
    v = np.random.default_rng(1).normal(size=(EXAMPLES, loss.outputs))
    v /= np.linalg.norm(v, axis=1, keepdims=True)
    return v if loss.outputs > 1 else np.ones(EXAMPLES)


def hessians(loss, scores, targets):
    """(n, outputs, outputs)"""
    each = range(loss.outputs)
    return np.stack([np.stack([loss.curvature(scores, targets, c, e) for e in each], axis=1) for c in each], axis=1)


def test_the_table_has_every_loss_of_this_file():
    assert set(LOSSES) <= set(ALL)  # others have another parameter than the usual one
    assert all(LOSSES[name]() == loss for name, loss in UNIVARIATE.items() if name in LOSSES)
    assert LOSSES["softmax"](4) == ALL["softmax"]


@over_all
def test_slopes_are_derivatives_of_the_value(loss):
    scores, targets = examples(loss)
    v = directions(loss)
    products = loss.slope(scores, targets) * v
    found = products if loss.outputs == 1 else products.sum(axis=1)
    np.testing.assert_allclose(found, along(loss, scores, targets, v, 1), rtol=1e-12, atol=1e-14)


@over_all
def test_curvatures_are_second_derivatives_of_the_value(loss):
    scores, targets = examples(loss)
    v = directions(loss).reshape(EXAMPLES, -1)
    found = np.einsum("ic,ice,ie->i", v, hessians(loss, scores, targets), v)
    want = along(loss, scores, targets, directions(loss), 2)
    np.testing.assert_allclose(found, want, rtol=1e-11, atol=1e-14)


@over_all
def test_the_mean_curvature_is_the_weighted_sum(loss):
    scores, targets = examples(loss)
    weights = np.random.default_rng(2).random(EXAMPLES)
    want = np.einsum("i,ice->ce", weights, hessians(loss, scores, targets))
    np.testing.assert_allclose(loss.mean_curvature(scores, targets, weights), want, rtol=1e-12, atol=1e-13)


@over_univariate
def test_third_derivatives_are_those_of_the_value(loss):
    scores, targets = examples(loss)
    want = along(loss, scores, targets, np.ones(EXAMPLES), 3)
    np.testing.assert_allclose(loss.third(scores, targets), want, rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(loss.third_size(scores, targets), np.abs(want), rtol=1e-10, atol=1e-14)


@over_all
def test_bounds_of_derivatives_hold_and_those_of_curvature_are_attained(loss):
    scores, targets = examples(loss)
    third = np.abs(along(loss, scores, targets, directions(loss), 3))
    assert (third <= loss.third_size(scores, targets) + 1e-14).all()
    assert (loss.third_size(scores, targets) <= loss.third_bound + 1e-15).all()
    tops = np.linalg.eigvalsh(hessians(loss, scores, targets))[:, -1]
    assert (tops <= loss.curvature_bound + 1e-14).all()
    assert all(
        (loss.curvature(scores, targets, c, c) <= loss.diagonal_bound + 1e-14).all() for c in range(loss.outputs)
    )
    slopes = np.linalg.norm(loss.slope(100 * scores, targets).reshape(EXAMPLES, -1), axis=1)
    assert loss.slope_bound is None or (slopes.max() > 0.99 * loss.slope_bound and slopes.max() <= loss.slope_bound)
    even = np.zeros((1, 4)) if loss.outputs > 1 else np.zeros(1)
    if loss.outputs > 1:
        even[0, 2:] = -800.0  # two classes with probability 1/2 have the largest curvature
    if loss.targets == "numbers":
        even = targets[:1]  # and a residual of zero
    own = targets[:1] if loss.targets != "classes" else np.zeros(1, int)
    assert np.linalg.eigvalsh(hessians(loss, even, own))[0, -1] == pytest.approx(loss.curvature_bound, rel=1e-12)
    assert loss.curvature(even, own)[0] == pytest.approx(loss.diagonal_bound, rel=1e-12)


def test_the_bounds_of_third_derivatives_are_attained():
    scores = np.linspace(-3, 3, 100_001)
    assert LogisticLoss().third_size(scores, np.ones_like(scores)).max() == pytest.approx(LogisticLoss().third_bound)
    p = (1 + 1 / math.sqrt(3)) / 2  # softmax: two classes, along their difference
    score = np.array([[math.log(p / (1 - p)), 0.0, -800.0, -800.0]])
    v = np.array([[1.0, -1.0, 0.0, 0.0]]) / math.sqrt(2)
    found = abs(along(ALL["softmax"], score, np.array([0]), v, 3)[0])
    assert found == pytest.approx(ALL["softmax"].third_bound, rel=1e-9)


@over_all
def test_majorizers_touch_the_loss_and_are_nowhere_below(loss):
    scores, targets = examples(loss)
    each = range(loss.outputs)
    bends = np.stack([np.stack([loss.majorizer_curvature(scores, targets, c, e) for e in each], 1) for c in each], 1)
    slopes = loss.slope(scores, targets).reshape(EXAMPLES, -1)
    for size in (1e-2, 1.0, 10.0):
        step = size * np.random.default_rng(3).normal(size=slopes.shape)
        parabola = np.sum(slopes * step, 1) + np.einsum("ic,ice,ie->i", step, bends, step) / 2
        moved = loss.value(scores + step.reshape(scores.shape), targets) - loss.value(scores, targets)
        assert (moved <= parabola + 1e-12 * (1 + np.abs(parabola))).all()


@over_all
def test_conjugates_satisfy_fenchel_and_young(loss):
    scores, targets = examples(loss)
    others, _ = examples(loss, size=1.5)
    u = loss.slope(others, targets)

    def product(s):
        return u * s if loss.outputs == 1 else np.sum(u * s, axis=1)

    young = loss.value(scores, targets) + loss.conjugate(u, targets) - product(scores)
    assert (young >= -1e-12).all()
    equal = loss.value(others, targets) + loss.conjugate(u, targets) - product(others)
    np.testing.assert_allclose(equal, 0, atol=1e-12)


@over_all
def test_conjugates_are_maxima(loss):
    scores, targets = examples(loss, size=1.0)
    u = 0.7 * loss.slope(scores, targets)
    found = loss.conjugate(u, targets)
    for i in range(8):
        fn = lambda s: float(loss.value(s[None] if loss.outputs > 1 else s, targets[i : i + 1])[0] - np.sum(u[i] * s))  # noqa: B023, E731
        best = scipy.optimize.minimize(fn, np.zeros(loss.outputs), method="BFGS", options={"gtol": 1e-9})
        assert found[i] == pytest.approx(-best.fun, rel=1e-6, abs=1e-8)


def test_conjugates_are_infinite_outside_their_domain():
    slopes, targets = np.array([-1.5, -1.0, -0.5, 0.0, 0.1]), np.ones(5)
    want = [math.inf, 0.0, -math.log(2), 0.0, math.inf]
    np.testing.assert_allclose(LogisticLoss().conjugate(slopes, targets), want)
    np.testing.assert_allclose(HuberLoss(1.2).conjugate(slopes, targets), [math.inf, -0.5, -0.375, 0.0, 0.105])
    slopes = np.array([[-1.0, 1.0], [-0.5, 0.5], [0.5, -0.5], [-0.5, 0.4]])  # the last is not of the simplex minus e_b
    want = [0.0, -math.log(2), math.inf, math.inf]
    np.testing.assert_allclose(SoftmaxLoss(2).conjugate(slopes, np.zeros(4, int)), want)


@over_all
def test_extreme_scores_give_numbers(loss):
    scores, targets = examples(loss, size=1e4)
    for found in (loss.value, loss.slope, loss.curvature, loss.third_size, loss.majorizer_curvature):
        with np.errstate(all="raise", under="ignore"):
            assert np.isfinite(found(scores, targets)).all()
    assert np.isfinite(loss.conjugate(loss.slope(scores, targets), targets)).all()
    if loss.targets == "signs":  # -b s where the label is wrong, and exp(-b s) where it is right
        np.testing.assert_allclose(loss.value(np.array([-1e4, 1e4, 40.0]), np.ones(3)), [1e4, 0.0, math.exp(-40)])


def test_two_classes_of_softmax_are_the_logistic_loss():
    scores, signs = examples(LogisticLoss())
    both, labels = np.stack([np.zeros_like(scores), scores], axis=1), (signs > 0).astype(int)
    np.testing.assert_allclose(SoftmaxLoss(2).value(both, labels), LogisticLoss().value(scores, signs), rtol=1e-12)
    np.testing.assert_allclose(
        SoftmaxLoss(2).slope(both, labels)[:, 1], LogisticLoss().slope(scores, signs), atol=1e-15
    )


@over_all
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_numpy_and_jax_agree(loss, dtype):
    scores, targets = examples(loss)
    scores = scores.astype(dtype)
    targets = targets if loss.targets == "classes" else targets.astype(dtype)
    weights = np.full(EXAMPLES, 1 / EXAMPLES, dtype)
    names = ["value", "slope", "curvature", "third_size", "majorizer_curvature", "conjugate", "mean_curvature"]
    with jax.enable_x64(dtype == np.float64):
        for name in names:
            fn = getattr(loss, name)
            first = 0.7 * loss.slope(scores, targets) if name == "conjugate" else scores
            rest = (targets, weights) if name == "mean_curvature" else (targets,)
            ours, theirs = fn(first, *rest), jax.jit(fn)(jnp.asarray(first), *map(jnp.asarray, rest))
            assert isinstance(ours, np.ndarray), name
            assert isinstance(theirs, jax.Array), name
            assert ours.dtype == theirs.dtype == dtype, name
            tolerance = 64 * np.finfo(dtype).eps
            np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance, err_msg=name)


def test_regression_losses_by_name():
    assert regression_loss("model", "squares") == SquaredLoss(1.0)
    assert regression_loss("model", SquaredLoss(3.0)) == SquaredLoss(3.0)
    for wrong in ("logistic", "nothing", LogisticLoss(), 3.0):
        with pytest.raises(ValueError, match="model: loss must be one of 'squares', 'half_squares'"):
            regression_loss("model", wrong)
