"""The local model against runs: exact on quadratics, right to first order in what a quadratic leaves out."""

from dataclasses import replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import fedlocal as fl
from fedlocal.methods import FedAc, FedAvg, MinibatchAcSGD, MinibatchSGD
from fedlocal.theory.advice.local_fit import fit_local_model
from fedlocal.theory.bias.quadrature import Uniform, exact_bias
from fedlocal.theory.constructions.lower_bound_instances import log_cosh_instance
from paths import SHARED

TABLE = SHARED / "reference/a9a_1e-3.csv"
METHODS: dict[str, fl.LocalMethod] = {
    "fed_avg": FedAvg(0.1, 0.7),
    "fed_ac_one": FedAc.one(step_size=0.2, strong_convexity=0.1, local_steps=6),
    "fed_ac_two": FedAc.two(step_size=0.2, strong_convexity=0.1, local_steps=6),
    "minibatch_sgd": MinibatchSGD(0.5),
    "minibatch_ac_sgd": MinibatchAcSGD(0.3, 0.1),
}
CURVED = np.array([[1.5, 0.4, 0.0], [0.4, 0.8, 0.1], [0.0, 0.1, 0.2]])


def quadratics(clients: int = 4, noise: float = 0.0, spread: float = 0.0, bent: float = 0.0) -> Any:
    """Quadratics around (1, -1, 2): of other optima by `spread`, of other curvatures by `bent`."""
    rng = np.random.default_rng(0)
    matrices = np.stack([CURVED * (1 + bent * s) for s in rng.permutation(np.linspace(-1, 1, clients))])
    shifts = rng.standard_normal((clients, 3)) * spread
    return fl.problems.quadratics(matrices, np.array([1.0, -1.0, 2.0]) + shifts - shifts.mean(axis=0), noise_std=noise)


def model_of(problem: Any, batch_size: int | None = None) -> Any:
    solution = fl.solvers.centralized(problem, x0=np.zeros(3)).x
    return fit_local_model(
        problem, solution, np.zeros(3), np.full(problem.num_clients, 1 / problem.num_clients), batch_size
    )


@cache
def model_of_equal_quadratics(noise: float = 0.0, batch_size: int | None = None) -> Any:
    return model_of(quadratics(noise=noise), batch_size)


@pytest.mark.parametrize("name", METHODS)
def test_without_noise_on_equal_quadratics_the_prediction_is_the_run(name: str):
    problem, method = quadratics(), METHODS[name]
    run = fl.simulate(problem, method, rounds=13, local_steps=6, x0=np.zeros(3), progress=False)
    predicted = model_of_equal_quadratics().predict([method], 13, 6)[0]
    np.testing.assert_allclose(predicted, run.history["loss"].iloc[-1], rtol=1e-9)


@pytest.mark.parametrize("name", ["fed_ac_one", "fed_ac_two", "minibatch_ac_sgd"])
def test_so_it_is_for_runs_on_the_augmented_objective_whose_error_is_that_of_f(name: str):
    lam, problem, method = 0.1, quadratics(), METHODS[name]
    augmented = fl.problems.augmented(problem, lam, np.zeros(3))
    run = fl.simulate(
        augmented, method, rounds=13, local_steps=6, progress=False, metrics=[fl.metrics.Loss(problem, "F")]
    )
    predicted = model_of_equal_quadratics().predict([method], 13, 6, regularization=lam)[0]
    np.testing.assert_allclose(predicted, run.history["F"].iloc[-1], rtol=1e-9)
    assert predicted > 1.5 * model_of_equal_quadratics().predict([method], 13, 6)[0]  # lambda has a price


@pytest.mark.parametrize(
    "name",
    [n if n in ("fed_ac_one", "minibatch_ac_sgd") else pytest.param(n, marks=pytest.mark.thorough) for n in METHODS],
)
def test_with_noise_on_quadratics_the_prediction_is_the_mean_over_runs(name: str):
    """A problem of 300 copies in coordinates of their own is 300 runs at once."""
    copies, method = 300, METHODS[name]
    many = fl.problems.quadratics([np.kron(np.eye(copies), CURVED)] * 4, [[1.0, -1.0, 2.0] * copies] * 4, noise_std=0.7)
    start = np.zeros(3 * copies)
    run = fl.simulate(many, method, rounds=8, local_steps=6, batch_size=1, x0=start, eval_every=8, progress=False)
    off = np.asarray(run.x).reshape(copies, 3) - [1.0, -1.0, 2.0]
    losses = np.einsum("ci,ij,cj->c", off, CURVED, off) / 2
    model = model_of_equal_quadratics(noise=0.7, batch_size=1)
    np.testing.assert_allclose(model.noise, 0.49, rtol=0.25)  # of 512 draws
    predicted = replace(model, noise=np.full(3, 0.49)).predict([method], 8, 6)[0]
    error = losses.std() / np.sqrt(copies)
    assert error < 0.1 * losses.mean()
    assert abs(predicted - losses.mean()) < 4 * error


