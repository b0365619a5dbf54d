"""Group penalties, constraints and low rank: optimality conditions by hand, and other solvers."""

from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from scipy.optimize import minimize

import fedlocal as fl
from unit.estimators.pooled_truths import CLASSES, Model, even, make, unequal_sites

E, R = fl.estimators, fl.regularizers
D = make("dense")
GROUPS = np.array(["age", "age", "blood", "blood", "blood", "sex", "sex", "sex"])
MEMBERS = {str(name): np.flatnonzero(name == GROUPS) for name in np.unique(GROUPS)}
BINARY = Model("logistic", D.dense, D.signs == "yes", even(80))
KINDS = Model("softmax", D.dense, np.searchsorted(CLASSES, D.kinds), even(80))


def group_distance(x: np.ndarray, g: np.ndarray, strength: float) -> float:
    """Distance of -g from the subgradients of strength * sum of the norms of the groups; x and g are (..., d)."""
    distances = []
    for members in MEMBERS.values():
        part, slope = x[..., members], g[..., members]
        norm = np.linalg.norm(part)
        if norm > 0:
            distances.append(np.linalg.norm(slope + strength * part / norm))
        else:
            distances.append(max(np.linalg.norm(slope) - strength, 0.0))
    return float(max(distances))


@pytest.mark.parametrize("several", [False, True], ids=["one", "sites"])
@pytest.mark.parametrize(("model", "y"), [(BINARY, D.signs), (KINDS, D.kinds)], ids=["two", "three"])
def test_groups_are_zero_together(model: Model, y: np.ndarray, several: bool):
    shape = (1, 8) if model is BINARY else (3, 8)
    shares = np.bincount(model.y.astype(int), model.w)
    b = np.log(shares[1] / shares[0]) if model is BINARY else np.log(shares)
    g, _ = model.gradient(np.zeros(shape[1] if model is BINARY else shape), b)
    strength = 0.9 * max(float(np.linalg.norm(g[..., members])) for members in MEMBERS.values())  # not all are zero
    chosen = E.FederatedLogisticRegression("group", groups=GROUPS, C=1 / (strength * 80), tol=1e-11)
    chosen.fit(D.X, y, sites=D.sites if several else None)
    assert chosen.coef_.shape == shape
    zero = {name: not chosen.coef_[:, members].any() for name, members in MEMBERS.items()}
    some = {name: bool((chosen.coef_[:, members] != 0).all()) for name, members in MEMBERS.items()}
    assert any(zero.values())
    assert any(some.values())
    assert all(zero[name] or some[name] for name in zero)
    x, b = (chosen.coef_[0], chosen.intercept_[0]) if model is BINARY else (chosen.coef_, chosen.intercept_)
    g, g_b = model.gradient(x, b)
    assert group_distance(x, g, strength) <= 1e-5
    assert np.abs(g_b).max() <= 1e-5
    penalty = strength * sum(np.linalg.norm(x[..., members]) for members in MEMBERS.values())
    assert chosen.certificate_.objective == pytest.approx(model.loss(x, b) + penalty, rel=1e-9)


def test_groups_against_cvxpy():
    x, b = cp.Variable(8), cp.Variable()
    signed = np.where(BINARY.y, 1.0, -1.0)
    loss = cp.sum(cp.logistic(-cp.multiply(signed, D.dense @ x + b))) / 80
    penalty = sum(cp.norm(x[members]) for members in MEMBERS.values())
    optimum: Any = cp.Problem(cp.Minimize(loss + 0.06 * penalty)).solve(solver=cp.CLARABEL)
    chosen = E.FederatedLogisticRegression("group", groups=GROUPS, C=1 / (0.06 * 80)).fit(D.X, D.signs, sites=D.sites)
    assert chosen.certificate_.objective == pytest.approx(optimum, rel=1e-6)
    np.testing.assert_allclose(chosen.coef_[0], np.asarray(x.value), rtol=0, atol=1e-3)


