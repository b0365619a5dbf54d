"""Bad input: one table of calls and the words that the sentence must hold. Who, what it got, what would work."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedlocal as fl
from fedlocal.methods.table import ROWS, MethodArguments, MethodRow

M, R = fl.methods, fl.regularizers
Call = Callable[[], Any]
ETAS = {"zero": (0, "0"), "negative": (-1, "-1"), "nan": (np.nan, "nan"), "inf": (np.inf, "inf"), "text": ("x", "'x'")}
RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((6, 3)), RNG.standard_normal(6)
SIGNS = np.where(Y > 0, 1, -1)


def data(features: Any = X, targets: Any = Y) -> fl.FederatedData:
    return fl.FederatedData.from_groups((features, targets), [0, 0, 0, 0, 1, 1])


PROBLEM = fl.problems.LeastSquares(data())
ORACLE = fl.problems.quadratics(matrices=np.ones((2, 1, 1)), optima=np.zeros((2, 1)))
CUSTOM = fl.Problem(lambda x, a, b: (a @ x - b) ** 2, data())


def run(problem: Any = PROBLEM, method: Any = None, **arguments: Any) -> Call:
    """A call of `simulate` that is fine but for what is given."""
    method = M.FedAvg(0.1) if method is None else method
    arguments = {
        "rounds": 1,
        "progress": False,
        **({} if "local_epochs" in arguments else {"local_steps": 1}),
    } | arguments
    return lambda: fl.simulate(problem, method, **arguments)


def composite(psi: Any, **arguments: Any) -> Call:
    return run(method=M.FedDualAvg(0.1, regularizer=psi), **arguments)


def from_table(row: MethodRow, step_size: Any = 0.1, server_step_size: Any = 1.0) -> fl.LocalMethod:
    """A method of the table with these step sizes."""
    psi = R.L1(1.0) if row.composite else R.Zero()
    arguments = MethodArguments(step_size, server_step_size, strong_convexity=1.0, proximity=0.1, regularizer=psi)
    return row.make(arguments)


def step_sizes() -> dict[str, tuple[str, str, Callable[[Any], Any]]]:
    """For every step size of the methods: who refuses it, by which name, and the call."""
    calls: dict[str, tuple[str, str, Callable[[Any], Any]]] = {}
    for row in ROWS:
        method = from_table(row)
        owner = type(method).__name__ + "." * row.key.startswith("fed_ac_") + row.key.partition("fed_ac_")[2]
        name = "client_step_size" if hasattr(method, "client_step_size") else "step_size"
        calls[row.key] = (owner, name, lambda eta, row=row: from_table(row, eta))
        if hasattr(method, "server_step_size"):
            server = lambda eta, row=row: from_table(row, 0.1, eta)  # noqa: E731
            calls[f"{row.key}_server"] = (owner, "server_step_size", server)
    return calls


STEP_SIZES = step_sizes() | {
    "proximal_gradient": ("ProximalGradient", "step_size", lambda eta: M.ProximalGradient(eta)),
    "fed_ac": ("GeneralFedAc", "eta", lambda eta: M.GeneralFedAc(alpha=2.0, beta=2.0, eta=eta, gamma=0.1)),
    "agd": ("AGD", "smoothness", lambda smoothness: M.AGD(smoothness, 0.1)),
    "array_of_step_sizes": ("FedAvg", "client_step_size", lambda eta: M.FedAvg([0.1, eta])),
}

METHODS: dict[str, tuple[Call, tuple[str, ...]]] = {
    "server_step_size_and_optimizer": (
        lambda: M.FedAvg(0.1, 1.0, optax.adam(0.1)),
        ("FedAvg", "server_step_size", "server_optimizer", "not both"),
    ),
    "server_optimizer_by_name": (
        lambda: M.FedAvg(0.1, server_optimizer="adam"),
        ("FedAvg", "server_optimizer must be a GradientTransformation", "'adam'"),
    ),
    "fed_ac_alpha": (
        lambda: M.GeneralFedAc(alpha=0.5, beta=2.0, eta=0.1, gamma=0.1),
        ("FedAc", "alpha must be >= 1", "0.5"),
    ),
    "fed_ac_beta": (
        lambda: M.GeneralFedAc(alpha=2.0, beta=0.5, eta=0.1, gamma=0.1),
        ("FedAc", "beta must be >= 1", "0.5"),
    ),
    "fed_ac_one_coupling": (
        lambda: M.FedAc.one(step_size=2.0, strong_convexity=3.0, local_steps=1),
        ("FedAc.one", "step_size * strong_convexity must be <= 1", "2.0 * 3.0"),
    ),
    "fed_ac_two_coupling": (
        lambda: M.FedAc.two(step_size=2.0, strong_convexity=0.5, local_steps=1),
        ("FedAc.two", "step_size * strong_convexity must be < 1", "2.0 * 0.5"),
    ),
    "fed_ac_vanilla_coupling": (
        lambda: M.FedAc.vanilla(step_size=2.0, strong_convexity=3.0),
        ("FedAc.vanilla", "step_size * strong_convexity must be <= 1", "2.0 * 3.0"),
    ),
    "minibatch_ac_sgd_coupling": (
        lambda: M.MinibatchAcSGD(2.0, 3.0),
        ("MinibatchAcSGD", "step_size * strong_convexity must be <= 1", "2.0 * 3.0"),
    ),
    "fed_ac_local_steps": (
        lambda: M.FedAc.one(step_size=0.1, strong_convexity=0.1, local_steps=0),
        ("FedAc.one", "local_steps", ">= 1", "got 0"),
    ),
    "agd_kappa_below_one": (
        lambda: M.AGD(smoothness=1.0, strong_convexity=2.0),
        ("AGD", "smoothness must be >= strong_convexity", "1.0 and 2.0"),
    ),
    "agd_kappa_below_one_in_an_array": (
        lambda: M.AGD(smoothness=np.array([4.0, 1.0]), strong_convexity=2.0),
        ("AGD", "smoothness must be >= strong_convexity", "2.0"),
    ),
    "regularizer_is_a_number_in_fed_dual_avg": (
        lambda: M.FedDualAvg(0.1, 1.0, 0.3),
        ("FedDualAvg", "regularizer must be a Regularizer", "0.3"),
    ),
    "regularizer_is_a_number_in_fed_mid": (
        lambda: M.FedMiD(0.1, 1.0, 0.3),
        ("FedMiD", "regularizer must be a Regularizer", "0.3"),
    ),
    "client_share_above_one": (
        lambda: M.FedMiD(0.1, 1.0, R.L1(0.1), client_share=1.5),
        ("FedMiD", "client_share must be >= 0 and <= 1", "1.5"),
    ),
    "client_share_without_prox_on_clients": (
        lambda: M.FedMiD(0.1, 1.0, R.L1(0.1), prox_on_clients=False, client_share=0.5),
        ("FedMiD", "client_share must be None or 0 with prox_on_clients=False", "0.5"),
    ),
    "regularizer_is_a_number_in_subgradient_fed_avg": (
        lambda: M.SubgradientFedAvg(0.1, 0.3),
        ("SubgradientFedAvg", "regularizer must be a Regularizer", "0.3"),
    ),
    "regularizer_is_a_number_in_proximal_gradient": (
        lambda: M.ProximalGradient(0.1, 0.3),
        ("ProximalGradient", "regularizer must be a Regularizer", "0.3"),
    ),
    "regularizer_is_a_number_in_accelerated_proximal_gradient": (
        lambda: M.AcceleratedProximalGradient(0.1, 0.3),
        ("AcceleratedProximalGradient", "regularizer must be a Regularizer", "0.3"),
    ),
    "mirror_map_is_text": (
        lambda: M.FedDualAvg(0.1, mirror_map="entropy"),
        ("FedDualAvg", "mirror_map must be a MirrorMap", "'entropy'"),
    ),
    "constraint_in_subgradient_fed_avg": (
        run(method=M.SubgradientFedAvg(0.1, R.L1Ball(1.0))),
        ("L1Ball", "no subgradient", "FedMiD or FedDualAvg"),
    ),
    "entropy_from_zero": (
        run(method=M.FedDualAvg(0.1, mirror_map=fl.mirrors.Entropy())),
        ("Entropy", "x0", "> 0"),
    ),
    "entropy_from_zero_in_fed_mid": (
        run(method=M.FedMiD(0.1, mirror_map=fl.mirrors.Entropy())),
        ("Entropy", "x0", "> 0"),
    ),
    "entropy_with_l2_norm": (
        run(
            method=M.FedDualAvg(0.1, 1.0, R.L2Norm(0.1), fl.mirrors.Entropy()),
            x0={"weights": np.ones(3), "intercept": 0.0},
        ),
        ("Entropy has no conjugate_grad with L2Norm", "L1, Simplex"),
    ),
}

REGULARIZERS: dict[str, tuple[Call, tuple[str, ...]]] = {
    "l1_strength": (lambda: R.L1(-1), ("L1", "strength must be >= 0", "-1")),
    "l1_strength_text": (lambda: R.L1("x"), ("L1", "strength must be >= 0", "'x'")),
    "squared_l2_strength": (lambda: R.SquaredL2(-1), ("SquaredL2", "strength must be >= 0", "-1")),
    "nuclear_strength": (lambda: R.Nuclear(np.nan), ("Nuclear", "strength must be >= 0", "nan")),
    "l1_ball_radius": (lambda: R.L1Ball(0), ("L1Ball", "radius must be > 0", "got 0")),
    "l2_ball_radius": (lambda: R.L2Ball(0), ("L2Ball", "radius must be > 0", "got 0")),
    "simplex_total": (lambda: R.Simplex(-2), ("Simplex", "total must be > 0", "-2")),
    "box_order": (lambda: R.Box(1.0, -1.0), ("Box", "lower must be <= upper", "1.0", "-1.0")),
    "box_text": (lambda: R.Box("a", 1.0), ("Box", "lower", "'a'")),
    "box_nothing": (lambda: R.Box(None, 1.0), ("Box", "lower", "None")),
    "blocks_value": (lambda: R.Blocks({"weights": 0.3}), ("Blocks", "'weights' must be a Regularizer", "0.3")),
    "blocks_unknown_key": (composite(R.Blocks({"wieghts": R.L1(1.0)})), ("Blocks", "no part 'wieghts'", "'weights'")),
    "blocks_on_an_array": (
        lambda: R.Blocks({"weights": R.L1(1.0)}).prox(jnp.ones(2), 1.0),
        ("Blocks", "'weights'", "single array"),
    ),
    "nuclear_on_a_vector": (composite(R.Nuclear(1.0)), ("Nuclear", "matrices", "(3,)", "Blocks")),
    "box_of_another_size": (composite(R.Box(np.zeros(4), np.ones(4))), ("Box", "(4,)", "(3,)")),
}


def one_argument(x: Any, a: Any) -> Any:
    return (a @ x) ** 2


def a_pair(x: Any, a: Any, b: Any) -> Any:
    return (a @ x - b) ** 2, b


def numpy_log(x: Any, a: Any, b: Any) -> Any:
    return np.log((a @ x - b) ** 2 + 1)


def decides(x: Any, a: Any, b: Any) -> Any:
    return a @ x if b > 0 else -(a @ x)


def vector(x: Any, a: Any, b: Any) -> Any:
    return a * x - b


WRONG: dict[Callable[..., Any], tuple[str, ...]] = {
    one_argument: ("failed: TypeError", "positional argument"),
    a_pair: ("must return one number, got tuple",),
    numpy_log: ("failed: it gives a number to NumPy; use jnp",),
    decides: ("failed: it decides by `if`", "jnp.where"),
    vector: ("must return one number, got float64 of shape (3,)",),
}
AT_ZERO: dict[str, Any] = {"x0": np.zeros(3), "progress": False}
ASKED: dict[str, Callable[[Any], Any]] = {
    "simulate": lambda p: fl.simulate(p, M.FedAvg(0.1), rounds=1, local_steps=1, **AT_ZERO),
    "sweep": lambda p: fl.sweep(p, M.FedAvg(1.0), {"client_step_size": [0.1]}, rounds=1, local_steps=1, **AT_ZERO),
    "loop": lambda p: fl.loop(p, M.FedAvg(0.1), rounds=1, local_steps=1, **AT_ZERO),
    "centralized": lambda p: fl.solvers.centralized(p, **AT_ZERO),
    "local": lambda p: fl.solvers.local(p, 0, **AT_ZERO),
    "path": lambda p: fl.solvers.path(p, [0.1], **AT_ZERO),
    "certificate": lambda p: fl.certificate(p, None, np.zeros(3)),
    "estimate": lambda p: fl.theory.estimate(p, x0=np.zeros(3)),
}


def loss(loss_fn: Callable[..., Any], owner: str) -> tuple[Call, tuple[str, ...]]:
    """A call with a user's loss that is wrong, which is named, and not x0."""
    name = f"{owner}: the loss {loss_fn.__name__}(x0, one example: float64[3], float64[])"
    return lambda: ASKED[owner](fl.Problem(loss_fn, data())), (name, *WRONG[loss_fn])


