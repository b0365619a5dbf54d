"""The study of discrepancies: its constants by other means, and a small run from end to end."""

import io
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

import fedlocal as fl
from fedlocal import experiments
from fedlocal.experiments.runner.configuration import load
from fedlocal.experiments.studies.discrepancy import study
from fedlocal.experiments.studies.discrepancy.lemmas import RUNS, over_seeds, potential_bound
from fedlocal.experiments.studies.discrepancy.settings import DiscrepancySettings
from fedlocal.experiments.studies.discrepancy.study import verdicts
from fedlocal.theory import Setting
from fedlocal.theory.bounds.fed_ac_stability import fed_ac_one_perturbed_bound

SMALL = ["rounds=2", "local_steps=[2, 4]", "clients=4", "examples=60", "dimension=3"]


def settings(*changes: str) -> DiscrepancySettings:
    loaded = load("discrepancy", overrides=[*SMALL, *changes])
    assert isinstance(loaded, DiscrepancySettings)
    return loaded


def test_constants_of_the_quadratics_are_those_of_the_problem():
    """Gradients of clients differ from their mean by the same vector everywhere, the longest of length zeta."""
    task = study.quadratic(settings(), 0.5)
    for x in (np.zeros(3), np.array([1.0, -2.0, 5.0])):
        own = np.array([task.problem.full_gradient(x, np.asarray(m)) for m in range(4)])
        assert np.linalg.norm(own - own.mean(axis=0), axis=1).max() == pytest.approx(0.5, rel=1e-12)
    solution = fl.solvers.centralized(task.problem, x0=task.x0, progress=False)
    np.testing.assert_allclose(solution.x, task.solution, atol=1e-8)
    assert task.optimum == pytest.approx(solution.objective, rel=1e-12)
    assert task.constants.gap == pytest.approx(
        float(np.mean([task.problem.loss(task.x0, np.full(4, 0.25)) - solution.objective])), rel=1e-10
    )


def test_constants_of_the_logistic_regression_bound_what_is_measured():
    task = study.logistic(settings())
    features, labels = (np.asarray(a, float) for a in task.problem.data.arrays)  # pyright: ignore
    x = np.random.default_rng(0).standard_normal(123)
    slope = 1 / (1 + np.exp(-labels * (features @ x)))
    gradients = -(labels * (1 - slope))[:, None] * features
    away = np.sum((gradients - gradients.mean(axis=0)) ** 2, axis=1)
    hessian = (features.T * (slope * (1 - slope))) @ features / len(features) + 1e-3 * np.eye(123)
    c = task.constants
    assert np.mean(away) <= c.noise**2
    assert c.fourth_moment is not None
    assert np.mean(away**2) <= c.fourth_moment**4
    assert c.strong_convexity - 1e-12 <= np.linalg.eigvalsh(hessian)[0]
    assert np.linalg.eigvalsh(hessian)[-1] <= c.smoothness


def test_over_seeds_is_mean_and_standard_error():
    part = pd.DataFrame({"round": 0, "step": [1, 1, 2, 2], "seed": [0, 1, 0, 1], "measured": [1.0, 3.0, 5.0, 5.0]})
    seen = over_seeds(part, "measured")
    assert seen["mean"].tolist() == [2.0, 5.0]
    assert seen["error"].tolist() == [1.0, 0.0]  # sqrt 2 / sqrt 2


def test_the_bound_after_a_round_knows_the_rounds_before_alone():
    task, wanted = study.quadratic(settings(), 0.0), settings("rounds=3")
    largest = [2.0, 7.0, 5.0]
    rows = [(r, k, x / (2 - k), seed) for r, x in enumerate(largest) for k in (0, 1) for seed in (0, 1)]
    rows += [(r, 2, 1e3, seed) for r in range(3) for seed in (0, 1)] + [(3, 0, 1e3, seed) for seed in (0, 1)]
    part = pd.DataFrame(rows, columns=["round", "step", "measured", "seed"])
    found = potential_bound(wanted, task, part, "FedAc-I", 2)
    exact = [
        fed_ac_one_perturbed_bound(task.constants, Setting(4, r, 2), task.step_size, apart).value
        for r, apart in ((1, 2.0), (2, 7.0), (3, 7.0))
    ]
    np.testing.assert_allclose(found, exact, rtol=1e-12)


def test_one_seed_has_no_standard_error():
    with pytest.raises(ValueError, match="seeds"):
        load("discrepancy", seeds=[0])


def test_a_violated_bound_is_said():
    """The same table with a measured value above its bound does not hold."""
    row = {"local_steps": 4, "largest": 1.0, "ratio": 0.5, "exponent": 1.0, "convergence_ratio": 0.5}
    cases = [(p, m) for p, names in RUNS.items() for m in names]
    table = pd.DataFrame([{"problem": p, "method": m, **row} for p, m in cases])
    wanted = settings("local_steps=[4]")
    claim = (
        "FedAvg stays below lemma lem:fedavg:2o:ub:2 at every step, on average over clients (the lemma: every client)"
    )
    held = {v.claim: v.outcome for v in verdicts(wanted, table)}
    assert held[claim] == "holds"
    table.loc[0, ["ratio", "exponent"]] = [1.5, 1.5]
    broken = {v.claim: v.outcome for v in verdicts(wanted, table)}
    assert broken[claim] == "does not hold"
    assert broken["FedAvg's discrepancy grows at most linearly in k on equal quadratics"] == "does not hold"


@pytest.mark.thorough
def test_a_small_run_from_end_to_end(tmp_path: Path):
    directory = experiments.run(
        "discrepancy", overrides=SMALL, seeds=[0, 1], root=tmp_path, console=Console(file=io.StringIO())
    )
    history, table = pd.read_parquet(directory / "history.parquet"), pd.read_parquet(directory / "table.parquet")
    assert len(table) == 9 * 2  # cases, local steps
    assert len(list((directory / "parts").iterdir())) == 9 * 2 * 2  # and seeds
    assert len(history) == sum(9 * 2 * (2 * (k + 1) + 1) for k in (2, 4))  # rows of each seed
    assert (directory / "figure.png").stat().st_size > 10_000
    assert (directory / "potentials.png").stat().st_size > 10_000
    assert len(json.loads((directory / "report.json").read_text())["verdicts"]) == 5 + 1 + 3 + 2