def test_a_group_for_every_column_is_l1():
    groups = E.FederatedLogisticRegression("group", groups=np.arange(8), C=0.3, tol=1e-11).fit(
        D.X, D.signs, sites=D.sites
    )
    l1 = E.FederatedLogisticRegression("l1", C=0.3, tol=1e-11).fit(D.X, D.signs, sites=D.sites)
    np.testing.assert_allclose(groups.coef_, l1.coef_, rtol=0, atol=1e-4)


UPPER = 0.25
CONSTRAINTS: dict[str, Any] = {
    "non_negative": (R.NonNegative(), lambda x: [x >= 0]),
    "box": (R.Box(-0.1, UPPER), lambda x: [x >= -0.1, x <= UPPER]),
    "half_box": (R.Box(-np.inf, UPPER), lambda x: [x <= UPPER]),
    "l1_ball": (R.L1Ball(1.0), lambda x: [cp.norm1(x) <= 1.0]),
    "l2_ball": (R.L2Ball(0.5), lambda x: [cp.norm2(x) <= 0.5]),
    "linf_ball": (R.LInfBall(0.2), lambda x: [cp.norm_inf(x) <= 0.2]),
    "simplex": (R.Simplex(), lambda x: [x >= 0, cp.sum(x) == 1]),
}


def least_inner_product(name: str, g: np.ndarray) -> float:
    """min over the constraint of <g, z>; -inf where g leads out of it for ever."""
    if name == "non_negative":
        return 0.0 if (g >= 0).all() else -np.inf
    if name == "box":
        return float(np.minimum(-0.1 * g, UPPER * g).sum())
    if name == "half_box":
        return float((UPPER * g).sum()) if (g <= 0).all() else -np.inf
    norms = {"l1_ball": np.abs(g).max(), "l2_ball": 0.5 * np.linalg.norm(g), "linf_ball": 0.2 * np.abs(g).sum()}
    return float(g.min()) if name == "simplex" else -float(norms[name])


def violation(name: str, x: np.ndarray) -> float:
    """How far x is outside, each by its definition."""
    sums = np.abs(x).sum()
    return float(
        {
            "non_negative": -x.min(),
            "box": max(-0.1 - x.min(), x.max() - UPPER),
            "half_box": x.max() - UPPER,
            "l1_ball": sums - 1.0,
            "l2_ball": np.linalg.norm(x) - 0.5,
            "linf_ball": np.abs(x).max() - 0.2,
            "simplex": max(-x.min(), abs(x.sum() - 1.0)),
        }[name]
    )


@pytest.mark.parametrize("name", CONSTRAINTS)
@pytest.mark.parametrize("several", [False, True], ids=["one", "sites"])
def test_constraints(name: str, several: bool):
    """Feasible, active, and no direction inside descends: <g, z - x> >= 0 for every z of the constraint."""
    psi, limits = CONSTRAINTS[name]
    free = E.FederatedLogisticRegression(None).fit(D.X, D.signs)
    assert violation(name, free.coef_[0]) > 0.1
    chosen = E.FederatedLogisticRegression(psi, tol=1e-10).fit(D.X, D.signs, sites=D.sites if several else None)
    x, b = chosen.coef_[0], float(chosen.intercept_[0])
    assert violation(name, x) <= 1e-9
    assert chosen.certificate_.violation <= 1e-9
    g, g_b = BINARY.gradient(x, b)
    assert abs(g_b) <= 1e-6
    rounded = np.where(np.abs(g) < 1e-6, 0.0, g)  # where x is free of the constraint
    assert least_inner_product(name, rounded) - g @ x >= -1e-5
    assert chosen.certificate_.objective == pytest.approx(BINARY.loss(x, b), rel=1e-9)
    z, c = cp.Variable(8), cp.Variable()
    signed = np.where(BINARY.y, 1.0, -1.0)
    loss = cp.sum(cp.logistic(-cp.multiply(signed, D.dense @ z + c))) / 80
    optimum: Any = cp.Problem(cp.Minimize(loss), limits(z)).solve(solver=cp.CLARABEL)
    assert BINARY.loss(x, b) == pytest.approx(optimum, rel=1e-6)
    np.testing.assert_allclose(x, np.asarray(z.value), rtol=0, atol=2e-3)