def needs_key(x: Any, a: Any, b: Any, key: Any) -> Any:
    return (a @ x - b) ** 2 * jax.random.uniform(key)


def waits_for_rng(x: Any, a: Any, b: Any, rng: Any = None) -> Any:
    return (a @ x - b) ** 2


LOSSES: dict[str, tuple[Call, tuple[str, ...]]] = {
    **{f"{loss_fn.__name__}-{owner}": loss(loss_fn, owner) for loss_fn in WRONG for owner in ASKED},
    "a_value_of_an_oracle": (
        run(fl.problems.Oracle(lambda x, m: x, num_clients=2), x0=np.zeros(3)),
        ("simulate: the value <lambda>(x0, client) must return one number, got float64 of shape (3,)",),
    ),
    "key_without_default": (
        run(fl.Problem(needs_key, data()), x0=np.zeros(3), batch_size=1),
        ("the loss needs_key(x0, one example", "failed: TypeError", "evaluations give key=None: make None its default"),
    ),
    "another_name_of_key": (
        lambda: fl.Problem(waits_for_rng, data()),
        ("Problem: the loss waits_for_rng has an argument 'rng', which nothing gives it", "call it key"),
    ),
    "another_x0": (
        run(fl.Problem(vector, data()), x0={"weights": np.zeros(3)}),
        ("the loss vector(x0, one example", "failed: TypeError"),
    ),
    "inside_a_view": (
        run(fl.problems.augmented(fl.Problem(vector, data()), 0.1, np.zeros(3))),
        ("the loss vector", "got float64 of shape (3,)"),
    ),
}

