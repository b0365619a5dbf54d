"""The fused kernels against the compiled JAX program, given the same examples."""

import importlib
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

import fedlocal as fl
from conformance.federation import closeness
from fedlocal.engines import kernels, linear
from fedlocal.engines.plan import Plan

pytestmark = pytest.mark.xdist_group("kernels")  # one process compiles them
METHODS = {
    "fed_avg": fl.methods.FedAvg(0.1, 0.7),
    "fed_ac_one": fl.methods.FedAc.one(step_size=0.05, strong_convexity=0.02, local_steps=6),
    "fed_ac_two": fl.methods.FedAc.two(step_size=0.05, strong_convexity=0.02, local_steps=6),
    "fed_ac_vanilla": fl.methods.FedAc.vanilla(step_size=0.05, strong_convexity=0.02),
    "minibatch_sgd": fl.methods.MinibatchSGD(0.2),
    "minibatch_ac_sgd": fl.methods.MinibatchAcSGD(0.1, 0.02),
}
SAMPLING: dict[str, dict[str, Any]] = {
    "one_example": {"local_steps": 6, "batch_size": 1},
    "batches_partial": {"local_steps": 6, "batch_size": 3, "clients_per_round": 4, "weights": "examples"},
    "short_batches": {"local_epochs": 1, "batch_size": 5, "clients_per_round": 3},
}


