"""The same answer twice: an old one under a new label, or one that an honest site may well give."""

import jax.numpy as jnp
import numpy as np
import pytest

import fedlocal as fl
from fedlocal.flower import InProcess, Policy, Strategy, client_app
from fedlocal.flower.checks.repetitions import Repetitions
from fedlocal.flower.coordinator.server_state import Coordinator

REPEATED = "the same answer to another state, as its local steps may end twice"
L1, ZERO = fl.regularizers.L1(50.0), fl.regularizers.Zero()
METHODS = {  # True: never repeated; None: not in few steps; False: a proximal map may do it
    "fed_avg": (fl.methods.FedAvg(0.1), None),
    "fed_mid": (fl.methods.FedMiD(0.1, regularizer=L1), False),
    "fed_mid_zero": (fl.methods.FedMiD(0.1, regularizer=ZERO), None),
    "fed_mid_nonnegative": (fl.methods.FedMiD(0.1, regularizer=fl.regularizers.NonNegative()), False),
    "fed_mid_osp": (fl.methods.FedMiD(0.1, regularizer=L1, prox_on_clients=False), None),
    "fed_mid_simplex": (fl.methods.FedMiD(0.1, regularizer=fl.regularizers.Simplex()), False),
    "fed_dual_avg": (fl.methods.FedDualAvg(0.1, regularizer=L1), None),
    "fed_dual_avg_simplex": (fl.methods.FedDualAvg(0.1, regularizer=fl.regularizers.Simplex()), None),
    "accelerated": (fl.methods.AcceleratedProximalGradient(0.1, regularizer=L1), True),
}


def rows(site: int) -> fl.problems.LeastSquares:
    rng = np.random.default_rng(site)
    features = np.linalg.qr(rng.standard_normal((40, 3)))[0] * np.sqrt(40 / 2)  # Hessian 2 X'X / n = the identity
    data = fl.FederatedData.from_clients([(features, features @ np.ones(3) + site)])
    return fl.problems.LeastSquares(data, intercept=False)


def run(method: fl.LocalMethod, x0: np.ndarray, local_steps: int) -> Strategy:
    """Three honest sites."""
    app = client_app(lambda context: rows(int(context.node_config["m"])), policy=Policy.open())
    grid = InProcess(app, {name: {"m": m} for m, name in enumerate("abc")})
    strategy = Strategy(
        method, rounds=3, sites=list("abc"), x0={"weights": x0}, local_steps=local_steps, eval_every=3, patience=0.2
    )
    strategy.start(grid)
    return strategy


@pytest.mark.parametrize("name", METHODS)
def test_which_methods_may_repeat_an_answer(name: str):
    method, keeps_start = METHODS[name]
    assert Repetitions(Coordinator(method, {"weights": np.zeros(3)})).keeps_start is keeps_start


def test_an_honest_site_may_end_at_zero_from_every_state():
    """FedMiD under a strong l1 penalty: x0 and zero have the same answer."""
    strategy = run(fl.methods.FedMiD(0.1, regularizer=L1), np.array([0.3, -0.2, 0.1]), 2)
    said = {event.what for event in strategy.events}
    assert said == {"connected", REPEATED}
    assert not np.any(strategy.solution()["weights"])


def test_an_honest_site_may_end_at_its_optimum_from_every_state():
    """Many steps of a contraction forget where they began."""
    strategy = run(fl.methods.FedAvg(0.5, server_step_size=0.5), np.array([3.0, -2.0, 1.0]), 200)
    said = {event.what for event in strategy.events}
    assert said == {"connected", REPEATED}


def answers(method: fl.LocalMethod, second: float, steps: int, dtype: type = np.float64) -> tuple[bool, bool]:
    """A site answers a state and then another one, `second` further on, with the same arrays."""
    coordinator = Coordinator(method, {"weights": np.zeros(2, dtype)})
    repetitions, old = Repetitions(coordinator), {"x/weights": np.array([0.5, 0.25], dtype)}
    repetitions.follow_state()
    assert not repetitions.is_repeated("a", old)
    with coordinator.precision():
        state = method.init({"weights": jnp.array([second, 0.0], dtype)})
    coordinator.resume(1, state)
    repetitions.follow_state()
    assert not repetitions.is_repeated("b", old)  # another site's answer
    return repetitions.is_repeated("a", old), repetitions.are_impossible(steps)


def test_an_old_answer_to_another_state_is_found():
    assert answers(fl.methods.FedAvg(0.1), 0.1, steps=10) == (True, True)


def test_many_steps_may_forget_the_state():
    assert answers(fl.methods.FedAvg(0.1), 0.1, steps=30) == (True, False)
    assert answers(fl.methods.FedAvg(0.1), 0.1, steps=9, dtype=np.float32) == (True, True)
    assert answers(fl.methods.FedAvg(0.1), 0.1, steps=10, dtype=np.float32) == (True, False)


def test_states_that_differ_by_rounding_may_have_the_same_answer():
    assert answers(fl.methods.FedAvg(0.1), 1e-8, steps=1) == (False, True)
    assert answers(fl.methods.FedAvg(0.1), 1e-5, steps=1) == (True, True)


def test_the_same_state_may_be_asked_twice():
    assert answers(fl.methods.FedAvg(0.1), 0.0, steps=1) == (False, True)