PROBLEMS: dict[str, tuple[Call, tuple[str, ...]]] = {
    "logistic_labels": (
        lambda: fl.problems.Logistic(data(X, [0, 1, 2, 0, 1, 2])),
        ("Logistic", "labels must be -1/+1 or 0/1", "2"),
    ),
    "logistic_mixed_labels": (lambda: fl.problems.Logistic(data(X, [0, 1, -1, 0, 1, 1])), ("Logistic", "-1/+1 or 0/1")),
    "softmax_labels": (
        lambda: fl.problems.Softmax(data(X, [0, 1, 2, 0, 1, 3]), num_classes=3),
        ("Softmax", "labels must be", "0..2", "got 3"),
    ),
    "softmax_fractional_labels": (lambda: fl.problems.Softmax(data(X, [0, 1, 0.5, 0, 1, 1])), ("Softmax", "0.5")),
    "softmax_negative_labels": (lambda: fl.problems.Softmax(data(X, SIGNS)), ("Softmax", "0..1", "got -1")),
    "softmax_labels_from_one": (
        lambda: fl.problems.Softmax(data(X, [1, 2, 3, 1, 2, 3])),
        ("Softmax", "count from 0", "smallest one is 1", "subtract 1", "num_classes"),
    ),
    "mlp_labels_from_one": (lambda: fl.problems.MLP(data(X, [1, 2] * 3)), ("MLP", "count from 0", "subtract 1")),
    "softmax_one_class": (
        lambda: fl.problems.Softmax(data(X, [0] * 6), num_classes=1),
        ("Softmax", "num_classes", ">= 2", "got 1"),
    ),
    "mlp_labels": (
        lambda: fl.problems.MLP(data(X, [0, 1, 2, 0, 1, 3]), num_classes=3),
        ("MLP", "labels must be", "0..2", "got 3"),
    ),
    "mlp_hidden": (lambda: fl.problems.MLP(data(X, [0, 1] * 3), hidden=(0,)), ("MLP", "hidden", ">= 1", "got 0")),
    "mlp_hidden_is_a_number": (lambda: fl.problems.MLP(data(X, [0, 1] * 3), hidden=5), ("MLP", "hidden", "5")),  # pyright: ignore[reportArgumentType]
    "least_squares_targets": (
        lambda: fl.problems.LeastSquares(data(X, Y[:, None])),
        ("LeastSquares", "targets", "(6, 1)"),
    ),
    "logistic_targets": (lambda: fl.problems.Logistic(data(X, SIGNS[:, None])), ("Logistic", "targets", "(6, 1)")),
    "softmax_targets": (
        lambda: fl.problems.Softmax(data(X, np.zeros((6, 1)))),
        ("Softmax", "targets", "(6, 1)"),
    ),
    "mlp_targets": (lambda: fl.problems.MLP(data(X, np.zeros((6, 1)))), ("MLP", "targets", "(6, 1)")),
    "least_squares_features": (
        lambda: fl.problems.LeastSquares(data(X[:, :, None])),
        ("LeastSquares", "features must have 2 axes", "(6, 3, 1)"),
    ),
    "matrix_sensing_features": (
        lambda: fl.problems.MatrixSensing(data()),
        ("MatrixSensing", "features must have 3 axes", "(6, 3)"),
    ),
    "features_without_targets": (
        lambda: fl.problems.LeastSquares(fl.FederatedData.from_clients([(X,)])),
        ("LeastSquares", "features and targets", "1 array"),
    ),
    "l2": (lambda: fl.problems.Logistic(data(X, SIGNS), l2=-1), ("Logistic", "l2 must be >= 0", "-1")),
    "loss_fn": (lambda: fl.Problem(3, data()), ("Problem", "loss_fn must be a function", "3")),  # pyright: ignore[reportArgumentType]
    "init_fn": (
        lambda: fl.Problem(needs_key, data(), init_fn=np.zeros(3)),  # pyright: ignore[reportArgumentType]
        ("Problem: init_fn must be a function of a random key, got ndarray", "x0="),
    ),
    "init_fn_of_an_oracle": (
        lambda: fl.problems.Oracle(lambda x, m: x, init_fn=np.zeros(3)),  # pyright: ignore[reportArgumentType]
        ("Oracle: init_fn must be a function of a random key, got ndarray", "x0="),
    ),
    "quadratics": (
        lambda: fl.problems.quadratics(np.ones((2, 1, 1)), np.ones((3, 1))),
        ("quadratics", "(2, 1, 1)", "(3, 1)"),
    ),
    "noise": (lambda: fl.problems.piecewise_quadratic(noise_std=-1), ("noise_std must be >= 0", "-1")),
    "augmented": (lambda: fl.problems.augmented(PROBLEM, 0, np.zeros(3)), ("augmented", "strength must be > 0", "0")),
    "only_without_data": (lambda: fl.problems.only(ORACLE, 0), ("only", "problem with data", "Oracle")),
    "only_unknown_client": (lambda: fl.problems.only(PROBLEM, 2), ("only", "client", "<= 1", "got 2")),
    **{
        f"{name}_without_federated_data": (
            partial(getattr(fl.problems, name), (X, Y)),
            (name, "data must be FederatedData", "tuple"),
        )
        for name in ("LeastSquares", "MatrixSensing", "Logistic", "Softmax", "MLP")
    },
}

