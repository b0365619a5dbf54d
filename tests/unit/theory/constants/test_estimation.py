"""Constants of a problem against dense eigen-decompositions, and bounds against what random points show."""

import dataclasses
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from jax.flatten_util import ravel_pytree

import fedlocal as fl
from fedlocal.theory.constants.client_groups import batch_moments, fourth_moment
from fedlocal.theory.constants.estimation import LETTERS, Estimate, estimate, sampled_constants
from fedlocal.theory.constants.linear import linear_bounds, linear_constants
from fedlocal.theory.constants.linear_model import LinearModel, krylov_top
from fedlocal.theory.constants.types import EstimationTask, ProblemConstants, Region

SIZES = (7, 4, 9)
CUTS = (7, 11)  # where the examples of the second and third client begin
FEATURES, CLASSES = 3, 3
MOST_OFTEN_LOGISTIC = [
    "Logistic",
    *(pytest.param(kind, marks=pytest.mark.thorough) for kind in ("Softmax", "LeastSquares")),
]


def clients(kind: str, scale: float = 1.0) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(1)
    made = []
    for m, n in enumerate(SIZES):
        X = rng.standard_normal((n, FEATURES)) * (1 + m) + 0.3 * m
        labels = {
            "Logistic": np.where(rng.random(n) < 0.5, -1.0, 1.0),
            "Softmax": rng.integers(0, CLASSES, n),
            "LeastSquares": rng.standard_normal(n) + m,
        }
        made.append((scale * X, labels[kind]))
    return made


def problem_of(kind: str, l2: float = 0.1, intercept: bool = True, sparse: bool = False, scale: float = 1.0) -> Any:
    made: list[Any] = clients(kind, scale)
    if sparse:
        made = [(scipy.sparse.csr_array(X), b) for X, b in made]
    data = fl.FederatedData.from_clients(made)
    more: dict[str, Any] = {"num_classes": CLASSES} if kind == "Softmax" else {}
    return getattr(fl.problems, kind)(data, l2=l2, intercept=intercept, **more)


def losses(problem: Any) -> Any:
    """(v) -> (n,) losses of all examples without the penalty, v all parameters as one vector: from the definitions."""
    _, unravel = ravel_pytree(problem.init(jax.random.key(0)))
    return lambda v: problem.losses(unravel(v), problem.data.take(jnp.arange(problem.data.num_examples)))


@cache
def derivatives_of(kind: str, intercept: bool) -> tuple[Any, Any]:
    each = losses(problem_of(kind, intercept=intercept))

    def hessians(v: jax.Array) -> jax.Array:
        return jax.hessian(lambda v: jnp.stack([jnp.mean(part) for part in jnp.split(each(v), CUTS)]))(v)

    return jax.jit(jax.jacobian(each)), jax.jit(hessians)


class Truth:
    """Gradients and Hessians of `problem_of` at a point, all dense."""

    def __init__(self, kind: str, l2: float = 0.1, intercept: bool = True):
        self._gradients, self._hessians = derivatives_of(kind, intercept)
        first = problem_of(kind, intercept=intercept).init(jax.random.key(0))
        self.penalized = flat({name: jnp.full_like(a, name == "weights") for name, a in first.items()})
        self.l2 = l2

    def gradients(self, v: np.ndarray) -> list[np.ndarray]:
        """Of all examples, client by client."""
        return np.split(np.asarray(self._gradients(v)) + self.l2 * self.penalized * v, CUTS)

    def hessians(self, v: np.ndarray) -> np.ndarray:
        return np.asarray(self._hessians(v)) + self.l2 * np.diag(self.penalized)

    def at(self, v: np.ndarray) -> dict[str, Any]:
        per_client = self.gradients(v)
        means = np.stack([g.mean(axis=0) for g in per_client])
        spreads = [np.linalg.norm(g - g.mean(axis=0), axis=1) for g in per_client]
        return {
            "smoothness": max(np.linalg.norm(h, 2) for h in self.hessians(v)),
            "noise": max(np.sqrt(np.mean(s**2)) for s in spreads),
            "fourth_moment": max(np.mean(s**4) ** 0.25 for s in spreads),
            "heterogeneity": float(np.linalg.norm(means - means.mean(axis=0), axis=1).max()),
            "gradient_bound": max(np.linalg.norm(g, axis=1).max() for g in per_client),
        }

    def third(self, v: np.ndarray, z: np.ndarray) -> Any:
        apart = np.linalg.norm(v - z)
        return max(np.linalg.norm(h, 2) for h in self.hessians(v) - self.hessians(z)) / apart