def test_clients_that_stay_away_add_the_variance_of_what_they_would_have_said():
    clients, copies, method = 12, 20, FedAvg(0.1)
    optima = np.random.default_rng(0).standard_normal((clients, 3 * copies))
    optima = optima - optima.mean(axis=0)
    problem = fl.problems.quadratics([np.kron(np.eye(copies), CURVED)] * clients, optima)
    start = np.zeros(3 * copies)
    model = fit_local_model(problem, start, start, np.full(clients, 1 / clients), None)
    assert model is not None
    predicted = model.predict([method], 40, 4, participation=0.5)[0]
    run = {"rounds": 40, "local_steps": 4, "clients_per_round": 6, "x0": start, "eval_every": 40, "progress": False}
    lowest = fl.simulate(problem, method, **{**run, "rounds": 0}).history["loss"].iloc[-1]
    ends = np.array([fl.simulate(problem, method, seed=s, **run).history["loss"].iloc[-1] for s in range(25)]) - lowest
    assert predicted == pytest.approx(ends.mean(), abs=4 * ends.std() / np.sqrt(25))
    assert ends.std() / np.sqrt(25) < 0.1 * ends.mean()


def test_clients_of_other_curvature_and_optimum_move_the_fixed_point():
    problem = quadratics(clients=5, spread=0.5, bent=0.3)
    lowest = fl.solvers.centralized(problem, x0=np.zeros(3)).objective
    model = model_of(problem)
    cases = [(FedAvg(0.01), 8), (FedAc.one(step_size=0.01, strong_convexity=0.15, local_steps=8), 8), (FedAvg(0.2), 20)]
    for method, steps in cases:
        run = {"rounds": 4000, "local_steps": steps, "x0": np.zeros(3), "eval_every": 4000, "progress": False}
        floor = fl.simulate(problem, method, **run).history["loss"].iloc[-1] - lowest
        assert floor > 1e-8
        assert model.predict([method], 4000, steps)[0] == pytest.approx(floor, rel=0.25)


def test_noise_that_grows_with_the_distance_from_the_optimum():
    """Least squares without noise in the targets: stochastic gradients differ by their Hessians alone."""
    rng = np.random.default_rng(0)
    features = rng.standard_normal((500, 4)) * [1.0, 0.7, 0.5, 0.3]
    data = fl.FederatedData.shared(features, features @ [1.0, -1.0, 2.0, 1.0], num_clients=1)
    problem, start = fl.problems.LeastSquares(data, intercept=False), {"weights": np.zeros(4)}
    model = fit_local_model(problem, {"weights": np.array([1.0, -1.0, 2.0, 1.0])}, start, np.ones(1))
    assert model is not None
    np.testing.assert_allclose(model.noise, 0, atol=1e-20)
    method = FedAvg(0.1)
    run = {"rounds": 6, "local_steps": 8, "batch_size": 1, "eval_every": 6, "progress": False, "engine": "jax"}
    ends = [fl.simulate(problem, method, seed=s, **run).history["loss"].iloc[-1] for s in range(80)]
    even = replace(model, uneven=np.zeros((4, 4))).predict([method], 6, 8)[0]
    predicted = model.predict([method], 6, 8)[0]
    assert np.mean(ends) > 1.3 * even
    assert predicted == pytest.approx(np.mean(ends), rel=0.3)
    assert np.std(ends) / np.sqrt(80) < 0.1 * np.mean(ends)


def test_the_skew_is_the_iterate_bias():
    problem = log_cosh_instance(smoothness=1.0, third_order=0.5, noise=1.0)
    model = fit_local_model(problem, jnp.zeros(()), jnp.zeros(()), np.ones(1), batch_size=1)
    assert model is not None
    np.testing.assert_allclose(model.skew, [[0.5]], rtol=1e-9)
    silent = replace(model, noise=np.array([1 / 3]), share=0.0)  # infinitely many clients
    predicted = silent.predict([FedAvg(0.02)], 1, 16)[0]
    bias = float(exact_bias(problem, 0.0, 0.02, [16], Uniform(1.0))[0])
    assert np.sqrt(2 * predicted / silent.curvature[0]) == pytest.approx(abs(bias), rel=0.02)


