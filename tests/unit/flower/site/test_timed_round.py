"""local_round: what the simulator does for one client, in parts, and no longer than it may take."""

import itertools
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedlocal as fl
from fedlocal.flower.messages.round_settings import RoundSettings
from fedlocal.flower.site import timed_round
from fedlocal.flower.site.policy import Refused
from fedlocal.simulation.clients import client_round

L1 = fl.regularizers.L1(0.05)
METHODS = {
    "fed_avg": fl.methods.FedAvg(0.1),
    "fed_ac": fl.methods.FedAc.one(step_size=0.1, strong_convexity=0.1, local_steps=4),
    "fed_dual_avg": fl.methods.FedDualAvg(0.1, 1.0, L1),
    "accelerated": fl.methods.AcceleratedProximalGradient(0.1, L1),
}
WORK: dict[str, dict[str, Any]] = {
    "full": {"local_steps": 3},
    "many": {"local_steps": timed_round.FIRST_STEPS * 3 + 1},
    "batches": {"local_steps": timed_round.FIRST_STEPS + 2, "batch_size": 4},
    "epochs": {"local_epochs": 5, "batch_size": 4, "largest": 31},
}


def problem() -> fl.problems.Logistic:
    rng = np.random.default_rng(0)
    rows = [(rng.standard_normal((22, 3)), rng.integers(0, 2, 22))]
    return fl.problems.Logistic(fl.FederatedData.from_clients(rows), intercept=True)


USUAL = {
    *(("fed_avg", work) for work in WORK),
    ("fed_ac", "batches"),
    ("fed_dual_avg", "epochs"),
    ("accelerated", "full"),
}
PAIRS = [
    pytest.param(*pair, marks=() if pair in USUAL else pytest.mark.thorough)
    for pair in itertools.product(METHODS, WORK)
]


@pytest.mark.parametrize(("name", "work"), PAIRS)
def test_a_round_in_parts_is_a_round(name: str, work: str):
    method = METHODS[name]
    with jax.enable_x64(True):
        one = problem()
        plan = RoundSettings(round=2, client=3, seed=5, weights="uniform", **WORK[work]).plan(one)
        x0 = {"intercept": jnp.asarray(0.2), "weights": jnp.asarray([0.5, -1.0, 0.0])}
        sent, memory = method.broadcast(method.init(x0)), method.init_memory(x0)
        message, _, end = timed_round.local_round(one, method, plan, sent, memory, 2, seconds=60.0)
        whole = jax.jit(client_round)(one, method, plan, sent, memory, jnp.zeros((), jnp.int32), 2)
    for found, expected in zip(jax.tree.leaves(message), jax.tree.leaves(whole.message), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    assert all(np.isfinite(a).all() for a in jax.tree.leaves(end))


def test_a_round_that_takes_too_long_is_refused():
    """Soon after its time, though there are many steps left."""
    method, one = METHODS["fed_avg"], problem()
    plan = RoundSettings(round=0, client=0, seed=0, weights="uniform", local_steps=2**31 - 1).plan(one)
    sent = method.broadcast(method.init({"intercept": jnp.zeros(()), "weights": jnp.zeros(3)}))
    began = time.monotonic()
    with pytest.raises(
        Refused, match=r"of 2147483647 local steps took 0.3 s; most_seconds of the policy is over"
    ) as caught:
        timed_round.local_round(one, method, plan, sent, (), 0, seconds=0.3)
    assert caught.value.code == "most_seconds"
    assert (
        time.monotonic() - began < 0.3 + 10 * timed_round.SECONDS + 5
    )  # the last part, and compiling on a machine with much to do
