"""AcceleratedProximalGradient: restarts as in the text, what is sent, and how fast it converges."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedlocal as fl
from conformance.federation import MASK, federation, flat, rounds_of, start
from fedlocal.core import Round
from fedlocal.flower.messages.serialization import StateSerializer
from fedlocal.methods import AcceleratedProximalGradient, ProximalGradient
from oracles import transcripts

L1 = fl.regularizers.L1(0.3)
UNEQUAL: dict[str, Any] = {"local_steps": [1, 4, 2, 3, 5], "batch_size": 2, "weights": "examples"}


def test_restarts_agree_with_the_transcript():
    problem, x0, t, points = federation(), start(False), [], []
    method = AcceleratedProximalGradient(0.05, L1)
    for r in (12, 13, 14):
        t.append(float(fl.simulate(problem, method, rounds=r, x0=x0, seed=3, eval_every=r, **UNEQUAL).server.t))
    assert t[0] > 7
    assert t[1:] == [1.0, (1 + np.sqrt(5)) / 2]
    metrics = [lambda x: points.append(flat(x)) or 0.0]
    fl.simulate(problem, method, rounds=40, x0=x0, seed=3, metrics=metrics, **UNEQUAL)
    rounds, psi = rounds_of(problem, 40, seed=3, **UNEQUAL), transcripts.l1(0.3, MASK)
    wanted = transcripts.accelerated_proximal_gradient(flat(x0), rounds, 0.05, psi)
    np.testing.assert_allclose(points[1:], wanted, rtol=0, atol=1e-10)


def descend(method: AcceleratedProximalGradient, x0: Any, rounds: int) -> Any:
    """The last server state and all t, on F(x) = 1/2 sum_i h_i x_i^2 with h between 0.1 and 1 in each array."""

    def a_round(server: Any, _: Any) -> Any:
        g = jax.tree.map(lambda a: a * jnp.linspace(0.1, 1, a.size, dtype=a.dtype).reshape(a.shape), server.z)
        server = method.update(server, g, Round())
        return server, server.t

    return jax.lax.scan(a_round, method.init(x0), None, length=rounds)


def nested(dtype: Any) -> Any:
    return {"layers": [jnp.ones((2, 3), dtype), (jnp.full(4, 2, dtype),)], "bias": jnp.ones((), dtype)}


@pytest.mark.parametrize("dtype", [np.float32, pytest.param(np.float64, marks=pytest.mark.thorough)])
def test_each_step_size_of_a_vmap_restarts_on_its_own(dtype: Any):
    etas = jnp.array([0.3, 0.6, 1.0], dtype)
    together, t = jax.jit(jax.vmap(lambda eta: descend(AcceleratedProximalGradient(eta), nested(dtype), 40)))(etas)
    assert len({tuple(row) for row in (np.asarray(t) == 1).tolist()}) == 3  # at different rounds
    assert (np.asarray(t) == 1).any(axis=1).all()
    assert {a.dtype for a in jax.tree.leaves(together)} == {np.dtype(dtype)}
    for i, eta in enumerate(etas):
        alone, _ = descend(AcceleratedProximalGradient(float(eta)), nested(dtype), 40)
        assert jax.tree.structure(alone.x) == jax.tree.structure(nested(dtype))
        for one, many in zip(jax.tree.leaves(alone), jax.tree.leaves(together), strict=True):
            np.testing.assert_allclose(many[i], one, rtol=0, atol=50 * np.finfo(dtype).eps)


def test_points_are_sent_and_no_momentum():
    """A restart depends on the data, so t must not travel: replies hold numbers that no data entered as they are."""
    method, x0 = AcceleratedProximalGradient(0.05, L1), start(False)
    serializer = StateSerializer(method, x0)
    server = method.init(x0)._replace(z={"weights": np.full((2, 3), 5.0), "intercept": np.array(7.0)})
    down = serializer.down(method.broadcast(server))
    assert down.numbers == {}
    assert list(down.arrays) == ["x/intercept", "x/weights", "z/intercept", "z/weights"]
    assert (down.arrays["z/weights"] == 5).all()
    assert down.arrays["z/intercept"].tolist() == [7]
    np.testing.assert_array_equal(method.solution(method.broadcast(server))["weights"], x0["weights"])


def hospitals() -> fl.problems.Logistic:
    """Three unequal sites with columns of unequal scale."""
    rng = np.random.default_rng(4)
    truth = np.array([2.0, -1.5, 1.0, 0, 0, 0, 0, 0])
    sites = []
    for n in (80, 40, 60):
        X = (rng.standard_normal((n, 8)) + 0.3 * rng.standard_normal(8)) @ rng.standard_normal((8, 8))
        sites.append((X, np.where(X @ truth + rng.logistic(size=n) > 0, 1.0, -1.0)))
    return fl.problems.Logistic(fl.FederatedData.from_clients(sites), intercept=True)


def suboptimality(problem: Any, method: fl.LocalMethod, optimum: float, rounds: int) -> float:
    """(objective - optimum) / optimum after these rounds of full gradients."""
    run = fl.simulate(problem, method, rounds=rounds, local_steps=1, weights="examples", eval_every=rounds)
    return float(run.history["objective"].iloc[-1]) / optimum - 1


def test_converges_where_proximal_gradient_is_far_away():
    problem, psi, rounds = hospitals(), fl.regularizers.L1(0.01), 200
    X = np.concatenate([np.ones((180, 1)), np.asarray(problem.data.arrays[0])], axis=1)
    eta = 4 / np.linalg.eigvalsh(X.T @ X / 180)[-1]
    optimum = fl.solvers.centralized(problem, psi, weights="examples", tolerance=1e-12).objective
    assert abs(suboptimality(problem, AcceleratedProximalGradient(eta, psi), optimum, rounds)) <= 1e-9
    assert suboptimality(problem, ProximalGradient(eta, psi), optimum, rounds) > 1e-3


def fista(h: np.ndarray, rounds: int) -> np.ndarray:
    """FISTA without restarts on 1/2 sum_i h_i x_i^2, step size 1 / max h, from x = 1."""
    x, y, t = np.ones_like(h), np.ones_like(h), 1.0
    for _ in range(rounds):
        x_next = y - h * y / h.max()
        t_next = (1 + np.sqrt(1 + 4 * t**2)) / 2
        y = x_next + (t - 1) / t_next * (x_next - x)
        x, t = x_next, t_next
    return x


def test_restarts_beat_fista_on_a_strongly_convex_quadratic():
    """Without restarts F ripples and falls polynomially; with them it falls like exp(-c rounds / sqrt(condition))."""
    h, rounds = np.geomspace(1e-3, 1.0, 20), 1000
    problem = fl.problems.quadratics(matrices=np.stack([np.diag(h)] * 2), optima=np.zeros((2, 20)))
    method = AcceleratedProximalGradient(1.0)
    run = fl.simulate(problem, method, rounds=rounds, x0=np.ones(20), local_steps=1, eval_every=rounds)
    with_restarts = float(h @ np.asarray(run.x) ** 2 / 2)
    without = float(h @ fista(h, rounds) ** 2 / 2)
    assert with_restarts < 1e-15 < 1e-9 < without