WIDER = data(RNG.standard_normal((6, 4)))
SIGNED = fl.problems.Logistic(data(X, SIGNS))
GOOD_X0 = {"weights": np.zeros(3), "intercept": np.zeros(())}
ENGINE: dict[str, tuple[Call, tuple[str, ...]]] = {
    "clients_per_round": (run(clients_per_round=3), ("clients_per_round", "<= 2", "got 3")),
    "clients_per_round_zero": (run(clients_per_round=0), ("clients_per_round", ">= 1", "got 0")),
    "both_steps_and_epochs": (run(local_steps=1, local_epochs=2), ("either local_steps or local_epochs", "=1", "=2")),
    "neither_steps_nor_epochs": (run(local_steps=None), ("either local_steps or local_epochs", "neither")),
    "local_steps_zero": (run(local_steps=0), ("local_steps", ">= 1", "got 0")),
    "local_steps_fractional": (run(local_steps=1.5), ("local_steps", "whole number", "1.5")),
    "local_steps_of_three_clients": (run(local_steps=[1, 2, 3]), ("local_steps", "one per client (2)", "got 3")),
    "local_steps_with_zero": (run(local_steps=[1, 0]), ("local_steps", ">= 1", "got 0")),
    "local_epochs_zero": (run(local_epochs=0), ("local_epochs", ">= 1", "got 0")),
    "batch_size": (run(batch_size=0), ("batch_size", ">= 1", "got 0")),
    "rounds": (run(rounds=-1), ("rounds", ">= 0", "got -1")),
    "eval_every": (run(eval_every=0), ("eval_every", ">= 1", "got 0")),
    "seed_negative": (run(seed=-1), ("seed", ">= 0", "got -1")),
    "seed_fractional": (run(seed=1.5), ("seed", "whole number", "1.5")),
    "weights": (run(weights="size"), ("weights", "'uniform', 'examples'", "'size'")),
    "average": (run(average="foo"), ("average", "'third_order'", "'foo'")),
    "average_of_unequal_steps": (
        run(average="uniform", local_steps=[1, 2]),
        ("average", "same number of local steps", "local_steps=K"),
    ),
    "average_of_unequal_epochs": (
        run(average="uniform", local_epochs=1, batch_size=2),
        ("average", "same number of local steps"),
    ),
    "average_step_size": (
        lambda: fl.StronglyConvexAverage(step_size=0, strong_convexity=1.0),
        ("StronglyConvexAverage", "step_size must be > 0", "0"),
    ),
    "problem": (run(problem=data()), ("problem", "FederatedData")),
    "method_class": (run(method=M.FedAvg), ("method", "LocalMethod", "FedAvg")),
    "x0_shape": (run(x0=GOOD_X0 | {"weights": np.zeros(4)}), ("x0", "LeastSquares", "(4,)", "(3,)")),
    "x0_column": (run(x0=GOOD_X0 | {"weights": np.zeros((3, 1))}), ("x0", "(3, 1)", "(3,)")),
    "x0_scalar": (run(x0=GOOD_X0 | {"weights": np.zeros(())}), ("x0", "LeastSquares", "()")),
    "x0_keys": (run(x0={"w": np.zeros(3)}), ("x0", "LeastSquares", "weights")),
    "x0_missing_key": (run(x0={"weights": np.zeros(3)}), ("x0", "LeastSquares", "intercept")),
    "x0_extra_key": (run(x0=GOOD_X0 | {"scale": np.ones(())}), ("x0", "LeastSquares", "scale")),
    "x0_array": (run(x0=np.zeros(3)), ("x0", "LeastSquares", "weights")),
    "x0_nan": (run(x0=GOOD_X0 | {"intercept": np.nan}), ("x0", "nan")),
    "x0_text": (run(x0="zeros"), ("x0", "'zeros'")),
    "x0_empty": (run(x0={}), ("x0", "at least one array", "{}")),
    "problem_without_x0": (run(problem=CUSTOM), ("Problem", "no starting point", "x0=", "init_fn=")),
    "oracle_without_x0": (
        run(problem=fl.problems.Oracle(lambda x, m: jnp.sum(x**2))),
        ("Oracle", "no starting point", "x0=", "init_fn="),
    ),
    "oracle_with_epochs": (run(problem=ORACLE, local_epochs=1), ("Oracle", "no examples", "local_steps")),
    "oracle_with_example_weights": (
        run(problem=ORACLE, weights="examples"),
        ("Oracle", "weights='examples'", "'uniform'"),
    ),
    "metric_not_callable": (run(metrics=[3]), ("metrics", "functions of the parameters", "3")),
    "metric_class": (run(metrics=[fl.metrics.Density]), ("metrics", "class Density", "Density(...)")),
    "engine": (run(engine="numpy"), ("engine", "'auto', 'jax', 'linear'", "'numpy'")),
    "metric_outside_a_list": (run(metrics=fl.metrics.Density()), ("metrics", "list", "Density")),
    "sparse_recovery": (run(metrics=[fl.metrics.SparseRecovery(np.ones(5))]), ("SparseRecovery", "5 weights", "3")),
    "frobenius_error": (run(metrics=[fl.metrics.FrobeniusError(np.ones(5))]), ("FrobeniusError", "5 weights", "3")),
    "accuracy": (run(metrics=[fl.metrics.Accuracy()]), ("Accuracy", "Logistic, Softmax or MLP", "LeastSquares")),
    "loss_on_wider_data": (
        run(metrics=[fl.metrics.Loss(WIDER)]),
        ("Loss: x of the run does not fit the problem LeastSquares", "(4,)", "(3,)"),
    ),
    "loss_of_another_problem": (
        run(CUSTOM, x0=np.zeros(3), metrics=[fl.metrics.Loss(fl.problems.LeastSquares(WIDER))]),
        ("Loss: x of the run does not fit the problem LeastSquares", "(4,)"),
    ),
    "loss_of_a_user_on_wider_data": (
        run(fl.Problem(lambda x, a, b: jnp.sum(a * x), data()), x0=np.zeros(3), metrics=[fl.metrics.Loss(WIDER)]),
        ("Loss: the loss <lambda>(x0, one example: float64[4], float64[]) failed",),
    ),
    "accuracy_on_wider_data": (
        run(SIGNED, metrics=[fl.metrics.Accuracy(data(WIDER.arrays[0], SIGNS))]),
        ("Accuracy: x of the run does not fit the problem Logistic", "(4,)"),
    ),
    "gap_on_wider_data": (
        run(metrics=[fl.metrics.ParticipationGap(unseen=WIDER)]),
        ("ParticipationGap: x of the run does not fit the problem LeastSquares", "(4,)"),
    ),
    "seeds_of_compare": (
        lambda: fl.compare(PROBLEM, [M.FedAvg(0.1)], rounds=1, local_steps=1, seeds=5),  # pyright: ignore[reportArgumentType]
        ("compare: seeds must be whole numbers, as range(5) or [0, 1, 2], got 5",),
    ),
    "level_as_text": (lambda: fl.stopping.Below("loss", "0.6"), ("Below: level must be a finite number, got '0.6'",)),  # pyright: ignore[reportArgumentType]
    "rank_of_a_vector": (run(metrics=[fl.metrics.Rank()]), ("Rank", "weight matrix", "(3,)")),
    "violation_without_constraint": (
        run(metrics=[fl.metrics.ConstraintViolation()]),
        ("ConstraintViolation", "FedAvg has no regularizer"),
    ),
}