def problem(kind: str = "logistic", sparse: bool = True, equal: bool = False, seed: int = 0) -> Any:
    """Nine clients of 12 (or of unequal) rows with few non-zeros; the first rows are empty."""
    rng = np.random.default_rng(seed)
    matrix = scipy.sparse.random_array((108, 20), density=0.12, rng=rng, format="csr")
    matrix = scipy.sparse.vstack([scipy.sparse.csr_array((2, 20)), matrix[2:]], format="csr")
    groups = np.repeat(np.arange(9), 12) if equal else np.minimum(np.arange(108) // 7, 8)
    features = matrix if sparse else matrix.toarray()
    if kind == "logistic":
        labels = np.where(rng.random(108) < 0.5, 1.0, -1.0)
        return fl.problems.Logistic(fl.FederatedData.from_groups((features, labels), groups), l2=0.02, intercept=True)
    data = fl.FederatedData.from_groups((features, rng.standard_normal(108)), groups)
    return fl.problems.LeastSquares(data, intercept=kind == "squares_with_intercept")


def both(problem: Any, method: fl.LocalMethod, **arguments: Any) -> list[fl.Result]:
    return [fl.simulate(problem, method, engine=engine, **arguments) for engine in ("linear", "jax")]


@pytest.mark.parametrize("sampling", SAMPLING)
@pytest.mark.parametrize("name", METHODS)
def test_kernels_equal_the_generic_engine(name: str, sampling: str):
    arguments = {"rounds": 5, "seed": 2, **SAMPLING[sampling]}
    fused, generic = both(problem(equal=sampling == "short_batches"), METHODS[name], **arguments)
    assert closeness((fused.x, fused.server), (generic.x, generic.server)) < 1e-12
    columns = [c for c in fused.history if c != "seconds"]
    np.testing.assert_allclose(fused.history[columns], generic.history[columns], rtol=1e-12)
    assert fused.provenance["configuration"]["engine"] == "linear"
    assert np.abs(fused.x["weights"]).max() > 1e-3


@pytest.mark.parametrize("kind", ["squares", "squares_with_intercept"])
@pytest.mark.parametrize("sparse", [True, False])
def test_least_squares_and_dense_arrays_with_few_non_zeros(kind: str, sparse: bool):
    fused, generic = both(problem(kind, sparse), METHODS["fed_ac_one"], rounds=5, local_steps=6, batch_size=2)
    assert closeness(fused.x, generic.x) < 1e-12


@pytest.mark.parametrize("name", ["fed_avg", "fed_ac_one"])
def test_float32_stays_close_over_a_thousand_steps(name: str):
    X, y = fl.data.a9a()
    with jax.enable_x64(False):
        shared = fl.problems.Logistic(fl.FederatedData.shared(X[:2000], y[:2000], num_clients=4), l2=0.02)
        fused, generic = both(shared, METHODS[name], rounds=2, local_steps=1000, batch_size=1, eval_every=2)
    assert fused.x["weights"].dtype == np.float32
    assert closeness(fused.x, generic.x) < 1e-4 * np.abs(generic.x["weights"]).max()


@pytest.mark.parametrize("step_size", [0.1, 20.0, 40.0, 80.0])
def test_a_strong_penalty_does_not_underflow(step_size: float):
    """l2 times the step size of 0.4, 0.8 and 1.6: the linear part shrinks, or turns its sign, at every one of 200 steps."""
    penalised = fl.problems.Logistic(problem().data, l2=0.02)  # such steps throw a free intercept about
    fused, generic = both(penalised, fl.methods.FedAvg(step_size), rounds=2, local_steps=200, batch_size=1)
    assert closeness(fused.x, generic.x) < 1e-9 * np.abs(generic.x["weights"]).max()


@pytest.mark.parametrize("size", [3, 1000, 2**16])
def test_kernel_draws_the_rows_that_jax_draws(size: int):
    data = fl.FederatedData.shared(scipy.sparse.csr_array((size, 5)), np.zeros(size), num_clients=7)
    plan = Plan.make(
        fl.problems.LeastSquares(data),
        local_steps=9,
        local_epochs=None,
        batch_size=4,
        clients_per_round=3,
        weights="uniform",
        seed=2**31 - 1,
    )
    engine = linear.LinearEngine(
        fl.problems.LeastSquares(data, intercept=False), METHODS["fed_avg"], plan, {"weights": jnp.zeros(5)}
    )
    assert engine.draws_itself
    rows = np.empty(36, np.uint32)
    for r in (0, 70, 1000):
        cohort = plan.cohorts(r // 64)
        sampling = engine._sampling(r, 1)
        for s, m in enumerate(cohort[r % 64]):
            kernels.draw_rows(sampling, 0, s, rows)
            np.testing.assert_array_equal(rows, plan.draws(plan.round_key(r), jnp.asarray(m)).rows.ravel())


def test_the_same_bits_however_the_run_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    arguments = {"local_steps": 6, "batch_size": 1, "clients_per_round": 4, "seed": 1}
    whole = fl.simulate(problem(), METHODS["fed_ac_one"], rounds=150, eval_every=150, **arguments)
    assert whole.provenance["configuration"]["engine"] == "linear"
    often = fl.simulate(problem(), METHODS["fed_ac_one"], rounds=150, eval_every=7, **arguments)
    assert closeness((whole.x, whole.server), (often.x, often.server)) == 0
    monkeypatch.setattr(importlib.import_module("fedlocal.engines.simulate"), "SAVE_SECONDS", 0.0)
    fl.simulate(problem(), METHODS["fed_ac_one"], rounds=60, eval_every=150, checkpoint=tmp_path / "c", **arguments)
    rest = fl.simulate(
        problem(), METHODS["fed_ac_one"], rounds=150, eval_every=150, checkpoint=tmp_path / "c", **arguments
    )
    assert closeness((whole.x, whole.server), (rest.x, rest.server)) == 0


def test_divergence_is_noticed_in_the_same_round():
    with pytest.warns(fl.DivergenceWarning):
        fused, generic = both(problem("squares"), fl.methods.FedAvg(1e30), rounds=50, local_steps=6, batch_size=1)
    assert fused.diverged is not None
    assert generic.diverged is not None
    assert fused.diverged == generic.diverged


@pytest.mark.parametrize(
    ("make", "method", "arguments", "words"),
    [
        (problem, fl.methods.FedDualAvg(0.1), {}, "FedDualAvg is not an affine recurrence"),
        (problem, METHODS["fed_avg"], {"batch_size": None}, "minibatches, not full gradients"),
        (problem, METHODS["fed_avg"], {"local_steps": [1, 2] * 4 + [1]}, "same number of local steps"),
        (problem, METHODS["fed_avg"], {"average": "third_order"}, "look at every local step"),
        (problem, fl.methods.FedAc(alpha=1.0, beta=1.0, eta=0.1, gamma=0.1), {}, "cannot be inverted"),
        (lambda: dense_problem(), METHODS["fed_avg"], {}, "features are dense"),
        (
            problem,
            METHODS["fed_avg"],
            {"x0": {"weights": np.zeros(20, np.float16), "intercept": np.zeros((), np.float16)}},
            "float16",
        ),
    ],
)
def test_where_it_does_not_apply_it_says_why_and_auto_takes_jax(
    make: Any, method: fl.LocalMethod, arguments: dict, words: str
):
    arguments = {"rounds": 1, "local_steps": 2, "batch_size": 1, **arguments}
    with pytest.raises(ValueError, match=words):
        fl.simulate(make(), method, engine="linear", **arguments)
    assert fl.simulate(make(), method, **arguments).provenance["configuration"]["engine"] == "jax"


def dense_problem() -> fl.problems.LeastSquares:
    return fl.problems.LeastSquares(fl.FederatedData.from_clients([(np.ones((3, 2)), np.ones(3))]))


def test_epochs_of_large_clients_take_the_rows_that_jax_takes():
    """More than 512 examples are shuffled by sorting, whose indices are 64-bit in this precision."""
    rng = np.random.default_rng(0)
    X = scipy.sparse.random_array((1200, 20), density=0.1, rng=rng, format="csr")
    y = np.where(rng.random(1200) < 0.5, 1.0, -1.0)
    data = fl.FederatedData.from_groups((X, y), np.arange(1200) // 600)
    fused, generic = both(fl.problems.Logistic(data), fl.methods.FedAvg(0.5), rounds=2, local_epochs=1, batch_size=7)
    assert closeness(fused.x, generic.x) < 1e-12


def test_a_subclass_that_changes_the_loss_or_the_step_is_not_taken_for_its_parent():
    class Absolute(fl.problems.LeastSquares):
        def losses_of_scores(self, scores: jax.Array, targets: jax.Array) -> jax.Array:
            return jnp.abs(scores - targets)

    class Sign(fl.methods.FedAvg):
        def step(self, client: Any, grad_fn: Any) -> Any:
            return jax.tree.map(lambda a, g: a - 0.1 * jnp.sign(g), client, grad_fn(client))

    squares = problem("squares")
    arguments = {"rounds": 1, "local_steps": 2, "batch_size": 1}
    for other, method in ((Absolute(squares.data), METHODS["fed_avg"]), (squares, Sign(0.1))):
        assert fl.simulate(other, method, **arguments).provenance["configuration"]["engine"] == "jax"


@pytest.mark.parametrize("name", METHODS)
def test_the_affine_form_is_the_method(name: str):
    """Start, three steps and the server's step on random vectors, by the matrices and by the method's own functions."""
    method, rng = METHODS[name], np.random.default_rng(0)
    affine = method.affine(local_steps=3)
    assert affine is not None
    hessian = np.diag([1.0, 2.0, 3.0])
    server = jax.tree.map(lambda a: rng.standard_normal(a.shape), method.init(np.zeros(3)))
    V = np.array(jax.tree.leaves(server))
    client, S = method.start(method.broadcast(server), ()), np.asarray(affine.start) @ V
    for _ in range(3):
        client = method.step(client, lambda x: hessian @ x)
        g = hessian @ (np.asarray(affine.query) @ S)
        S = np.asarray(affine.transition) @ S - np.outer(affine.gain, g)
    after = method.update(server, method.finish(method.broadcast(server), client)[0])
    np.testing.assert_allclose(
        jax.tree.leaves(after), np.asarray(affine.keep) @ V + np.asarray(affine.take) @ S, atol=1e-12
    )
