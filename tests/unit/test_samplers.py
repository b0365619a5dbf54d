"""Samplers, weights of clients, and losses that are random themselves."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedlocal as fl
from conformance.federation import closeness, federation, start
from fedlocal.core.types import Weights
from fedlocal.samplers import Sampler
from fedlocal.simulation.plan import COHORT_BLOCK, Plan, Sampling

CLIENTS = 5  # of `federation`


def make(rounds: int = 200, **sampling: Any) -> Plan:
    return Plan.make(federation(), Sampling(local_steps=1, **sampling), rounds=rounds)


def fed_avg(rounds: int = 4, **arguments: Any) -> fl.Result:
    given: dict[str, Any] = {"local_steps": 2, "x0": start(False), "batch_size": 2, **arguments}
    return fl.simulate(federation(), fl.methods.FedAvg(0.03), rounds=rounds, **given)


def test_round_robin_takes_turns():
    plan = make(sampler="round_robin", clients_per_round=2)
    assert [plan.cohort(r).tolist() for r in range(4)] == [[0, 1], [2, 3], [0, 4], [1, 2]]


def test_by_weight_draws_with_the_weights_as_probabilities_and_takes_a_plain_mean():
    plan = make(sampler="by_weight", clients_per_round=3, weights=[1, 2, 3, 4, 10.0])
    counts = np.bincount(np.concatenate([plan.cohort(r) for r in range(4000)]), minlength=CLIENTS)
    expected = np.array([1, 2, 3, 4, 10]) / 20
    assert np.abs(counts / 12000 - expected).max() < 4 * np.sqrt(0.25 / 12000)
    assert np.asarray(plan.normalized_weights(jnp.array([4, 4, 0]))).tolist() == pytest.approx([1 / 3] * 3)
    assert np.allclose(plan.client_weights(), expected)


def test_availability_draws_among_those_who_are_there():
    trace = np.zeros((3, CLIENTS), bool)
    trace[0, [1, 3]], trace[1, :] = True, True
    plan = make(sampler=fl.samplers.Availability(trace), clients_per_round=3)
    assert plan.may_miss
    assert plan.clients_per_round == 3
    assert plan.cohort(0).tolist() == plan.cohort(3).tolist() == [1, 3]
    assert plan.cohort(2).tolist() == []
    drawn = [tuple(plan.cohort(r)) for r in range(1, 3 * COHORT_BLOCK, 3)]
    assert {len(set(c)) for c in drawn} == {3}
    assert len(set(drawn)) == 10  # all ways to choose 3 of 5


def test_a_function_of_the_round_chooses_and_runs_equal_the_loop():
    chosen = [[0, 1, 4], [2], [], [1, 3]]
    arguments: dict[str, Any] = {
        "sampler": lambda r: chosen[r],
        "metrics": [fl.metrics.ClientDiscrepancy()],
        "average": "uniform",
        "weights": "examples",
    }
    fast = fed_avg(**arguments)
    slow = fl.loop(
        federation(), fl.methods.FedAvg(0.03), rounds=4, local_steps=2, x0=start(False), batch_size=2, **arguments
    )
    assert closeness(fast.x, slow.x) < 1e-12
    columns = [c for c in fast.history if c not in ("seconds", "discrepancy")]
    np.testing.assert_allclose(fast.history[columns], slow.history[columns], rtol=1e-10)
    sent = fast.history["numbers_up"].diff().dropna() / 7
    assert sent.tolist() == [3, 1, 0, 2]
    assert np.ptp(fast.history["loss"].to_numpy()[2:4]) == 0


def test_rounds_of_nobody_change_nothing():
    """Also if no round has a client."""
    assert make(sampler=lambda r: []).may_miss  # which the kernels ask
    result = fed_avg(sampler=lambda r: [])
    assert np.ptp(result.history["loss"].to_numpy()) == 0
    assert result.history["numbers_up"].tolist() == [0] * len(result.history)
    assert closeness(result.x, start(False)) == 0


@pytest.mark.parametrize(
    "method", [fl.methods.Scaffold(0.03), fl.methods.FedDualAvg(0.03, regularizer=fl.regularizers.L1(0.1))]
)
def test_memories_of_clients_that_miss_stay(method: fl.LocalMethod):
    arguments: dict[str, Any] = {"rounds": 5, "local_steps": [1, 2, 3, 2, 1], "batch_size": 2, "x0": start(False)}
    trace = np.random.default_rng(0).random((5, CLIENTS)) < 0.4
    arguments["sampler"] = fl.samplers.Availability(trace)
    fast, slow = (run(federation(), method, **arguments) for run in (fl.simulate, fl.loop))
    assert closeness(fast.server, slow.server) < 1e-12


def test_all_clients_by_a_function_are_all_clients():
    assert closeness(fed_avg(sampler=lambda r: range(CLIENTS)).x, fed_avg().x) == 0


def test_a_sampler_may_be_a_class_of_ones_own_and_goes_on_from_a_checkpoint(tmp_path):
    class Alternate(Sampler):
        def choose(self, round: int, count: int, weights: np.ndarray, rng: np.random.Generator) -> list[int]:
            return [0, 2] if round % 2 else [1, 3]

    file = tmp_path / "run.npz"
    arguments: dict[str, Any] = {"sampler": Alternate(), "clients_per_round": 2}
    fed_avg(2, checkpoint=file, **arguments)
    assert closeness(fed_avg(5, checkpoint=file, **arguments).x, fed_avg(5, **arguments).x) == 0
    with pytest.raises(ValueError, match="belongs to another run"):
        fed_avg(6, checkpoint=file, clients_per_round=2, sampler="round_robin")


def test_kernels_and_jax_agree_on_samplers_and_weights():
    rng, clients = np.random.default_rng(3), 6
    examples = [(rng.normal(size=(n, 4)), rng.integers(0, 2, n)) for n in range(3, 3 + clients)]
    problem = fl.problems.Logistic(fl.FederatedData.from_clients(examples), l2=0.01)
    for sampler in ("by_weight", "round_robin"):
        arguments: dict[str, Any] = {"sampler": sampler, "clients_per_round": 3, "local_steps": 3, "batch_size": 2}
        arguments["weights"] = np.arange(1.0, clients + 1)
        runs = [
            fl.simulate(problem, fl.methods.FedAvg(0.5), rounds=5, engine=engine, **arguments)
            for engine in ("jax", "linear")
        ]
        assert closeness(runs[0].x, runs[1].x) < 1e-12
        assert np.allclose(runs[0].history["loss"], runs[1].history["loss"], rtol=1e-12)


def test_given_weights_are_those_of_the_objective_everywhere():
    weights: Weights = [4, 7, 1, 12, 5]  # the numbers of examples
    by_name, given = fed_avg(weights="examples"), fed_avg(weights=weights)
    assert closeness(by_name.x, given.x) < 1e-12
    assert given.history["loss"].to_numpy() == pytest.approx(by_name.history["loss"].to_numpy(), rel=1e-12)
    optimum = fl.solvers.centralized(federation(), weights=weights, progress=False)
    assert optimum.objective == pytest.approx(
        fl.solvers.centralized(federation(), weights="examples", progress=False).objective, rel=1e-9
    )
    assert fl.certificate(federation(), None, optimum.x, weights=weights).kkt_residual < 1e-6


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"weights": [1.0, 2.0]},
            r"weights must be 'uniform', 'examples' or a number > 0 for each of the 5 clients, got shape \(2,\)",
        ),
        ({"weights": [1, 1, 0, 1, 1]}, "for each of the 5 clients, got 0"),
        ({"weights": ["a"] * 5}, "weights must be"),
        ({"weights": "all"}, "weights must be one of"),
        ({"sampler": "all"}, "sampler must be one of 'uniform', 'by_weight', 'round_robin', got 'all'"),
        ({"sampler": fl.samplers.Availability}, r"sampler is the class Availability; give Availability\(...\)"),
        ({"sampler": lambda r: [0, 0]}, r"\(0\) must return different client numbers from 0 to 4, got \[0, 0\]"),
        ({"sampler": lambda r: [5]}, r"must return different client numbers from 0 to 4, got \[5\]"),
        ({"sampler": lambda r: ["a"]}, "must return different client numbers"),
        ({"sampler": lambda r: 1 // (1 - r)}, "raised ZeroDivisionError"),
        (
            {"sampler": lambda r: [0, 1, 2], "clients_per_round": 2},
            "gives 3 clients for round 0, more than clients_per_round=2",
        ),
        ({"sampler": fl.samplers.Availability(np.ones((2, 3)))}, "must have a column for each of the 5 clients, got 3"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], message: str):
    with pytest.raises((ValueError, TypeError), match=message):
        fed_avg(**arguments)


def test_a_trace_must_be_a_table_of_true_and_false():
    for trace in ([True, False], np.zeros((3, 2)), np.full((2, 2), 0.5), []):
        with pytest.raises(ValueError, match="Availability: trace must"):
            fl.samplers.Availability(trace)


def dropped(w: jax.Array, a: jax.Array, b: jax.Array, key: jax.Array | None = None) -> jax.Array:
    kept = a if key is None else a * jax.random.bernoulli(key, 0.5, a.shape) * 2
    return (kept @ w - b) ** 2


@pytest.fixture(scope="module")
def random_loss() -> fl.Problem:
    rng = np.random.default_rng(0)
    data = fl.FederatedData.from_clients([(rng.normal(size=(n, 3)), rng.normal(size=n)) for n in (6, 9)])
    return fl.Problem(dropped, data, lambda key: jnp.ones(3))


def test_local_steps_give_a_random_loss_its_keys_and_evaluations_none(random_loss: fl.Problem):
    arguments: dict[str, Any] = {"rounds": 3, "local_steps": 4, "batch_size": 3}
    method = fl.methods.FedAvg(0.02)
    fast, slow = (run(random_loss, method, **arguments) for run in (fl.simulate, fl.loop))
    assert closeness(fast.x, slow.x) < 1e-12
    plain = fl.Problem(lambda w, a, b: (a @ w - b) ** 2, random_loss.data, random_loss.init_fn)
    without = fl.simulate(plain, method, **arguments)
    assert closeness(fast.x, without.x) > 1e-4
    np.testing.assert_allclose(fast.history["loss"].to_numpy()[0], without.history["loss"].to_numpy()[0], rtol=1e-14)
    again = fl.simulate(random_loss, method, seed=0, **arguments)
    assert closeness(fast.x, again.x) == 0


def test_every_example_and_step_has_a_key_of_its_own(random_loss: fl.Problem):
    plan = Plan.make(random_loss, Sampling(local_steps=3, batch_size=4))
    keys = []
    for m in range(2):
        draws = plan.draws(plan.round_key(0), jnp.asarray(m))
        for k in range(3):
            batch_keys = plan.batch(draws, jnp.asarray(m), k).keys
            assert batch_keys is not None
            keys += jax.random.key_data(batch_keys).tolist()
    assert len({tuple(key) for key in keys}) == 2 * 3 * 4


def test_gradients_with_keys_are_unbiased_for_the_loss_with_dropout(random_loss: fl.Problem):
    plan, x = Plan.make(random_loss, Sampling(local_steps=4000, batch_size=8)), jnp.array([0.5, -1.0, 2.0])
    draws = plan.draws(plan.round_key(0), jnp.asarray(1))
    one = lambda k: random_loss.gradient(x, plan.batch(draws, jnp.asarray(1), k))  # noqa: E731
    mean = np.asarray(jax.lax.map(jax.jit(one), jnp.arange(4000))).mean(axis=0)
    a, b = (np.asarray(part)[6:] for part in random_loss.data.arrays)
    # E (2 sum_j z_j a_j w_j - b)^2 = (a w - b)^2 + sum_j (a_j w_j)^2 for independent z_j of 0 or 1
    exact = (2 * a * (a @ x - b)[:, None] + 2 * a**2 * np.asarray(x)).mean(axis=0)
    assert np.abs(mean - exact).max() < 0.15
    assert np.abs(mean - (2 * a * (a @ x - b)[:, None]).mean(axis=0)).max() > 0.5


def test_a_random_loss_needs_minibatches(random_loss: fl.Problem):
    with pytest.raises(ValueError, match="simulate: give batch_size, since the loss takes a key"):
        fl.simulate(random_loss, fl.methods.FedAvg(0.1), rounds=1, local_steps=1)