def flat(x: Any) -> np.ndarray:
    return np.asarray(ravel_pytree(jax.tree.map(jnp.asarray, x))[0])


def task_of(problem: Any, start: Any, end: Any, radius: float = 5.0) -> EstimationTask:
    """The task of `estimate`, around any point instead of x*, which a solver would have to find."""
    path = [jax.tree.map(lambda a, b, t=t: (1 - t) * a + t * b, start, end) for t in np.linspace(0, 1, 5)]
    p = np.full(problem.num_clients, 1 / problem.num_clients)
    return EstimationTask(problem, p, Region(end, radius, np.inf), path, 1, np.random.default_rng(0))


def task_somewhere(problem: Any) -> EstimationTask:
    first = problem.init(jax.random.key(0))
    return task_of(problem, jax.tree.map(lambda a: a + 0.5, first), jax.tree.map(lambda a: a - 0.3, first))


def in_ball(region: Region, rng: np.random.Generator) -> np.ndarray:
    center = flat(region.solution)
    step = rng.standard_normal(center.size)
    return center + region.radius * rng.choice([0.0, 0.1, 0.7, 1.0]) * step / np.linalg.norm(step)


@pytest.mark.parametrize("intercept", [True, pytest.param(False, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("kind", ["Logistic", "Softmax", "LeastSquares"])
def test_bounds_are_never_exceeded_and_local_values_not_above_them(kind: str, intercept: bool):
    task = task_somewhere(problem_of(kind, intercept=intercept))
    found, truth, rng = linear_constants(task), Truth(kind, intercept=intercept), np.random.default_rng(2)
    assert all(each.certified for each in found.found.values())
    bounds: dict[str, Any] = {name: each.value for name, each in found.found.items()}
    local: dict[str, Any] = found.local
    for _ in range(60):
        v = in_ball(task.region, rng)
        seen = truth.at(v) | {"third_order": truth.third(v, v + 0.1 * rng.standard_normal(v.size))}
        for name, value in seen.items():
            assert value <= bounds[name] * (1 + 1e-9) + 1e-9, name
    for name in ("smoothness", "noise", "fourth_moment", "heterogeneity", "third_order", "gradient_bound"):
        assert local[name] <= bounds[name] * (1 + 1e-9), name
    assert local["strong_convexity"] >= bounds["strong_convexity"] * (1 - 1e-9)


@pytest.mark.parametrize("kind", ["Logistic", "Softmax"])
def test_bounds_of_bounded_slopes_hold_far_away_too(kind: str):
    """At huge scores slopes are 0 or 1, where variance and heterogeneity come near their bounds."""
    problem = problem_of(kind, l2=0.0)
    x, truth, rng = problem.init(jax.random.key(0)), Truth(kind, l2=0.0), np.random.default_rng(3)
    found = linear_bounds(LinearModel(problem, np.full(3, 1 / 3)), Region(x, 1.0, np.inf), batch_size=1)
    seen = [truth.at(10.0 ** rng.uniform(-1, 4) * rng.standard_normal(flat(x).size)) for _ in range(100)]
    for name in ("noise", "fourth_moment", "heterogeneity", "gradient_bound", "smoothness"):
        most = max(each[name] for each in seen)
        bound: Any = found[name].value
        assert most <= bound * (1 + 1e-12), name
        if name != "smoothness":
            assert most > 0.3 * bound, f"{name}: {bound} is far above {most}"


@pytest.mark.parametrize("kind", MOST_OFTEN_LOGISTIC)
def test_local_constants_are_those_of_definitions_at_the_ends(kind: str):
    problem = problem_of(kind)
    x0 = jax.tree.map(lambda a: a + 0.5, problem.init(jax.random.key(0)))
    found, truth = estimate(problem, x0=x0), Truth(kind)
    start, end = flat(x0), flat(found.solution)
    path = [truth.at((1 - t) * start + t * end) for t in np.linspace(0, 1, 5)]
    for name in path[0]:
        assert getattr(found.local, name) == pytest.approx(max(row[name] for row in path), rel=1e-7), name
    gradients = np.stack([g.mean(axis=0) for g in truth.gradients(end)])
    want = np.sqrt(np.mean(np.sum(gradients**2, axis=1)))
    assert found.constants.optimum_heterogeneity == pytest.approx(want, rel=1e-7)
    assert found.constants.distance == pytest.approx(np.linalg.norm(start - end), rel=1e-9)
    value = [np.mean([np.mean(part) for part in np.split(losses(problem)(v), CUTS)]) for v in (start, end)]
    value += 0.1 / 2 * np.array([np.sum(truth.penalized * v**2) for v in (start, end)])
    assert found.optimum == pytest.approx(value[1], rel=1e-9)
    assert found.constants.gap == pytest.approx(value[0] - value[1], rel=1e-9)


def test_logistic_formulas_by_dense_algebra():
    task = task_somewhere(problem_of("Logistic", l2=0.3, intercept=False))
    found = linear_constants(task).found
    parts = [X for X, _ in clients("Logistic")]
    grams = [X.T @ X / len(X) for X in parts]
    cubes = [(X.T * np.linalg.norm(X, axis=1)) @ X / len(X) for X in parts]
    third = max(np.linalg.eigvalsh(C)[-1] for C in cubes) / (6 * np.sqrt(3))
    assert found["smoothness"].value == pytest.approx(
        max(np.linalg.eigvalsh(G)[-1] for G in grams) / 4 + 0.3, rel=1e-12
    )
    assert found["third_order"].value == pytest.approx(third, rel=1e-12)
    assert found["strong_convexity"].value == 0.3
    assert found["noise"].value is not None
    assert found["noise"].value <= max(np.sqrt(np.mean(np.sum(X**2, axis=1))) for X in parts)
    longest = max(np.linalg.norm(X, axis=1).max() for X in parts)
    reach = np.linalg.norm(task.region.solution["weights"]) + task.region.radius
    assert found["gradient_bound"].value == pytest.approx(longest + 0.3 * reach, rel=1e-12)
    assert "client 2" in found["smoothness"].how  # its features are the largest


def test_an_unpenalised_intercept_has_no_strong_convexity_and_enters_the_smoothness():
    found = estimate(problem_of("Logistic", l2=0.3))
    wide = [np.hstack([np.ones((len(X), 1)), X]) for X, _ in clients("Logistic")]
    hessians = [A.T @ A / len(A) / 4 + np.diag([0, 0.3, 0.3, 0.3]) for A in wide]
    assert found.constants.smoothness == pytest.approx(max(np.linalg.eigvalsh(H)[-1] for H in hessians), rel=1e-12)
    assert found.constants.strong_convexity == 0
    assert found.local.strong_convexity > 0
    assert "intercept" in found.how["strong_convexity"]


def test_least_squares_by_dense_algebra():
    found = estimate(problem_of("LeastSquares", l2=0.3), weights="examples")
    wide = [np.hstack([np.ones((len(X), 1)), X]) for X, _ in clients("LeastSquares")]
    ridge = np.diag([0, 0.3, 0.3, 0.3])
    hessians = [2 * A.T @ A / len(A) + ridge for A in wide]
    everything = np.vstack(wide)
    mean = 2 * everything.T @ everything / len(everything) + ridge
    assert found.constants.smoothness == pytest.approx(max(np.linalg.eigvalsh(H)[-1] for H in hessians), rel=1e-12)
    assert found.constants.strong_convexity == pytest.approx(np.linalg.eigvalsh(mean)[0], rel=1e-12)
    assert found.constants.third_order == 0
    assert found.radius == 2 * found.constants.distance
    assert any("not bounded over all x" in warning for warning in found.warnings)


def test_least_squares_with_equal_features_has_the_same_heterogeneity_everywhere():
    rng = np.random.default_rng(4)
    X, targets, x = rng.standard_normal((6, 2)), rng.standard_normal((3, 6)), rng.standard_normal(2)
    data = fl.FederatedData.from_clients([(X, b) for b in targets])
    model = LinearModel(fl.problems.LeastSquares(data, intercept=False), np.full(3, 1 / 3))
    region = Region({"weights": np.zeros(2)}, 100.0, np.inf)
    found = linear_bounds(model, region, batch_size=1)["heterogeneity"]
    gradients = np.stack([2 * X.T @ (X @ x - b) / 6 for b in targets])
    assert found.value == pytest.approx(np.linalg.norm(gradients - gradients.mean(axis=0), axis=1).max(), rel=1e-9)
    assert found.how.startswith("exact everywhere")


@pytest.mark.thorough
def test_matrix_sensing_is_least_squares_of_the_entries():
    rng = np.random.default_rng(5)
    A, b = rng.standard_normal((9, 2, 2)), rng.standard_normal(9)
    matrix = estimate(fl.problems.MatrixSensing(fl.FederatedData.from_clients([(A, b)])))
    vector = estimate(fl.problems.LeastSquares(fl.FederatedData.from_clients([(A.reshape(9, 4), b)])))
    assert_equal(matrix, vector)


def assert_equal(one: Estimate, other: Estimate, rtol: float = 1e-7) -> None:
    for a, b in ((one.constants, other.constants), (one.local, other.local)):
        for name in LETTERS:
            x, y = getattr(a, name), getattr(b, name)
            assert (x is None) == (y is None), name
            assert x is None or x == pytest.approx(y, rel=rtol, abs=1e-9), name


def assert_same(one: ProblemConstants, other: ProblemConstants, rtol: float = 1e-7) -> None:
    for name, each in one.found.items():
        assert each.value == pytest.approx(other.found[name].value, rel=rtol, abs=1e-12), name
        assert one.local[name] == pytest.approx(other.local[name], rel=rtol, abs=1e-12), name


@pytest.mark.parametrize("kind", ["Logistic", "Softmax", "LeastSquares"])
def test_sparse_features_give_the_same(kind: str):
    sparse, dense = (linear_constants(task_somewhere(problem_of(kind, sparse=each))) for each in (True, False))
    assert_same(sparse, dense)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["Logistic", "Softmax", "LeastSquares"])
def test_sparse_features_give_the_same_estimate(kind: str):
    assert_equal(estimate(problem_of(kind, sparse=True)), estimate(problem_of(kind)))


POWERS = {"smoothness": 2, "strong_convexity": 2, "third_order": 3, "noise": 1, "fourth_moment": 1, "heterogeneity": 1}
POWERS |= {"gradient_bound": 1}


def test_scaled_features_scale_the_constants():
    """F(c a, x / c) = F(a, x): gradients grow by c, Hessians by c^2, the third order by c^3, and x* shrinks by c."""
    c, ends = 3.0, (np.full(FEATURES, 0.5), np.full(FEATURES, -0.3))
    one, scaled = (
        linear_constants(
            task_of(
                problem_of("Logistic", l2=0.1 * s**2, intercept=False, scale=s),
                *({"weights": x / s} for x in ends),
                radius=5.0 / s,
            )
        )
        for s in (1.0, c)
    )
    for name, power in POWERS.items():
        for a, b in ((one.found[name].value, scaled.found[name].value), (one.local[name], scaled.local[name])):
            assert a is not None
            assert b == pytest.approx(c**power * a, rel=1e-9), name


@pytest.mark.thorough
def test_scaled_features_scale_the_estimate():
    c = 3.0
    one, scaled = (estimate(problem_of("Logistic", l2=l2, intercept=False, scale=s)) for l2, s in ((0.1, 1), (0.9, c)))
    for name, power in (POWERS | {"optimum_heterogeneity": 1, "distance": -1, "gap": 0}).items():
        for a, b in ((one.constants, scaled.constants), (one.local, scaled.local)):
            assert getattr(b, name) == pytest.approx(c**power * getattr(a, name), rel=1e-6), name


def shared(num_clients: int, l2: float = 0.1) -> Any:
    X, b = clients("Logistic")[0]
    return fl.problems.Logistic(fl.FederatedData.shared(X, b, num_clients=num_clients), l2=l2)


def test_thousands_of_clients_that_share_their_examples_are_one():
    one, many = (linear_constants(task_somewhere(shared(M))) for M in (1, 8192))
    assert_same(many, one, rtol=1e-9)
    assert many.found["heterogeneity"].value == many.local["heterogeneity"] == 0
    assert many.found["heterogeneity"].how.startswith("exact")


@pytest.mark.thorough
def test_estimates_of_thousands_of_clients_that_share_their_examples_are_those_of_one():
    one, many = (estimate(shared(M)) for M in (1, 8192))
    assert_equal(many, one, rtol=1e-9)
    assert many.constants.heterogeneity == many.constants.optimum_heterogeneity == 0


def test_local_hessians_of_many_clients_are_those_of_some_and_it_is_said():
    rng = np.random.default_rng(11)
    data = [(rng.standard_normal((2, 2)), np.array([1.0, -1.0])) for _ in range(70)]
    found = linear_constants(task_somewhere(fl.problems.Logistic(fl.FederatedData.from_clients(data), l2=0.1)))
    for name in ("smoothness", "third_order"):
        assert found.found[name].how.endswith("locally, the largest of 64 clients drawn from 70"), name
    assert "64" not in found.found["noise"].how
    few = linear_constants(task_somewhere(problem_of("Logistic"))).found["smoothness"]
    assert "drawn" not in few.how


@pytest.mark.parametrize("batch_size", [2, 8])
def test_batches_against_simulated_ones(batch_size: int):
    """The mean of B draws with replacement: the second moment exactly, the fourth from above by a factor 3 at most."""
    problem = problem_of("Logistic")
    x = jax.tree.map(lambda a: a + 0.4, problem.init(jax.random.key(0)))
    single = task_of(problem, x, x)  # all local values are at one point
    found, whole = linear_constants(dataclasses.replace(single, batch_size=batch_size)), linear_constants(single)
    rng, second, fourth = np.random.default_rng(6), [], []
    for g in Truth("Logistic").gradients(flat(x)):
        drawn = g[rng.integers(0, len(g), (40_000, batch_size))].mean(axis=1) - g.mean(axis=0)
        second.append(np.mean(np.sum(drawn**2, axis=1)))
        fourth.append(np.mean(np.sum(drawn**2, axis=1) ** 2))
    local: dict[str, Any] = found.local
    assert local["noise"] ** 2 == pytest.approx(max(second), rel=0.03)  # 4 standard errors of 40,000 draws
    assert max(fourth) * 0.95 <= local["fourth_moment"] ** 4 <= 3 * max(fourth) * 1.05
    alone: Any = whole.found["noise"].value
    assert found.found["noise"].value == pytest.approx(alone / np.sqrt(batch_size), rel=1e-12)


def test_full_gradients_have_no_noise():
    found = estimate(problem_of("Logistic"), batch_size=None)
    assert found.constants.noise == found.constants.fourth_moment == found.local.noise == found.local.fourth_moment == 0


def test_fourth_moment_of_a_mean_of_vectors():
    """All outcomes of B = 3 draws of a small distribution, with its exact covariance, against the bound of `batch_moments`."""
    n = np.random.default_rng(7).standard_normal((4, 2)) ** 3
    n -= n.mean(axis=0)
    sums = (n[:, None, None] + n[None, :, None] + n[None, None, :]).reshape(-1, 2) / 3
    truth = np.mean(np.sum(sums**2, axis=1) ** 2)
    squares = np.sum(n**2, axis=1)
    variance, fourth, covariance = squares.mean(), (squares**2).mean(), n.T @ n / 4
    exact = (fourth + 2 * (variance**2 + 2 * np.sum(covariance**2))) / 27
    assert truth == pytest.approx(exact, rel=1e-12)
    assert truth <= batch_moments(variance, fourth, 3)[1] ** 4
    line = np.array([[1.0], [-1.0]])  # one dimension: equality
    three = np.mean([(a + b + c) ** 4 / 81 for a in line[:, 0] for b in line[:, 0] for c in line[:, 0]])
    assert batch_moments(1.0, 1.0, 3)[1] ** 4 == pytest.approx(three, rel=1e-12)


def test_fourth_moment_bound_holds_for_any_vectors():
    rng = np.random.default_rng(8)
    for _ in range(300):
        reach = rng.exponential(size=rng.integers(1, 7)) ** rng.choice([0.1, 1, 3])
        direction = rng.standard_normal((len(reach), rng.integers(1, 3)))
        g = (
            reach[:, None]
            * direction
            / np.linalg.norm(direction, axis=1, keepdims=True)
            * rng.choice([0.3, 1], (len(reach), 1))
        )
        spread = np.sum((g - g.mean(axis=0)) ** 2, axis=1)
        assert np.mean(spread**2) <= fourth_moment(reach, np.mean(spread)) * (1 + 1e-9)
        assert np.mean(spread**2) <= fourth_moment(reach, np.mean(reach**2)) * (1 + 1e-9)


def test_quadratics_by_formulas():
    rng = np.random.default_rng(9)
    roots = rng.standard_normal((3, 2, 2))
    matrices, optima = roots @ np.swapaxes(roots, 1, 2) + np.eye(2), rng.standard_normal((3, 2))
    found = estimate(fl.problems.quadratics(matrices, optima, noise_std=0.5), batch_size=4, radius=3.0)
    mean = matrices.mean(axis=0)
    x = np.linalg.solve(mean, np.einsum("mij,mj->i", matrices, optima) / 3)
    gradients = np.einsum("mij,mj->mi", matrices, x - optima)
    c: Any = found.constants
    assert c.smoothness == pytest.approx(np.linalg.eigvalsh(matrices).max(), rel=1e-12)
    assert c.strong_convexity == pytest.approx(np.linalg.eigvalsh(mean)[0], rel=1e-12)
    assert c.noise == pytest.approx(0.5 * np.sqrt(2) / 2, rel=1e-12)
    draws = rng.standard_normal((200_000, 2)) * 0.25
    assert c.fourth_moment**4 == pytest.approx(np.mean(np.sum(draws**2, axis=1) ** 2), rel=0.03)
    assert c.optimum_heterogeneity == pytest.approx(np.sqrt(np.mean(np.sum(gradients**2, axis=1))), rel=1e-7)
    assert c.distance == pytest.approx(np.linalg.norm(x), rel=1e-8)
    assert c.third_order == 0
    assert c.gradient_bound is None
    angles = np.linspace(0, 2 * np.pi, 721)
    circle = 3.0 * np.stack([np.cos(angles), np.sin(angles)])
    apart = [
        np.linalg.norm(g[:, None] + (A - mean) @ circle, axis=0).max() for g, A in zip(gradients, matrices, strict=True)
    ]
    assert max(apart) <= c.heterogeneity <= 2 * max(apart)
    assert any("gradient_bound" in warning for warning in found.warnings)


def test_quadratics_with_equal_matrices_have_exact_heterogeneity():
    optima = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 0.0]])
    found = estimate(fl.problems.quadratics(np.stack([np.diag([2.0, 5.0])] * 3), optima), radius=50.0)
    assert found.constants.heterogeneity == pytest.approx(2.0, rel=1e-12)
    assert found.local.heterogeneity == pytest.approx(2.0, rel=1e-12)
    same = estimate(fl.problems.quadratics(np.stack([np.eye(2)] * 3), np.ones((3, 2))))
    assert same.constants.heterogeneity == 0


