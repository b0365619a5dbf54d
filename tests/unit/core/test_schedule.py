"""Step sizes that are functions of the round."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedlocal as fl
from conformance.cases import CASES, STEPS
from conformance.federation import closeness, federation, numpy_gradient, start
from fedlocal.core.schedule import has_schedule, tabulated
from fedlocal.methods.table import with_step_size
from fedlocal.simulation.plan import Plan, Sampling

WORK: dict[str, Any] = {"local_steps": [2, 3, 1, 3, 2], "batch_size": 2, "clients_per_round": 3, "seed": 4}


def decaying(round: int) -> float:
    """Python that JAX cannot trace."""
    return 0.05 if round < 2 else 0.1 / (1 + round)


def test_a_decaying_step_size_is_the_transcript_of_fedavg():
    problem, rounds = federation(), 5
    method = fl.methods.FedAvg(decaying, server_step_size=lambda r: 1.0 + r / 8)
    result = fl.simulate(problem, method, rounds=rounds, x0=start(False), **WORK)
    plan, x = Plan.make(problem, Sampling(**WORK)), np.array([0.3, *start(False)["weights"].ravel()])
    for r in range(rounds):
        moves = []
        for m in plan.cohort(r):
            draws, y = plan.draws(plan.round_key(r), jnp.asarray(m)), x.copy()
            for k in range(int(plan.steps[m])):
                rows = np.asarray(plan.batch(draws, jnp.asarray(m), k).rows)
                y -= decaying(r) * numpy_gradient(problem, rows)(y)
            moves.append(y - x)
        x = x + (1 + r / 8) * np.mean(moves, axis=0)
    assert np.abs(np.concatenate([[result.x["intercept"]], np.ravel(result.x["weights"])]) - x).max() < 1e-12


@pytest.mark.parametrize(
    "name", ["fed_ac_one", "fed_dual_avg_l1", "fed_mid_l1", "scaffold", "fed_prox", "minibatch_ac_sgd"]
)
def test_a_schedule_that_never_changes_is_the_number(name: str):
    method, problem = CASES[name].method, federation()
    field = "client_step_size" if hasattr(method, "client_step_size") else "step_size"
    number = float(getattr(method, field))
    scheduled = with_step_size(method, lambda r: number)  # pyright: ignore[reportArgumentType]
    assert has_schedule(scheduled)
    work: dict[str, Any] = {**WORK, "local_steps": STEPS}
    run = lambda m: fl.simulate(problem, m, rounds=3, x0=start(CASES[name].positive), **work)  # noqa: E731
    alone, known = run(scheduled), run(method)
    assert closeness(alone.x, known.x) < 1e-13
    assert getattr(alone.method, field).function(0) == number


def test_the_loop_the_shadow_and_a_sweep_take_the_numbers_of_the_round():
    problem, x0 = federation(), start(False)
    method = fl.methods.FedAc(decaying, 0.4, local_steps=2)
    work: dict[str, Any] = {"rounds": 4, "local_steps": 2, "batch_size": 2, "x0": x0}
    fast, slow = (run(problem, method, shadow=fl.Shadow(), **work) for run in (fl.simulate, fl.loop))
    assert closeness(fast.x, slow.x) < 1e-12
    assert fast.shadow is not None
    assert slow.shadow is not None
    np.testing.assert_allclose(fast.shadow, slow.shadow, rtol=1e-9, atol=1e-12)
    grid = {"step_size": [decaying, lambda r: 0.02, 0.02], "strong_convexity": [0.4, 0.5]}
    swept = fl.sweep(problem, method, grid, **work)
    assert closeness(swept.points[0], fast.x) < 1e-12
    assert closeness(swept.points[2], swept.points[4]) < 1e-12
    assert closeness(swept.points[0], swept.points[2]) > 1e-4


def test_schedules_of_optax_and_a_resumed_run(tmp_path):
    problem, file = federation(), tmp_path / "run.npz"
    method = fl.methods.FedAvg(optax.cosine_decay_schedule(0.1, 50))
    work: dict[str, Any] = {"x0": start(False), **WORK}
    fl.simulate(problem, method, rounds=3, checkpoint=file, **work)
    resumed = fl.simulate(problem, method, rounds=6, checkpoint=file, **work)
    whole = fl.simulate(problem, method, rounds=6, **work)
    assert closeness(resumed.x, whole.x) == 0
    other = fl.methods.FedAvg(optax.cosine_decay_schedule(0.2, 50))
    with pytest.raises(ValueError, match="belongs to another run: numbers of the method"):
        fl.simulate(problem, other, rounds=9, checkpoint=file, **work)


def test_kernels_leave_schedules_to_jax():
    data = fl.FederatedData.from_clients([(np.eye(3), [0, 1, 0]), (np.eye(3), [1, 1, 0])])
    with pytest.raises(ValueError, match="a step size is a function of the round"):
        fl.simulate(fl.problems.Logistic(data), fl.methods.FedAvg(decaying), rounds=1, local_steps=1, engine="linear")


@pytest.mark.parametrize(
    ("step_size", "message"),
    [
        (lambda r: 0.1 - 0.05 * r, r"client_step_size of FedAvg must be > 0 in every round, got 0 in round 2"),
        (
            lambda r: jnp.ones(2),
            r"FedAvg: client_step_size at round 0 must be one number, got an array of shape \(2,\)",
        ),
        ([0.1, 0.2].__getitem__, r"client_step_size of FedAvg raised IndexError.* in round 2"),
        (np.array([0.1, 0.2]).__getitem__, r"client_step_size of FedAvg raised IndexError.* in round 2"),
        (lambda: 0.1, "FedAvg: client_step_size must be a number or a function of the round; at round 0 it raised"),
        (lambda r: -1.0, "client_step_size at round 0 must be > 0, got -1"),
    ],
)
def test_wrong_schedules_are_named(step_size: Any, message: str):
    with pytest.raises((ValueError, TypeError), match=message):
        fl.simulate(federation(), fl.methods.FedAvg(step_size), rounds=4, local_steps=1, x0=start(False))


def test_a_schedule_is_checked_as_the_constructor_checks_a_number():
    method = fl.methods.FedAc(lambda r: 0.1 * 4.0**r, 1.0, local_steps=1)
    with pytest.raises(ValueError, match=r"step_size \* strong_convexity must be <= 1, got 6.4"):
        fl.simulate(federation(), method, rounds=4, local_steps=1, x0=start(False))


@pytest.mark.parametrize(
    "value", [[0.1, 0.2], np.array([0.1]), jnp.array([0.1, 0.2]), "0.1", True, np.True_, lambda r: "0.1"]
)
@pytest.mark.parametrize("make", [fl.methods.FedAvg, fl.methods.MinibatchSGD, lambda v: fl.methods.Scaffold(0.1, v)])
def test_what_is_not_one_number_is_refused_by_the_constructor(make: Any, value: Any):
    with pytest.raises((TypeError, ValueError), match=r"^\w+: \w+ (at round 0 )?must be (one|a) number"):
        make(value)


def test_numbers_of_all_kinds_and_traced_ones_are_step_sizes():
    make = lambda eta: fl.methods.FedAvg(eta).client_step_size  # noqa: E731
    for value in (1, 0.5, np.float32(0.5), np.array(0.5), jnp.array(0.5)):
        assert float(make(value)) == float(value)
    etas = jnp.array([0.1, 0.2])
    np.testing.assert_array_equal(jax.vmap(make)(etas), etas)
    np.testing.assert_array_equal(jax.jit(make)(etas[0]), etas[0])


@pytest.mark.parametrize(
    ("schedule", "rounds"),
    [
        (lambda r: 0.1 * 2 ** (-(r // 10)), 50),
        (lambda r: jnp.asarray(0.1) * 2 ** (-(r // 10)), 50),  # an array of JAX from powers of Python
        (lambda r: 1 / (1 + r**40), 50),  # beyond 64 bits
        (lambda r: 0.1 / jnp.sqrt(1 + r), 5),
        (lambda r: 0.1 / jnp.sqrt(1 + r), 500),
        (optax.cosine_decay_schedule(0.1, 400), 300),
    ],
)
def test_the_numbers_of_the_rounds_are_those_of_python(schedule: Any, rounds: int):
    tabled: Any = tabulated("simulate", fl.methods.FedAvg(schedule), rounds)
    with jax.enable_x64(True):
        wanted = [float(schedule(r)) for r in range(rounds)]
    np.testing.assert_allclose(tabled.client_step_size.values[:rounds], wanted, rtol=1e-7)
