"""Local methods: closed forms of their rounds, what `finish` adds, and steps that the theory chooses."""

from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Lasso

import fedlocal as fl
from fedlocal.core.types import WeightsName
from unit.estimators.pooled_truths import Model, even, make, soft_threshold, strongest

E = fl.estimators
COMPOSITE = ("fed_dual_avg", "fed_mid")
SMOOTH = ("fed_avg", "fed_ac_one")


def sparse_fit(kind: str, **options: Any) -> Any:
    if kind == "lasso":
        return E.FederatedLasso(0.2, **options)
    return E.FederatedLogisticRegression("l1", C=0.3, **options)


def smooth_fit(kind: str, **options: Any) -> Any:
    if kind == "ridge":
        return E.FederatedElasticNet(0.2, l1_ratio=0.0, **options)
    return E.FederatedLogisticRegression("l2", C=0.3, **options)


THOROUGH = pytest.mark.thorough
PLAIN = {"fed_dual_avg-lasso", "fed_dual_avg-l1_logistic", "fed_mid-lasso", "fed_avg-l2_logistic", "fed_ac_one-ridge"}
FITS = [
    pytest.param(method, fit, kind, id=f"{method}-{kind}", marks=() if f"{method}-{kind}" in PLAIN else THOROUGH)
    for fit, kinds, methods in (
        (sparse_fit, ("lasso", "l1_logistic"), COMPOSITE),
        (smooth_fit, ("ridge", "l2_logistic"), SMOOTH + COMPOSITE),
    )
    for kind in kinds
    for method in methods
]


def unfinished(chosen: Any, *arguments: Any, **options: Any) -> Any:
    """A fit that has to warn."""
    with pytest.warns(ConvergenceWarning):
        return chosen.fit(*arguments, **options)


@pytest.mark.parametrize(("method", "fit", "kind"), FITS)
@pytest.mark.parametrize("name", [pytest.param("dense", marks=THOROUGH), "unscaled"])
def test_a_finished_local_method_is_prox_newton(method: str, fit: Any, kind: str, name: str):
    D = make(name)
    y = D.signs if "logistic" in kind else D.y
    local = fit(kind, method=method, local_rounds=10, tol=1e-11).fit(D.X, y, sites=D.sites)
    newton = fit(kind, tol=1e-11).fit(D.X, y, sites=D.sites)
    np.testing.assert_allclose(local.coef_ * D.sizes, newton.coef_ * D.sizes, rtol=0, atol=1e-4)
    assert local.certificate_.objective == pytest.approx(newton.certificate_.objective, rel=1e-8)
    phases = list(local.history_["phase"])
    assert "local" in phases
    assert phases == sorted(phases, key=lambda phase: phase != "local")  # first the local rounds
    assert phases.count("local") <= 11


@pytest.mark.parametrize(("method", "fit", "kind"), FITS)
def test_more_rounds_come_closer(method: str, fit: Any, kind: str):
    D = make("dense")
    y = D.signs if "logistic" in kind else D.y
    optimum = fit(kind, tol=1e-11).fit(D.X, y, sites=D.sites).certificate_.objective
    missing = []
    for rounds in (1, 10, 200):
        chosen = fit(kind, method=method, local_rounds=rounds, local_steps=2, finish=False)
        unfinished(chosen, D.X, y, sites=D.sites)
        missing.append(chosen.certificate_.objective - optimum)
    assert min(missing) > -1e-9 * optimum
    assert missing[0] > missing[1]
    assert (
        missing[0] > 20 * missing[2] or method == "fed_mid"
    )  # which counts the penalty at the sites and at the server


@pytest.mark.parametrize(("method", "fit", "kind"), FITS)
@pytest.mark.parametrize("sites", [pytest.param(False, marks=THOROUGH, id="one"), pytest.param(True, id="sites")])
def test_steps_by_theory_do_not_diverge_on_unscaled_data(method: str, fit: Any, kind: str, sites: bool):
    D = make("unscaled")
    y = D.signs if "logistic" in kind else D.y
    chosen = fit(kind, method=method, local_rounds=30, finish=False)
    unfinished(chosen, D.X, y, sites=D.sites if sites else None)
    objective = chosen.history_["objective"].to_numpy()
    assert np.isfinite(objective).all()
    assert np.isfinite(chosen.coef_).all()
    loss = Model("logistic", D.dense, D.signs == "yes", even(80)) if "logistic" in kind else None
    start = np.log(2) if loss is not None else float((D.y**2).mean() / 2)
    assert objective[-1] <= start * (1 + 1e-9)