def test_piecewise_quadratic():
    found = estimate(fl.problems.piecewise_quadratic(noise_std=0.1), x0=np.array(2.0))
    c = found.constants
    assert (c.smoothness, c.strong_convexity, c.heterogeneity, c.third_order) == (2.0, 0.2, 0.0, None)
    assert c.noise == pytest.approx(0.1)
    assert c.fourth_moment == pytest.approx(3**0.25 * 0.1)  # E n^4 = 3 std^4
    assert any("third_order is None" in warning for warning in found.warnings)


SEPARABLE = np.array([[1.0], [2.0], [-1.0], [-3.0]])


@pytest.mark.parametrize("kind", ["Logistic", "Softmax"])
def test_a_point_that_separates_the_data_without_a_penalty_is_said_to_be_no_minimum(kind: str):
    data = fl.FederatedData.from_clients([(SEPARABLE, (SEPARABLE[:, 0] > 0).astype(int))])
    right = {"weights": np.array([[-1.0, 1.0]]) if kind == "Softmax" else np.array([1.0])}
    wrong: dict[str, Any] = {"weights": -right["weights"]}
    for l2, end, said in ((0.0, right, True), (0.0, wrong, False), (0.1, right, False)):
        problem = getattr(fl.problems, kind)(data, l2=l2, intercept=False)
        warnings = linear_constants(task_of(problem, end, end)).warnings
        assert len(warnings) == said
        assert all("separable" in warning for warning in warnings)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["Logistic", "Softmax"])
