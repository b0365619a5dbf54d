"""The outputs of the theorems against their transcripts."""

from functools import partial
from typing import Any

import jax
import numpy as np
import pytest

import fedlocal as fl
from conformance.federation import MASK, closeness, federation, flat, rounds_of, start
from fedlocal.core import Scalar, static
from fedlocal.simulation import rounds as rounds_module
from fedlocal.simulation.averages import Average
from oracles import transcripts

SAMPLING: dict[str, Any] = {"local_steps": 4, "batch_size": 2, "seed": 5}
L1 = fl.regularizers.L1(0.3)
AVERAGES: dict[str, tuple[Any, fl.LocalMethod, Any]] = {
    "third_order": (
        "third_order",
        fl.methods.FedAvg(0.05),
        lambda x0, rounds: transcripts.third_order_average(x0, rounds, 0.05),
    ),
    "strongly_convex": (
        fl.StronglyConvexAverage(step_size=0.05, strong_convexity=0.4),
        fl.methods.FedAvg(0.05),
        lambda x0, rounds: transcripts.strongly_convex_average(x0, rounds, 0.05, 0.4),
    ),
    "uniform_dual": (
        "uniform",
        fl.methods.FedDualAvg(0.05, 1.0, L1),
        lambda x0, rounds: transcripts.dual_average_output(x0, rounds, 0.05, transcripts.l1(0.3, MASK)),
    ),
    "rounds_dual": (  # theorem small_lr: the server's points after rounds 1..R, with a server step size
        "rounds",
        fl.methods.FedDualAvg(0.05, 0.6, L1),
        lambda x0, rounds: np.mean(
            transcripts.fed_dual_avg(x0, rounds, 0.05, 0.6, transcripts.l1(0.3, MASK))[-len(rounds) :], axis=0
        ),
    ),
}


@pytest.mark.parametrize("name", AVERAGES)
def test_average_agrees_with_the_theorem(name: str):
    average, method, transcript = AVERAGES[name]
    problem, x0 = federation(), start(False)
    result = fl.simulate(problem, method, rounds=5, x0=x0, average=average, weights="examples", **SAMPLING)
    want = transcript(flat(x0), rounds_of(problem, 5, "examples", **SAMPLING))
    np.testing.assert_allclose(flat(result.x), want, atol=1e-10)
    slow = fl.loop(problem, method, rounds=5, x0=x0, average=average, weights="examples", **SAMPLING)
    assert closeness(result.x, slow.x) < 1e-12


def test_random_iterate_is_one_of_the_mean_iterates_and_uniform():
    """One client, one step a round: the iterates are those of SGD; each is drawn about equally often."""
    problem = fl.problems.quadratics(matrices=[[[1.0]]], optima=[[1.0]])
    arguments: dict[str, Any] = {"rounds": 5, "local_steps": 1, "x0": np.zeros(1), "eval_every": 5}
    iterates = [1 - 0.5**t for t in range(5)]  # x <- x - (x - 1) / 2 from 0
    drawn = [
        fl.simulate(problem, fl.methods.FedAvg(0.5), average="random", seed=s, **arguments).x[0] for s in range(200)
    ]
    nearest = [int(np.argmin(np.abs(np.array(iterates) - x))) for x in drawn]
    np.testing.assert_allclose(drawn, [iterates[i] for i in nearest], atol=1e-12)
    counts = np.bincount(nearest, minlength=5)
    assert np.abs(counts - 40).max() < 4 * np.sqrt(200 * 0.2 * 0.8)


def test_history_is_evaluated_at_the_average():
    problem = federation()
    result = fl.simulate(problem, fl.methods.FedAvg(0.05), rounds=3, average="third_order", local_steps=2)
    again = fl.simulate(problem, fl.methods.FedAvg(0.05), rounds=0, local_steps=2, x0=result.x)
    assert result.history["loss"].iloc[-1] == pytest.approx(again.history["loss"].iloc[0], rel=1e-14)


def test_the_mean_over_rounds_allows_unequal_steps_and_blocks(monkeypatch: pytest.MonkeyPatch):
    average, method, transcript = AVERAGES["rounds_dual"]
    problem, x0, asked = federation(), start(False), []
    monkeypatch.setattr(rounds_module, "chunk_size", lambda sent, clients: asked.append(clients) or 2)
    sampling: dict[str, Any] = {
        "local_steps": [1, 4, 2, 3, 5],
        "batch_size": 2,
        "seed": 5,
    }  # no other program has these
    want = transcript(flat(x0), rounds_of(problem, 4, "examples", **sampling))
    arguments: dict[str, Any] = {"rounds": 4, "x0": x0, "average": average, "weights": "examples", **sampling}
    result = fl.simulate(problem, method, **arguments)
    assert asked
    np.testing.assert_allclose(flat(result.x), want, atol=1e-10)
    assert closeness(result.x, fl.loop(problem, method, **arguments).x) < 1e-12
    with pytest.raises(ValueError, match=r"average needs the same number of local steps .* average='rounds'"):
        fl.simulate(problem, method, **{**arguments, "average": "uniform"})


class RandomRounds(Average):
    """Random weights on the server's solutions."""

    after_step: bool = static(default=True)
    between_rounds = True

    def keep_and_gain(self, t: jax.Array, total: float, key: jax.Array) -> tuple[Scalar, Scalar]:
        return 1.0, jax.random.uniform(jax.random.fold_in(key, t))


def test_a_random_mean_over_rounds_draws_from_the_seed_in_every_engine():
    """x <- x - (x - 1) / 2 from 0 is 1 - 2^-r after r rounds; the weights are drawn from the key of the seed."""
    problem = fl.problems.quadratics(matrices=[[[1.0]]], optima=[[1.0]])
    weights = np.array([jax.random.uniform(jax.random.fold_in(jax.random.key(3), r)) for r in range(4)])
    want = weights @ [1 - 0.5**r for r in range(1, 5)] / weights.sum()
    for engine in (fl.simulate, fl.loop):
        result = engine(
            problem, fl.methods.FedAvg(0.5), rounds=4, local_steps=1, x0=np.zeros(1), seed=3, average=RandomRounds()
        )
        assert result.x[0] == pytest.approx(want, abs=1e-12)


def test_fused_kernels_leave_a_mean_over_rounds_to_jax():
    data = fl.FederatedData.from_clients([(np.eye(3), np.array([1.0, -1.0, 1.0]))] * 2)
    arguments: dict[str, Any] = {"rounds": 2, "local_steps": 1, "average": "rounds"}
    logistic, method = fl.problems.Logistic(data), fl.methods.FedAvg(0.5)
    runs: list[Any] = [fl.simulate, partial(fl.sweep, grid={"client_step_size": [0.5]})]
    for run in runs:
        with pytest.raises(ValueError, match="does not apply: its kernels keep no average"):
            run(logistic, method, engine="linear", **arguments)
        assert run(logistic, method, **arguments).provenance["configuration"]["engine"] == "jax"
