"""The random rows of the compiled loops are those that JAX draws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

import fedlocal as fl
from fedlocal.simulation.kernels.engine import LinearEngine
from fedlocal.simulation.kernels.threefry import draw_rows, round_key
from fedlocal.simulation.plan import Plan, Sampling


def federation(sizes: list[int]) -> fl.problems.LeastSquares:
    rows = sum(sizes)
    groups = np.repeat(np.arange(len(sizes)), sizes)
    return fl.problems.LeastSquares(
        fl.FederatedData.from_groups((scipy.sparse.eye_array(rows, 5), np.ones(rows)), groups)
    )


def plan_of(problem: fl.problems.LeastSquares, **sampling: object) -> Plan:
    return Plan.make(problem, Sampling(**({"local_steps": 9, "batch_size": 4} | sampling)))  # pyright: ignore


@pytest.mark.parametrize("seed", [0, 17, 2**31 - 1])
@pytest.mark.parametrize("sizes", [[1, 3, 7], [1000, 1, 129], [2**16, 5]])
def test_rows_are_those_of_the_plan(sizes: list[int], seed: int):
    plan = plan_of(federation(sizes), seed=seed)
    assert plan.starts is not None
    assert plan.sizes is not None
    starts, lengths = np.asarray(plan.starts, np.uint32), np.asarray(plan.sizes, np.uint32)
    for r in (0, 70, 2**31 - 1):
        for m in range(len(sizes)):
            rows = np.full(40, 12345, np.uint32)
            draw_rows(round_key(np.uint32(seed), np.uint32(r)), np.uint32(m), starts[m], lengths[m], rows, 2, 36)
            np.testing.assert_array_equal(rows[2:38], plan.draws(plan.round_key(r), jnp.asarray(m)).rows.ravel())
            assert (rows[[0, 1, 38, 39]] == 12345).all()


@pytest.mark.parametrize("double", [True, False])
def test_the_first_rows_do_not_depend_on_how_many_follow(double: bool):
    """A client with fewer steps than the others draws the beginning of what it would draw with theirs."""
    with jax.enable_x64(double):
        problem = federation([40, 50])
        plan = plan_of(problem, local_steps=[3, 11])
        few, many = np.empty(12, np.uint32), np.empty(44, np.uint32)
        for rows in (few, many):
            draw_rows(
                round_key(np.uint32(0), np.uint32(8)), np.uint32(0), np.uint32(0), np.uint32(40), rows, 0, len(rows)
            )
        drawn = plan.draws(plan.round_key(8), jnp.asarray(0)).rows
        np.testing.assert_array_equal(few, many[:12])
        np.testing.assert_array_equal(many, drawn.ravel())


@pytest.mark.parametrize(
    ("sizes", "sampling", "itself"),
    [
        ([2**16, 5], {}, True),
        ([2**16 + 1, 5], {}, False),  # JAX draws otherwise for large clients
        ([30, 5], {"local_steps": None, "local_epochs": 1}, False),
        ([2**16 + 1, 5], {"batch_size": None}, True),
    ],
)
def test_who_draws(sizes: list[int], sampling: dict, itself: bool):
    problem = federation(sizes)
    engine = LinearEngine(
        problem, [fl.methods.FedAvg(0.1)], plan_of(problem, **sampling), problem.init(jax.random.key(0))
    )
    assert engine.draws_itself == itself