def test_separable_data_without_a_penalty_is_said_to_have_no_minimum(kind: str):
    data = fl.FederatedData.from_clients([(SEPARABLE, (SEPARABLE[:, 0] > 0).astype(int))])
    assert any("separable" in warning for warning in estimate(getattr(fl.problems, kind)(data)).warnings)
    assert estimate(getattr(fl.problems, kind)(data, l2=0.1)).warnings == []


def a_loss_and_its_kind() -> tuple[Any, Any]:
    """A logistic loss written as a function, and as what it is."""
    X, b = clients("Logistic")[0]
    data = fl.FederatedData.from_clients([(X, b), (2 * X, b)])
    custom = fl.Problem(
        lambda params, a, y: jnp.logaddexp(0, -y * (a @ params["weights"])) + 0.05 * jnp.sum(params["weights"] ** 2),
        data,
        lambda key: {"weights": jnp.zeros(FEATURES)},
    )
    return custom, fl.problems.Logistic(data, l2=0.1)


def test_custom_problems_are_sampled():
    """Sampled values lie between what is at the path and the bounds."""
    custom, kind = a_loss_and_its_kind()
    found, known = sampled_constants(task_somewhere(custom)), linear_constants(task_somewhere(kind))
    for name in ("smoothness", "third_order", "noise", "fourth_moment", "heterogeneity"):
        sampled, bound = found.found[name], known.found[name].value
        assert sampled.value is not None
        assert bound is not None
        assert sampled.value <= bound * (1 + 1e-6), name
        assert not sampled.certified
        assert "not a bound" in sampled.how
    for name in ("smoothness", "noise", "fourth_moment", "heterogeneity", "gradient_bound"):
        assert found.local[name] == pytest.approx(known.local[name], rel=1e-4), name
    assert any("not bounds" in warning for warning in found.warnings)


