"""The advised choice is within a factor of three of the best of an exhaustive sweep over methods, local steps and step sizes."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fedlocal as fl
from fedlocal.methods import FedAc, FedAvg, MinibatchAcSGD, MinibatchSGD

SEEDS = (0, 1)
FACTOR = 3.0
pytestmark = pytest.mark.filterwarnings("ignore::fedlocal.DivergenceWarning")


def a9a(clients: int = 64) -> Any:
    features, labels = fl.data.a9a()
    return fl.problems.Logistic(fl.FederatedData.shared(features, labels, num_clients=clients), l2=1e-3)


def synthetic_logistic() -> Any:
    """16 clients of their own examples, whose true weights differ a little: heterogeneous."""
    rng = np.random.default_rng(1)
    truth, clients = rng.standard_normal(20), []
    for _ in range(16):
        features = rng.standard_normal((200, 20)) / np.sqrt(1 + np.arange(20))
        scores = features @ (truth + 0.5 * rng.standard_normal(20))
        clients.append((features, np.where(scores + rng.logistic(size=200) > 0, 1.0, -1.0)))
    return fl.problems.Logistic(fl.FederatedData.from_clients(clients), l2=1e-3)


def synthetic_regression() -> Any:
    """Least squares on the same badly scaled examples everywhere."""
    rng = np.random.default_rng(2)
    features = rng.standard_normal((2000, 30)) / (1 + np.arange(30)) ** 0.75
    targets = features @ rng.standard_normal(30) + 0.5 * rng.standard_normal(2000)
    data = fl.FederatedData.shared(features, targets, num_clients=32)
    return fl.problems.LeastSquares(data, intercept=False, l2=1e-3)


CASES: dict[str, tuple[Callable[[], Any], int, int]] = {  # problem, rounds, most local steps
    "a9a, 16 rounds": (a9a, 16, 256),
    "a9a, 64 rounds": (a9a, 64, 64),
    "a9a, 512 rounds": (a9a, 512, 8),
    "sites that differ": (synthetic_logistic, 50, 32),
    "badly scaled regression": (synthetic_regression, 40, 32),
}


def errors(problem: Any, build: Callable[..., Any], step_sizes: Any, rounds: int, steps: int, optimum: float) -> Any:
    """Mean over seeds of the final error of each step size."""
    ends = []
    for seed in SEEDS:
        run: dict[str, Any] = {
            "rounds": rounds,
            "local_steps": steps,
            "batch_size": 1,
            "seed": seed,
            "eval_every": rounds,
        }
        history = fl.sweep(problem, build, {"step_size": list(step_sizes)}, progress=False, **run).history
        last = history.groupby("step_size").tail(1).set_index("step_size")["objective"]
        ends.append(last.reindex(step_sizes).to_numpy() - optimum)
    return np.nan_to_num(np.mean(ends, axis=0), nan=np.inf)


@pytest.mark.thorough
@pytest.mark.parametrize("name", CASES)
def test_choice_is_near_the_best_of_an_exhaustive_sweep(name: str):
    make, rounds, most = CASES[name]
    problem = make()
    advice = fl.advise(problem, rounds=rounds, local_steps=most, progress=False)
    optimum, smoothness = advice.estimate.optimum, advice.estimate.local.smoothness
    mu = advice.estimate.constants.strong_convexity
    methods: dict[str, Callable[[int], Callable[..., Any]]] = {
        "FedAvg": lambda k: lambda step_size: FedAvg(step_size),
        "FedAc-I": lambda k: lambda step_size: FedAc.one(step_size=step_size, strong_convexity=mu, local_steps=k),
        "FedAc-II": lambda k: lambda step_size: FedAc.two(step_size=step_size, strong_convexity=mu, local_steps=k),
        "MB-SGD": lambda k: lambda step_size: MinibatchSGD(step_size),
        "MB-AC-SGD": lambda k: lambda step_size: MinibatchAcSGD(step_size, mu),
    }
    step_sizes = np.geomspace(1e-3, 4, 12) / smoothness
    counts = sorted({most, most // 4, most // 16} - {0})
    found = {
        (method, k): errors(problem, build(k), step_sizes, rounds, k, optimum).min()
        for method, build in methods.items()
        for k in counts
    }
    best = advice.best
    run: dict[str, Any] = {**advice.options, "eval_every": rounds, "progress": False}
    ends = [fl.simulate(problem, advice.method, seed=seed, **run).history["objective"].iloc[-1] for seed in SEEDS]
    chosen = np.mean(ends) - optimum
    winner = min(found, key=found.__getitem__)
    print(
        f"\n{name}: {best.family.name} {best.parameters.local_steps} x {best.parameters.step_size:.3g} reaches {chosen:.3g} "
        f"(predicted {best.predicted:.3g}); exhaustive {found[winner]:.3g} by {winner}; ratio {chosen / found[winner]:.2f}"
    )
    assert chosen <= FACTOR * found[winner]
    assert max(found.values()) > FACTOR * found[winner]  # so it is not the case that anything would do
