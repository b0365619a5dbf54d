"""Who takes part and which examples: exact sampling, whatever the engine."""

import jax
import jax.numpy as jnp
import numpy as np

import fedlocal as fl
from conformance.federation import SIZES, federation
from fedlocal.simulation.plan import Plan, Sampling


def make(problem: fl.problems.MatrixSensing | None = None, **sampling: object) -> Plan:
    return Plan.make(problem or federation(), Sampling(**sampling))  # pyright: ignore[reportArgumentType]


draws_of = jax.jit(Plan.draws)  # in one program


def rows_of(plan: Plan, m: int, r: int = 0) -> list[np.ndarray]:
    draws = draws_of(plan, plan.round_key(r), jnp.asarray(m))
    batches = [plan.batch(draws, jnp.asarray(m), k) for k in range(int(plan.steps[m]))]
    return [
        np.asarray(b.rows)[np.asarray(b.weights) > 0] if b.weights is not None else np.asarray(b.rows) for b in batches
    ]


def test_an_epoch_sees_every_example_once_and_its_last_batch_is_short():
    plan, start = make(local_epochs=2, batch_size=3), 0
    for m, n in enumerate(SIZES):
        batches = rows_of(plan, m)
        per_epoch = -(-n // 3)
        assert len(batches) == 2 * per_epoch
        for epoch in (batches[:per_epoch], batches[per_epoch:]):
            assert sorted(np.concatenate(epoch)) == list(range(start, start + n))
            assert [len(b) for b in epoch] == [3] * (n // 3) + ([n % 3] if n % 3 else [])
        start += n


def test_short_batches_have_weights_that_sum_to_one():
    plan = make(local_epochs=1, batch_size=3)
    draws = draws_of(plan, plan.round_key(0), jnp.asarray(1))
    for k in range(3):
        weights = plan.batch(draws, jnp.asarray(1), k).weights
        assert weights is not None
        assert float(weights.sum()) == 1.0


def test_shuffles_differ_between_epochs_rounds_clients_and_seeds():
    plan = make(local_epochs=2, batch_size=12)
    first, second = rows_of(plan, 3)
    other_seed = rows_of(make(local_epochs=2, batch_size=12, seed=1), 3)[0]
    other_round = rows_of(plan, 3, r=1)[0]
    orders = [first.tolist(), second.tolist(), other_seed.tolist(), other_round.tolist()]
    assert len({tuple(order) for order in orders}) == 4


def test_drawing_with_replacement_is_uniform():
    data = fl.FederatedData.shared(np.zeros((7, 2, 3)), np.zeros(7), num_clients=1)
    plan = make(fl.problems.MatrixSensing(data), local_steps=7000, batch_size=1)
    counts = np.bincount(np.concatenate(rows_of_all(plan)), minlength=7)
    assert np.abs(counts - 1000).max() < 4 * np.sqrt(7000 * 1 / 7 * 6 / 7)


def rows_of_all(plan: Plan) -> list[np.ndarray]:
    return [np.asarray(draws_of(plan, plan.round_key(0), jnp.asarray(0)).rows).ravel()]


def test_shuffles_are_uniform():
    """Each of the six orders of three examples about equally often over rounds."""
    data = fl.FederatedData.from_clients([(np.zeros((3, 2, 3)), np.zeros(3))])
    plan = make(fl.problems.MatrixSensing(data), local_epochs=1, batch_size=3)
    draw = jax.jit(jax.vmap(lambda r: plan.draws(plan.round_key(r), jnp.asarray(0)).rows))
    orders = np.asarray(draw(jnp.arange(1200)))[:, 0]
    _, counts = np.unique(orders, axis=0, return_counts=True)
    assert len(counts) == 6
    assert np.abs(counts - 200).max() < 4 * np.sqrt(1200 * 1 / 6 * 5 / 6)


def test_cohorts_are_distinct_clients_drawn_uniformly():
    plan = make(local_steps=1, clients_per_round=2)
    cohorts = np.array([plan.cohort(r) for r in range(1000)])
    assert (cohorts[:, 0] < cohorts[:, 1]).all()
    counts = np.bincount(cohorts.ravel(), minlength=5)
    assert np.abs(counts - 400).max() < 4 * np.sqrt(1000 * 0.4 * 0.6)


def test_weights_by_examples_are_proportional_to_sizes():
    plan = make(local_steps=1, weights="examples")
    np.testing.assert_allclose(plan.client_weights(), np.array(SIZES) / sum(SIZES), rtol=1e-15)
    np.testing.assert_allclose(plan.normalized_weights(jnp.array([0, 3])), [0.25, 0.75], rtol=1e-15)