@pytest.mark.thorough
def test_estimates_of_custom_problems():
    found, known = map(estimate, a_loss_and_its_kind())
    for name in ("smoothness", "noise", "fourth_moment", "heterogeneity", "gradient_bound"):
        assert getattr(found.local, name) == pytest.approx(getattr(known.local, name), rel=1e-4), name
    assert found.constants.distance == pytest.approx(known.constants.distance, rel=1e-6)
    assert any("convexity of a loss given as a function" in warning for warning in found.warnings)


@pytest.mark.thorough
def test_networks_are_not_convex():
    X, b = clients("Softmax")[0]
    found = estimate(fl.problems.MLP(fl.FederatedData.shared(X, b, num_clients=5), hidden=(3,)))
    assert any("not convex" in warning for warning in found.warnings)
    assert found.constants.third_order is None
    assert found.constants.heterogeneity == found.constants.optimum_heterogeneity == 0
    assert not found.certified["smoothness"]
    assert not found.certified["distance"]


def test_an_oracle_with_noise_of_its_own_is_sampled():
    def noise(key: jax.Array, x: Any, client: Any) -> Any:
        return jnp.where(jax.random.bernoulli(key), 0.3, -0.3) * jnp.ones_like(x)

    oracle = fl.problems.Oracle(lambda x, m: jnp.sum(x**4) + m * x[0], noise=noise, num_clients=2)
    found = sampled_constants(task_of(oracle, jnp.ones(2), jnp.zeros(2), radius=0.5))
    assert found.found["noise"].value == pytest.approx(0.3 * np.sqrt(2), rel=1e-9)
    assert found.found["heterogeneity"].value == pytest.approx(0.5, rel=1e-9)
    assert found.local["smoothness"] == pytest.approx(12.0, rel=1e-6)  # 12 x^2 at the start
    assert found.local["third_order"] == pytest.approx(24.0, rel=1e-3)  # 24 x there