@pytest.mark.skipif(not TABLE.exists(), reason="needs ../shared/reference/a9a_1e-3.csv, the published losses")
def test_the_published_table_of_a9a_is_predicted():
    """Final losses of the author's runs near their best step sizes, which no part of the model has seen."""
    features, labels = fl.data.a9a()
    problem = fl.problems.Logistic(fl.FederatedData.shared(features, labels, num_clients=64), l2=1e-3)
    one = fl.problems.Logistic(fl.FederatedData.shared(features, labels, num_clients=1), l2=1e-3)
    solution = fl.solvers.centralized(one)
    start = {"weights": np.random.RandomState(1).randn(123)}
    model = fit_local_model(problem, solution.x, start, np.full(64, 1 / 64))
    assert model is not None
    published: Any = pd.read_csv(TABLE)
    ratios = []
    for name, build in {
        "fed_avg": lambda eta, k: FedAvg(eta),
        "fed_ac_1": lambda eta, k: FedAc.one(step_size=eta, strong_convexity=1e-3, local_steps=k),
        "minibatch_ac_sgd": lambda eta, k: MinibatchAcSGD(eta, 1e-3),
        "minibatch_sgd": lambda eta, k: MinibatchSGD(eta),
    }.items():
        for steps in (4, 32, 128):
            rows = published[(published["method"] == name) & (published["M"] == 64) & (published["K"] == steps)]
            errors = rows.set_index("eta")["final_loss"] - solution.objective
            near = errors[errors < 4 * errors.min()]
            predicted = model.predict([build(eta, steps) for eta in near.index], 4096 // steps, steps)
            ratios += list(np.log(predicted / near.to_numpy()))
    finite = [ratio for ratio in ratios if np.isfinite(ratio)]
    assert len(ratios) > 25
    assert len(finite) > 0.9 * len(ratios)
    assert np.median(np.abs(finite)) < np.log(1.3)
    assert np.quantile(np.abs(finite), 0.9) < np.log(2)


def test_the_model_needs_a_recurrence_without_a_regulariser():
    model = model_of_equal_quadratics()
    with pytest.raises(TypeError, match="FedDualAvg is not an affine recurrence without a regulariser"):
        model.predict([fl.methods.FedDualAvg(0.1, regularizer=fl.regularizers.L1(0.1))], 3, 2)


def test_coordinates_that_a_regulariser_holds_are_left_out():
    problem, psi = quadratics(), fl.regularizers.L1(0.5)
    solution = fl.solvers.centralized(problem, psi, x0=np.zeros(3)).x
    model = fit_local_model(problem, solution, np.zeros(3), np.full(4, 0.25), None, psi)
    kept = np.flatnonzero(solution)
    assert 0 < len(kept) < 3
    assert model is not None
    np.testing.assert_allclose(model.curvature, np.linalg.eigvalsh(CURVED[np.ix_(kept, kept)]), rtol=1e-9)
    for psi in (fl.regularizers.L2Ball(1.0), fl.regularizers.SquaredL2(0.1)):
        assert fit_local_model(problem, solution, np.zeros(3), np.full(4, 0.25), None, psi) is None


@pytest.mark.parametrize("intercept", [True, pytest.param(False, marks=pytest.mark.thorough)])
def test_derivatives_of_scores_are_those_of_automatic_differentiation(intercept: bool):
    """The same logistic regression as a linear model and as a loss that nothing is known about."""
    rng = np.random.default_rng(0)
    features, labels = rng.standard_normal((60, 3)), np.sign(rng.standard_normal(60))
    data = fl.FederatedData.shared(features, labels, num_clients=2)
    known = fl.problems.Logistic(data, l2=0.1, intercept=intercept)
    solution = fl.solvers.centralized(known).x
    start, p = jax.tree.map(np.zeros_like, solution), np.full(2, 0.5)

    def loss(params, a, b):
        score = a @ params["weights"] + (params["intercept"] if intercept else 0.0)
        return jax.nn.softplus(-b * score) + 0.05 * jnp.sum(params["weights"] ** 2)

    one = fit_local_model(known, solution, start, p, None)
    two = fit_local_model(fl.Problem(loss, data), solution, start, p, None)
    assert one is not None
    assert two is not None
    np.testing.assert_allclose(one.curvature, two.curvature, rtol=1e-9)
    np.testing.assert_allclose(np.abs(one.start), np.abs(two.start), rtol=1e-7, atol=1e-10)
    np.testing.assert_allclose(np.abs(one.skew), np.abs(two.skew), rtol=1e-6, atol=1e-10)
