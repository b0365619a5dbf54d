"""Certificates: other libraries' solutions pass, perturbed ones do not, and the gap is never below the truth."""

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import ElasticNet, Lasso, LogisticRegression, Ridge

import fedlocal as fl
from fedlocal.problems.smooth_part import ClientMean
from fedlocal.regularizers import L1, Blocks, GroupL1, L1Ball, L2Ball, NonNegative, Simplex, SquaredL2, Zero

SIZES = (7, 30, 13)  # unequal clients
D = 6


def table(seed: int = 0, labels: bool = False) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((sum(SIZES), D)) + 0.3
    b = X @ np.array([2.0, -1.0, 0.5, 0.0, 0.0, 0.0]) + 1 + rng.standard_normal(len(X))
    return X, np.where(b > 1, 1.0, -1.0) if labels else b


def federation(X: Any, y: np.ndarray) -> fl.FederatedData:
    ends = np.cumsum(SIZES)
    return fl.FederatedData.from_clients([(X[e - s : e], y[e - s : e]) for s, e in zip(SIZES, ends, strict=True)])


def squares(**options: Any) -> fl.problems.LeastSquares:
    return fl.problems.LeastSquares(federation(*table()), **options)


def logistic(**options: Any) -> fl.problems.Logistic:
    return fl.problems.Logistic(federation(*table(labels=True)), **options)


def params(weights: Any, intercept: Any = None) -> dict[str, Any]:
    x = {"weights": np.asarray(weights, float)}
    return x if intercept is None else {**x, "intercept": np.asarray(intercept, float).reshape(())}


def numbers(found: fl.Certificate) -> list[float]:
    gap = [] if found.duality_gap is None else [found.duality_gap]
    return [found.objective, found.kkt_residual, found.violation, *gap]


def check(problem: Any, psi: fl.Regularizer, x: dict[str, Any], tolerance: float = 1e-6) -> None:
    """The point passes, and ceases to when it is moved a little."""
    found: Any = fl.certificate(problem, psi, x, weights="examples")
    assert found.kkt_residual < tolerance
    assert -1e-12 < found.duality_gap < tolerance
    moved: Any = fl.certificate(problem, psi, {**x, "weights": x["weights"] + 0.01}, weights="examples")
    assert moved.kkt_residual > 1e-3
    assert moved.duality_gap > 1e-5
    assert moved.duality_gap >= moved.objective - found.objective > 0


@pytest.mark.parametrize("intercept", [True, pytest.param(False, marks=pytest.mark.thorough)])
def test_lasso_of_scikit_learn(intercept):
    X, y = table()
    model = Lasso(alpha=0.2, fit_intercept=intercept, tol=1e-14, max_iter=100_000).fit(X, y)
    x = params(model.coef_, model.intercept_ if intercept else None)
    check(squares(intercept=intercept), L1(0.4), x)  # ours has neither the half nor alpha's


def test_elastic_net_of_scikit_learn_as_regulariser_and_as_l2_of_the_problem():
    model = ElasticNet(alpha=0.3, l1_ratio=0.4, tol=1e-14, max_iter=100_000).fit(*table())
    x = params(model.coef_, model.intercept_)
    check(squares(), fl.regularizers.ElasticNet(l1=0.24, l2=0.36), x)
    check(squares(l2=0.36), L1(0.24), x)


@pytest.mark.parametrize(
    ("l2", "psi"),
    [
        pytest.param(0.5, Zero(), marks=pytest.mark.thorough),
        pytest.param(0.0, SquaredL2(0.5), marks=pytest.mark.thorough),
        (0.2, SquaredL2(0.3)),
    ],
)
def test_ridge_of_scikit_learn(l2, psi):
    X, y = table()
    model = Ridge(alpha=0.25 * len(X)).fit(X, y)
    check(squares(l2=l2), psi, params(model.coef_, model.intercept_), 1e-9)