def test_a_constraint_and_a_mirror_map():
    """Equal clients on the simplex: x* and F* are those of the solver, the penalty's gradient is at most l2 there."""
    problem, psi, l2 = shared(num_clients=4, l2=2.0), fl.regularizers.Simplex(1.0), 2.0
    x0 = {"weights": np.full(FEATURES, 1 / 3)}
    found = estimate(problem, x0=x0, regularizer=psi, mirror_map=fl.mirrors.Entropy(), radius=10.0)
    solution, c = fl.solvers.centralized(problem, psi, x0=x0, progress=False), found.constants
    x = solution.x["weights"]
    assert found.optimum == pytest.approx(solution.objective, rel=1e-12)
    assert c.distance == pytest.approx(np.linalg.norm(x - 1 / 3), rel=1e-8)
    assert c.mirror_distance == pytest.approx(np.sqrt(np.sum(x[x > 0] * np.log(3 * x[x > 0]))), rel=1e-6)
    assert c.optimum_heterogeneity == 0
    longest = np.linalg.norm(clients("Logistic")[0][0], axis=1).max()
    assert c.gradient_bound == pytest.approx(longest + l2, rel=1e-12)
    outside = estimate(problem, regularizer=psi, x0={"weights": np.ones(FEATURES)})
    assert outside.constants.gap is None
    assert any("outside the constraint" in warning for warning in outside.warnings)