def test_a_box_against_bounded_lbfgs():
    def value_and_gradient(z: np.ndarray) -> tuple[float, np.ndarray]:
        g, g_b = BINARY.gradient(z[:8], z[8])
        return BINARY.loss(z[:8], z[8]), np.append(g, g_b)

    bounds = [(-0.1, UPPER)] * 8 + [(None, None)]
    options = {"ftol": 1e-15, "gtol": 1e-10, "maxiter": 10_000}
    truth = minimize(value_and_gradient, np.zeros(9), jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    chosen = E.FederatedLogisticRegression(R.Box(-0.1, UPPER)).fit(D.X, D.signs, sites=D.sites)
    np.testing.assert_allclose(np.append(chosen.coef_[0], chosen.intercept_), truth.x, rtol=0, atol=1e-4)


def test_a_ball_that_holds_the_free_fit_changes_nothing():
    free = E.FederatedLogisticRegression(None).fit(D.X, D.signs, sites=D.sites)
    held = E.FederatedLogisticRegression(R.L2Ball(100.0)).fit(D.X, D.signs, sites=D.sites)
    np.testing.assert_allclose(held.coef_, free.coef_, rtol=0, atol=1e-4)


def test_three_classes_in_a_ball():
    chosen = E.FederatedLogisticRegression(R.L2Ball(0.7), tol=1e-10).fit(D.X, D.kinds, sites=D.sites)
    x = chosen.coef_
    g, g_b = KINDS.gradient(x, chosen.intercept_)
    assert np.linalg.norm(x) == pytest.approx(0.7, abs=1e-6)
    assert -0.7 * np.linalg.norm(g) - (g * x).sum() >= -1e-6
    assert np.abs(g_b).max() <= 1e-6


@pytest.mark.parametrize("C", [0.1, 0.3])
def test_three_classes_with_l1(C: float):
    chosen = E.FederatedLogisticRegression("l1", C=C, tol=1e-11).fit(D.X, D.kinds, sites=D.sites)
    model = KINDS._replace(l1=1 / (C * 80))
    assert 0 < np.count_nonzero(chosen.coef_) < 24
    assert model.stationarity(chosen.coef_, chosen.intercept_, D.sizes) <= 1e-5


def low_rank(n: int = 90, rows: int = 5, columns: int = 4) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    A = rng.standard_normal((n, rows, columns))
    truth = np.outer(rng.standard_normal(rows), rng.standard_normal(columns))
    y = np.tensordot(A, truth, 2) + 2.0 + 0.3 * rng.standard_normal(n)
    return A, y, unequal_sites(n, rng)


def matrix_gradient(A: np.ndarray, y: np.ndarray, w: np.ndarray, chosen: Any) -> tuple[np.ndarray, float]:
    slopes = w * (np.tensordot(A, chosen.coef_, 2) + chosen.intercept_ - y)
    return np.tensordot(slopes, A, 1), float(slopes.sum())


def check_nuclear(G: np.ndarray, x: np.ndarray, alpha: float) -> int:
    """G + alpha (U V' + W) = 0 with W orthogonal to U and V and of spectral norm at most one. Returns the rank."""
    U, s, Vt = np.linalg.svd(x, full_matrices=False)
    rank = int((s > 1e-8).sum())
    U, Vt = U[:, :rank], Vt[:rank]
    np.testing.assert_allclose(U.T @ G, -alpha * Vt, rtol=0, atol=1e-5)
    np.testing.assert_allclose(G @ Vt.T, -alpha * U, rtol=0, atol=1e-5)
    rest = G - U @ U.T @ G - G @ Vt.T @ Vt + U @ U.T @ G @ Vt.T @ Vt
    assert np.linalg.norm(rest, 2) <= alpha + 1e-5
    return rank


@pytest.mark.parametrize("weights", ["examples", "uniform"])
@pytest.mark.parametrize("several", [False, True], ids=["one", "sites"])
def test_low_rank_matrices(several: bool, weights: str):
    A, y, sites = low_rank()
    alpha = 0.4
    chosen = E.FederatedMatrixRegression(alpha, tol=1e-11, weights=weights).fit(A, y, sites=sites if several else None)
    w = even(90)
    if several and weights == "uniform":
        _, site, counts = np.unique(sites, return_inverse=True, return_counts=True)
        w = 1 / (4 * counts[site])
    assert chosen.coef_.shape == (5, 4)
    G, g_b = matrix_gradient(A, y, w, chosen)
    assert 0 < check_nuclear(G, chosen.coef_, alpha) < 4
    assert abs(g_b) <= 1e-6
    loss = w @ (np.tensordot(A, chosen.coef_, 2) + chosen.intercept_ - y) ** 2 / 2
    objective = loss + alpha * np.linalg.norm(chosen.coef_, "nuc")
    assert chosen.certificate_.objective == pytest.approx(objective, rel=1e-9)
    np.testing.assert_allclose(
        chosen.predict(A), np.tensordot(A, chosen.coef_, 2) + chosen.intercept_, rtol=0, atol=1e-9
    )
    assert chosen.score(A, y) > 0.5


def test_low_rank_matrices_against_cvxpy():
    A, y, sites = low_rank(40, 3, 4)
    X, b = cp.Variable((3, 4)), cp.Variable()
    scores = A.reshape(40, 12) @ cp.vec(X, order="C") + b
    optimum: Any = cp.Problem(cp.Minimize(cp.sum_squares(scores - y) / 80 + 0.3 * cp.normNuc(X))).solve(
        solver=cp.CLARABEL
    )
    chosen: Any = E.FederatedMatrixRegression(0.3).fit(A, y, sites=sites)
    assert chosen.certificate_.objective == pytest.approx(optimum, rel=1e-6)
    np.testing.assert_allclose(chosen.coef_, np.asarray(X.value), rtol=0, atol=1e-3)
    assert chosen.certificate_.duality_gap >= chosen.certificate_.objective - optimum - 1e-6 * optimum


def test_matrices_may_come_as_rows():
    A, y, sites = low_rank()
    cubes = E.FederatedMatrixRegression(0.4, tol=1e-11).fit(A, y, sites=sites)
    rows = E.FederatedMatrixRegression(0.4, tol=1e-11, shape=(5, 4)).fit(A.reshape(90, 20), y, sites=sites)
    np.testing.assert_allclose(rows.coef_, cubes.coef_, rtol=0, atol=1e-8)
    np.testing.assert_allclose(rows.predict(A.reshape(90, 20)), cubes.predict(A), rtol=0, atol=1e-8)


def test_matrices_of_one_column_have_the_norm_of_a_vector():
    """Of one column the nuclear norm is the length: the gradient is -alpha x / ||x||, or not longer than alpha at zero."""
    chosen = E.FederatedMatrixRegression(0.5, tol=1e-11).fit(D.X, D.y, sites=D.sites)
    x = chosen.coef_.ravel()
    assert chosen.coef_.shape == (8, 1)
    g, g_b = Model("squares", D.dense, D.y, even(80)).gradient(x, float(chosen.intercept_))
    np.testing.assert_allclose(g, -0.5 * x / np.linalg.norm(x), rtol=0, atol=1e-5)
    assert abs(g_b) <= 1e-6
    strong = 1.001 * np.linalg.norm((D.dense - D.dense.mean(0)).T @ (D.y - D.y.mean()) / 80)
    assert not E.FederatedMatrixRegression(strong).fit(D.X, D.y, sites=D.sites).coef_.any()


def test_matrices_with_sample_weights():
    A, y, sites = low_rank()
    weight = np.random.default_rng(0).integers(0, 4, 90)
    weighted = E.FederatedMatrixRegression(0.3, tol=1e-11).fit(A, y, sites=sites, sample_weight=weight)
    repeated = E.FederatedMatrixRegression(0.3, tol=1e-11).fit(
        np.repeat(A, weight, 0), np.repeat(y, weight), sites=np.repeat(sites, weight)
    )
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, rtol=0, atol=1e-5)