def l1_logistic(solver: str, intercept: bool) -> LogisticRegression:
    X, y = table(labels=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # versions of scikit-learn differ in which of the two they want
        model = LogisticRegression(penalty="l1", l1_ratio=1.0, C=1 / (0.05 * len(X)), solver=solver)
        model.set_params(fit_intercept=intercept, tol=1e-12, max_iter=50_000, random_state=0)
        return model.fit(X, y)


def test_l1_logistic_regression_of_scikit_learn():
    check(logistic(), L1(0.05), params(l1_logistic("liblinear", False).coef_[0]))


def test_l1_logistic_regression_with_a_free_intercept():
    model = l1_logistic("saga", True)
    check(logistic(intercept=True), L1(0.05), params(model.coef_[0], model.intercept_))


def test_a_penalised_intercept_is_an_ordinary_parameter():
    model = l1_logistic("liblinear", True)  # penalises it
    x, psi = params(model.coef_[0], model.intercept_), Blocks({"weights": L1(0.05), "intercept": L1(0.05)})
    check(logistic(intercept=True), psi, x)
    free: Any = fl.certificate(logistic(intercept=True), L1(0.05), x, weights="examples")
    assert free.kkt_residual > 1e-4
    assert free.duality_gap > 1e-5


def test_the_gap_written_out():
    """The formulas of the file's head in plain NumPy, at a point far from optimal."""
    X, b = table(labels=True)
    w, strength = np.array([1.0, -0.5, 0.2, 0.3, 0.0, 0.0]), 0.02
    p = np.repeat(1 / (3 * np.array(SIZES)), SIZES)
    s = X @ w
    u = -b / (1 + np.exp(b * s))
    y = -X.T @ (p * u)
    scale = min(1, strength / np.abs(y).max())
    assert scale < 1
    v = -b * scale * u
    dual = -np.sum(p * (v * np.log(v) + (1 - v) * np.log(1 - v)))
    primal = np.sum(p * np.log1p(np.exp(-b * s))) + strength * np.abs(w).sum()
    found: Any = fl.certificate(logistic(), L1(strength), params(w))
    assert found.objective == pytest.approx(primal, rel=1e-13)
    assert found.duality_gap == pytest.approx(primal - dual, rel=1e-12)
    shrunk = np.sign(w + y) * np.maximum(np.abs(w + y) - strength, 0)
    assert found.kkt_residual == pytest.approx(np.linalg.norm(w - shrunk), rel=1e-12)


def test_squares_take_the_best_scale_that_is_allowed():
    """The bound is the largest of D(scale l'(s)) over all scales inside the domain, here on a fine grid."""
    X, b = table()
    w, strength, p = np.array([1.0, -0.5, 0.2, 0.3, 0.0, 0.0]), 8.0, np.repeat(1 / (3 * np.array(SIZES)), SIZES)
    u = 2 * (X @ w - b)
    limit = strength / np.abs(X.T @ (p * u)).max()
    scales = np.linspace(0, limit, 20_001)
    duals = [-np.sum(p * ((c * u) ** 2 / 4 + c * u * b)) for c in scales]
    found: Any = fl.certificate(squares(intercept=False), L1(strength), params(w))
    best = scales[np.argmax(duals)]
    assert 0 < best < limit
    assert abs(best - 1) > 0.05  # the scale that other losses take
    assert found.objective - found.duality_gap == pytest.approx(max(duals), rel=1e-6)


CASES = [
    (squares(), L1(0.4)),
    (squares(l2=0.3), GroupL1(0.3, groups=[0, 0, 1, 1, 2, 2])),
    (squares(intercept=False), L2Ball(1.0)),
    (squares(), Simplex(2.0)),
    (logistic(intercept=True), L1(0.05)),
    (logistic(l2=0.01), L1Ball(1.5)),
]
OPTIMA: dict[int, float] = {}


@pytest.mark.parametrize(
    "case", [c if c in (1, 2) else pytest.param(c, marks=pytest.mark.thorough) for c in range(len(CASES))]
)
@given(seed=st.integers(0, 2**20), size=st.floats(1e-4, 10.0))
@settings(max_examples=15, deadline=None)
def test_the_gap_is_at_least_the_suboptimality(case, seed, size):
    problem, psi = CASES[case]
    if case not in OPTIMA:
        OPTIMA[case] = fl.solvers.centralized(problem, psi, progress=False).objective
    rng = np.random.default_rng(seed)
    x = psi.prox(
        params(size * rng.standard_normal(D), size * rng.standard_normal() if problem.intercept else None), 1.0
    )
    found: Any = fl.certificate(problem, psi, x)
    assert found.duality_gap >= found.objective - OPTIMA[case] - 1e-10 * found.objective
    assert found.objective >= OPTIMA[case] - 1e-10
    assert found.violation < 1e-12


SPARSE = scipy.sparse.csr_array(np.where(np.abs(table()[0]) > 0.5, table()[0], 0.0))


@pytest.mark.parametrize("weights", ["uniform", "examples"])
@pytest.mark.parametrize(
    ("problem", "psi"),
    [
        (squares(), L1(0.4)),
        (fl.problems.Logistic(federation(SPARSE, table(labels=True)[1]), l2=0.1, intercept=True), L1(0.05)),
        (fl.problems.Softmax(federation(table()[0], np.arange(50) % 3)), GroupL1(0.1)),
    ],
    ids=["squares", "sparse logistic", "softmax"],
)
def test_clients_that_share_no_data_compute_the_same(problem, psi, weights):
    rng = np.random.default_rng(3)
    x = {name: rng.standard_normal(np.shape(a)) for name, a in problem.init(None).items()}
    central = fl.certificate(problem, psi, x, weights=weights)
    federated = fl.certificate(problem, psi, x, weights=weights, federated=True)
    assert (central.duality_gap is None) == isinstance(problem, fl.problems.Softmax)
    assert numbers(federated) == pytest.approx(numbers(central), rel=1e-10)
    other = fl.certificate(problem, psi, x, weights="uniform" if weights == "examples" else "examples")
    assert abs(other.kkt_residual - central.kkt_residual) > 1e-4  # the weights do matter here


def test_problems_without_data():
    """F(x) = mean_m m/2 ||x - 1||^2 over m = 1, 2, 3, so that its gradient is 2 (x - 1)."""
    problem = fl.problems.quadratics(np.eye(D)[None] * np.arange(1, 4)[:, None, None], np.ones((3, D)))
    for federated in (False, True):
        found: Any = fl.certificate(problem, None, np.zeros(D), federated=federated)
        assert numbers(found) == pytest.approx([D, 2 * np.sqrt(D), 0], rel=1e-12)


def test_clients_see_their_own_examples_only():
    """A client's mean does not change when other clients' examples become nonsense."""
    X, y = table()
    spoiled = X.copy()
    spoiled[SIZES[0] :] = 1e6
    means = []
    for features in (X, spoiled):
        mean = ClientMean(squares().with_data(federation(features, y)), jnp.array([1.0, 0.0, 0.0]))
        means.append(mean.value_and_gradient(params(np.ones(D), 0.5))[1]["weights"])
    assert np.array_equal(*means)


def test_thousands_of_unequal_clients():
    rng = np.random.default_rng(0)
    groups = np.concatenate([np.arange(2000), rng.integers(0, 2000, 3000), np.zeros(2000)])
    X = rng.standard_normal((len(groups), 3))
    data = fl.FederatedData.from_groups((X, np.sign(X[:, 0] + 0.1)), groups)
    problem, x = fl.problems.Logistic(data, intercept=True), params(np.ones(3), 0.0)
    central = fl.certificate(problem, L1(0.01), x)
    assert fl.certificate(problem, L1(0.01), x, federated=True).duality_gap == pytest.approx(
        central.duality_gap, rel=1e-10
    )


def test_float32_data_is_measured_in_float64():
    X, y = (a.astype(np.float32) for a in table())
    x = params(np.arange(D) / 7, 0.1)
    single = fl.certificate(fl.problems.LeastSquares(federation(X, y)), L1(0.4), x)
    double = fl.certificate(fl.problems.LeastSquares(federation(X.astype(float), y.astype(float))), L1(0.4), x)
    assert federation(X, y).arrays[0].dtype == np.float32
    for name in ("objective", "kkt_residual", "duality_gap"):
        assert getattr(single, name) == pytest.approx(getattr(double, name), rel=1e-12)


@pytest.mark.parametrize("weights", ["uniform", "examples"])
def test_a_run_knows_its_problem_regulariser_and_weights(weights):
    problem, psi = squares(), L1(0.4)
    method = fl.methods.ProximalGradient(step_size=0.05, regularizer=psi)
    options: dict[str, Any] = {"local_steps": 1, "weights": weights, "progress": False}
    result = fl.simulate(problem, method, rounds=20, **options)
    found: Any = result.certificate()
    assert found == fl.certificate(problem, psi, result.x, weights=weights)
    assert found.objective == pytest.approx(result.history["objective"].iloc[-1], rel=1e-12)
    federated: Any = result.certificate(federated=True)
    assert 0 < federated.duality_gap == pytest.approx(found.duality_gap, rel=1e-10)
    better: Any = fl.simulate(problem, method, rounds=600, eval_every=600, **options).certificate()
    assert better.duality_gap < 1e-9 < found.duality_gap
    plain = fl.loop(problem, fl.methods.FedAvg(0.05), rounds=1, **options)  # without a regulariser
    assert plain.certificate() == fl.certificate(problem, None, plain.x, weights=weights)


def test_one_kind_of_labels_and_large_scores():
    """The best intercept is infinite, or far from where Newton's method may start."""
    X, _ = table()
    same = fl.problems.Logistic(federation(X, np.ones(len(X))), intercept=True)
    found: Any = fl.certificate(same, L1(0.05), params(np.zeros(D), 0.0))
    assert found.duality_gap == pytest.approx(np.log(2), rel=1e-12)  # the infimum is 0
    far: Any = fl.certificate(logistic(intercept=True), L1(0.05), params(np.ones(D), 500.0))
    near: Any = fl.certificate(logistic(intercept=True), L1(0.05), params(np.ones(D), 0.0))
    assert far.objective - far.duality_gap == pytest.approx(near.objective - near.duality_gap, rel=1e-9)


def test_outside_a_constraint():
    found: Any = fl.certificate(squares(intercept=False), L2Ball(1.0), params(np.ones(D)))
    assert found.violation == pytest.approx(np.sqrt(D) - 1)
    assert found.objective == found.duality_gap == np.inf
    assert "outside the constraint by 1.45" in str(found)


@pytest.mark.parametrize(
    ("problem", "psi", "x", "reason"),
    [
        (squares(), Zero(), params(np.ones(D), 0.0), "conjugate of Zero is finite on a cone only"),
        (squares(), NonNegative(), params(np.zeros(D), 0.0), "conjugate of NonNegative is finite on a cone"),
        (
            fl.problems.quadratics(np.eye(2)[None], np.ones((1, 2))),
            L1(0.1),
            np.zeros(2),
            "Oracle has no conjugate here",
        ),
    ],
)
def test_no_gap_has_a_reason(problem, psi, x, reason):
    found: Any = fl.certificate(problem, psi, x)
    assert found.duality_gap is None
    assert reason in found.no_gap_because
    assert "not known" in str(found)
    assert found.kkt_residual > 0


class OnlyProx(fl.Regularizer):
    """The absolute values again, with what a regulariser must have and no more."""

    strength: float = 0.4

    def array_value(self, x: jax.Array) -> jax.Array:
        return L1(self.strength).array_value(x)

    def array_prox(self, x: jax.Array, t: Any) -> jax.Array:
        return L1(self.strength).array_prox(x, t)


class NoGauge(OnlyProx):
    def array_conjugate(self, y: jax.Array) -> jax.Array:
        return L1(self.strength).array_conjugate(y)


def test_a_regulariser_without_a_conjugate_is_solved_and_certified():
    solution = fl.solvers.centralized(squares(), OnlyProx(), progress=False)
    known = fl.solvers.centralized(squares(), L1(0.4), progress=False)
    assert solution.converged
    np.testing.assert_allclose(solution.x["weights"], known.x["weights"], atol=1e-8)
    found: Any = solution.certificate
    assert found.duality_gap is None
    assert found.no_gap_because.startswith("OnlyProx has no conjugate, ")
    x = params(np.ones(D), 0.0)
    with_l2 = fl.certificate(squares(l2=0.3), OnlyProx(), x)  # the prox is enough
    assert with_l2.duality_gap == pytest.approx(fl.certificate(squares(l2=0.3), L1(0.4), x).duality_gap, rel=1e-12)
    named: Any = fl.certificate(squares(l2=0.3), Blocks({"weights": L1(0.4), "intercept": OnlyProx()}), x)
    assert "OnlyProx has no conjugate" in named.no_gap_because  # l2 is of the weights


def test_a_conjugate_without_its_gauge():
    found: Any = fl.certificate(squares(), NoGauge(), params(np.ones(D), 0.0))
    assert found.duality_gap is None
    assert "NoGauge needs array_gauge" in found.no_gap_because
    inside = fl.certificate(squares(), NoGauge(1e3), params(np.zeros(D), 0.0))  # nothing has to be scaled
    assert inside.duality_gap == pytest.approx(fl.certificate(squares(), L1(1e3), params(np.zeros(D), 0.0)).duality_gap)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("part", ["weights", "intercept"])
def test_a_point_that_is_not_finite(bad, part):
    x = params(np.ones(D), 0.0)
    x[part] = x[part] + bad
    found: Any = fl.certificate(squares(), L1(0.4), x)
    assert (found.duality_gap, found.no_gap_because) == (None, "x is not finite")


@pytest.mark.parametrize("psi", [L1(0.0), Blocks({"weights": L1(0.0)}), SquaredL2(0.0), L1(jnp.zeros(()))])
def test_a_strength_of_zero_is_the_reason(psi):
    found: Any = fl.certificate(squares(), psi, params(np.ones(D), 0.0))
    name = type(psi.parts(squares().init(jax.random.key(0)))[-1]).__name__  # of the weights
    assert found.no_gap_because.startswith(f"the strength of {name} is 0")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((squares(), 0.3, params(np.ones(D), 0.0)), "certificate: regularizer must be a Regularizer, got 0.3"),
        ((3, L1(0.3), params(np.ones(D), 0.0)), "certificate: problem must be a AbstractProblem, got 3"),
        (
            (squares(), L1(0.3), params(np.ones(D))),
            r"certificate: x does not fit the problem LeastSquares: it must have \{'intercept'",
        ),
        ((squares(), L1(0.3), {"weights": "a", "intercept": 0}), "certificate: x must hold numbers, got"),
        (
            (squares(), L1(0.3), params(np.ones(D), 0.0), "all"),
            "certificate: weights must be one of 'uniform', 'examples'",
        ),
    ],
)
def test_bad_input_is_named(arguments, message):
    with pytest.raises((TypeError, ValueError), match=message):
        fl.certificate(*arguments)
