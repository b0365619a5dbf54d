"""The outputs of the theorems against their transcripts."""

from typing import Any

import numpy as np
import pytest

import fedlocal as fl
from conformance.federation import MASK, closeness, federation, flat, rounds_of, start
from oracles import transcripts

SAMPLING = {"local_steps": 4, "batch_size": 2, "seed": 5}
L1 = fl.regularizers.L1(0.3)
AVERAGES: dict[str, tuple[Any, fl.LocalMethod, Any]] = {
    "third_order": (
        "third_order",
        fl.methods.FedAvg(0.05),
        lambda x0, rounds: transcripts.third_order_average(x0, rounds, 0.05),
    ),
    "strongly_convex": (
        fl.StronglyConvexAverage(0.05, 0.4),
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
    arguments = {"rounds": 5, "local_steps": 1, "x0": np.zeros(1), "eval_every": 5}
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