@pytest.mark.thorough
def test_shared_examples_are_homogeneous_with_a_regularizer_too():
    problem, psi = shared(num_clients=4), fl.regularizers.L1(0.2)
    found, solution = estimate(problem, regularizer=psi), fl.solvers.centralized(problem, psi, progress=False)
    assert found.constants.optimum_heterogeneity == 0
    assert found.optimum == pytest.approx(solution.objective, rel=1e-12)
    assert found.constants.distance == pytest.approx(np.linalg.norm(solution.x["weights"]), rel=1e-8)


@pytest.mark.thorough
def test_constraints_bound_the_gradient_of_the_penalty():
    problem, psi = problem_of("Logistic", l2=2.0, intercept=False), fl.regularizers.L2Ball(0.05)
    longest = max(np.linalg.norm(X, axis=1).max() for X, _ in clients("Logistic"))
    found = estimate(problem, regularizer=psi, radius=10.0)
    assert found.constants.gradient_bound == pytest.approx(longest + 2.0 * 0.05, rel=1e-12)


@pytest.mark.thorough
def test_mirror_distance_of_the_euclidean_map():
    problem, psi = problem_of("Logistic", intercept=False), fl.regularizers.Simplex(1.0)
    x0 = {"weights": np.full(FEATURES, 1 / 3)}
    euclidean = estimate(problem, x0=x0, regularizer=psi, mirror_map=fl.mirrors.Euclidean()).constants
    assert euclidean.mirror_distance == pytest.approx(euclidean.distance / np.sqrt(2), rel=1e-12)