def moments(D: Any, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of the mean of half the squares over these rows: Hessian, and minus the gradient at zero."""
    X, y = D.dense[rows], D.y[rows]
    return X.T @ X / len(y), X.T @ y / len(y)


def test_fed_avg_at_one_site_is_gradient_descent():
    """x after T steps is (I - (I - eta H)^T) x*, whatever part of them is a round."""
    D = make("dense")
    H, h = moments(D, np.ones(80, bool))
    eta, rounds, steps = 0.1, 6, 5
    best = np.linalg.solve(H, h)
    wanted = best - np.linalg.matrix_power(np.eye(8) - eta * H, rounds * steps) @ best
    chosen = E.FederatedLinearRegression(
        fit_intercept=False,
        method="fed_avg",
        client_step_size=eta,
        server_step_size=1.0,
        local_steps=steps,
        local_rounds=rounds,
        finish=False,
    )
    unfinished(chosen, D.X, D.y)
    np.testing.assert_allclose(chosen.coef_, wanted, rtol=0, atol=1e-9)


@pytest.mark.parametrize("weights", ["examples", "uniform"])
def test_fed_avg_at_several_sites_in_closed_form(weights: WeightsName):
    """A round takes x to sum_m p_m (x_m* + (I - eta H_m)^K (x - x_m*)), where sites walk towards their own optima."""
    D = make("dense")
    names, counts = np.unique(D.sites, return_counts=True)
    p = counts / 80 if weights == "examples" else np.full(4, 0.25)
    eta, rounds, steps = 0.05, 7, 4
    x = np.zeros(8)
    for _ in range(rounds):
        ends = []
        for name in names:
            H, h = moments(D, D.sites == name)
            end = x
            for _ in range(steps):
                end = end - eta * (H @ end - h)
            ends.append(end)
        x = p @ np.array(ends)
    chosen = E.FederatedLinearRegression(
        fit_intercept=False,
        weights=weights,
        method="fed_avg",
        client_step_size=eta,
        server_step_size=1.0,
        local_steps=steps,
        local_rounds=rounds,
        finish=False,
    )
    unfinished(chosen, D.X, D.y, sites=D.sites)
    np.testing.assert_allclose(chosen.coef_, x, rtol=0, atol=1e-9)


def test_fed_dual_avg_at_several_sites_in_numpy():
    """The dissertation's box: sites walk in the dual space; the weight of the penalty is the length walked so far."""
    D = make("dense")
    names, counts = np.unique(D.sites, return_counts=True)
    eta, eta_server, rounds, steps, alpha = 0.05, 0.7, 6, 3, 0.3
    dual, walked = np.zeros(8), 0.0
    for _ in range(rounds):
        changes = []
        for name in names:
            H, h = moments(D, D.sites == name)
            local = dual
            for k in range(steps):
                x = soft_threshold(local, alpha * (walked + k * eta))
                local = local - eta * (H @ x - h)
            changes.append(local - dual)
        dual = dual + eta_server * (counts / 80) @ np.array(changes)
        walked += eta_server * eta * steps
    wanted = soft_threshold(dual, alpha * walked)
    chosen = E.FederatedLasso(
        alpha,
        fit_intercept=False,
        method="fed_dual_avg",
        client_step_size=eta,
        server_step_size=eta_server,
        local_steps=steps,
        local_rounds=rounds,
        finish=False,
    )
    unfinished(chosen, D.X, D.y, sites=D.sites)
    assert 0 < np.count_nonzero(wanted) < 8
    np.testing.assert_allclose(chosen.coef_, wanted, rtol=0, atol=1e-9)


def test_fed_mid_at_several_sites_in_numpy():
    """The dissertation's box: proximal steps at the sites, the mean of the points, and a proximal step of the server."""
    D = make("dense")
    names, counts = np.unique(D.sites, return_counts=True)
    eta, eta_server, rounds, steps, alpha = 0.05, 0.7, 6, 3, 0.1
    x = np.zeros(8)
    for _ in range(rounds):
        ends = []
        for name in names:
            H, h = moments(D, D.sites == name)
            end = x
            for _ in range(steps):
                end = soft_threshold(end - eta * (H @ end - h), eta * alpha)
            ends.append(end)
        mean = counts / 80 @ np.array(ends)
        x = soft_threshold(x + eta_server * (mean - x), eta_server * eta * steps * alpha)
    chosen = E.FederatedLasso(
        alpha,
        fit_intercept=False,
        method="fed_mid",
        client_step_size=eta,
        server_step_size=eta_server,
        local_steps=steps,
        local_rounds=rounds,
        finish=False,
    )
    unfinished(chosen, D.X, D.y, sites=D.sites)
    assert 0 < np.count_nonzero(x) < 8
    np.testing.assert_allclose(chosen.coef_, x, rtol=0, atol=1e-9)


def test_one_site_needs_no_finish_to_reach_the_lasso():
    """With one site there is no drift: dual averaging alone arrives, stops at `tol` and does not warn."""
    D = make("dense")
    alpha = 0.2 * strongest(D.dense, D.y)
    truth = Lasso(alpha, tol=1e-12).fit(D.dense, D.y)
    chosen = E.FederatedLasso(alpha, method="fed_dual_avg", local_rounds=2000, local_steps=5, finish=False)
    chosen.fit(D.X, D.y)
    np.testing.assert_allclose(chosen.coef_, truth.coef_, rtol=0, atol=1e-4)
    assert len(chosen.history_) < 2000


def test_local_rounds_are_counted():
    D = make("dense")
    few, many = (
        unfinished(
            E.FederatedLasso(0.2, method="fed_dual_avg", local_rounds=rounds, finish=False), D.X, D.y, sites=D.sites
        )
        for rounds in (3, 9)
    )
    assert many.communication_.numbers_up > few.communication_.numbers_up
    assert many.communication_.rounds >= few.communication_.rounds + 6
    assert (few.n_iter_, many.n_iter_) == (3, 9)