def check(call: Call, words: tuple[str, ...]) -> str:
    """Call, and return the message, which must be one sentence with these words."""
    with pytest.raises((ValueError, TypeError)) as caught:
        call()
    message = str(caught.value)
    missing = [word for word in words if word not in message]
    assert not missing, message
    assert "\n" not in message
    assert len(message) < 250
    assert not any(inside in message for inside in ("Traced", "ShapedArray", "jax.", "0x", "dot_general", "gufunc"))
    return message


@pytest.mark.parametrize("eta", ETAS)
@pytest.mark.parametrize("name", STEP_SIZES)
def test_a_step_size_must_be_a_positive_number(name: str, eta: str):
    (owner, argument, make), (value, shown) = STEP_SIZES[name], ETAS[eta]
    message = check(lambda: make(value), (argument, "> 0", shown))
    assert message.startswith(f"{owner}: ")


@pytest.mark.parametrize("name", METHODS)
def test_methods(name: str):
    check(*METHODS[name])


@pytest.mark.parametrize("name", REGULARIZERS)
def test_regularizers(name: str):
    check(*REGULARIZERS[name])


@pytest.mark.parametrize("name", PROBLEMS)
def test_problems(name: str):
    check(*PROBLEMS[name])


@pytest.mark.parametrize("name", LOSSES)
def test_losses_of_users(name: str):
    check(*LOSSES[name])


@pytest.mark.parametrize("name", ENGINE)
def test_engine(name: str):
    check(*ENGINE[name])


def test_the_plain_loop_says_that_it_is_the_loop():
    with pytest.raises(ValueError, match=r"^loop: rounds must be a whole number >= 0, got -1$"):
        fl.loop(PROBLEM, M.FedAvg(0.1), rounds=-1, local_steps=1)


@pytest.mark.parametrize(
    "name", ["weights", "seed_negative", "rounds", "eval_every", "average", "x0_nan", "batch_size"]
)
def test_the_engine_says_that_it_is_simulate(name: str):
    assert check(*ENGINE[name]).startswith("simulate: ")