def test_krylov_is_dense():
    rng = np.random.default_rng(10)
    root = rng.standard_normal((60, 40))
    matrix = root.T @ root - 30 * np.eye(40)
    assert krylov_top(lambda v: matrix @ v, 40) == pytest.approx(np.linalg.eigvalsh(matrix)[-1], rel=1e-9)
    assert krylov_top(lambda v: 0 * v, 5) == 0
    assert krylov_top(lambda v: 3 * v, 1) == 3


@pytest.mark.parametrize("kind", MOST_OFTEN_LOGISTIC)
def test_many_parameters_take_the_other_way_to_the_same(kind: str, monkeypatch: pytest.MonkeyPatch):
    """Krylov spaces and blocks of rows instead of dense matrices; only heterogeneity and mu of squares become looser."""
    dense = estimate(problem_of(kind), radius=2.0)
    monkeypatch.setattr("fedlocal.theory.constants.linear_model.DENSE", 0)
    monkeypatch.setattr("fedlocal.theory.constants.linear.LEAST", 0)
    monkeypatch.setattr("fedlocal.theory.constants.linear_model.SMALL", 0)
    monkeypatch.setattr("fedlocal.theory.constants.linear_model.BLOCK", 3 * (1 + FEATURES))
    found = estimate(problem_of(kind), radius=2.0)
    loose = {"heterogeneity", "strong_convexity"} if kind == "LeastSquares" else {"strong_convexity"}
    for a, b in ((found.constants, dense.constants), (found.local, dense.local)):
        for name in set(LETTERS) - loose - {"mirror_distance"}:
            assert getattr(a, name) == pytest.approx(getattr(b, name), rel=1e-7, abs=1e-12), name
    assert found.constants.heterogeneity is not None
    assert dense.constants.heterogeneity is not None
    assert found.constants.heterogeneity >= dense.constants.heterogeneity * (1 - 1e-9)
    assert found.constants.strong_convexity <= dense.constants.strong_convexity


def test_rows_and_text_name_every_constant():
    found = estimate(problem_of("LeastSquares"))
    names = [field.name for field in dataclasses.fields(found.constants)]
    assert [row.constant for row in found.rows()] == names
    for name in names:
        assert name in str(found)
    assert str(found).count("warning:") == len(found.warnings) == 1


def test_bad_arguments():
    problem = problem_of("Logistic")
    mistakes: dict[str, Any] = {"batch_size": 0, "radius": 0.0, "weights": "all", "x0": {"weights": np.zeros(7)}}
    for name, value in mistakes.items():
        with pytest.raises((ValueError, TypeError), match=f"estimate: {name}"):
            estimate(problem, **{name: value})
    with pytest.raises(TypeError, match="mirror_map"):
        estimate(problem, mirror_map=3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="add its strength"):
        estimate(fl.problems.augmented(problem, 1.0, problem.init(jax.random.key(0))))
