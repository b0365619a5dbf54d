"""The constrained study: settings per data set, what is constrained and measured, and a small run on scikit-learn's digits."""

import io
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from fedlocal import experiments
from fedlocal.experiments.runner.claims import FAILS, HOLDS
from fedlocal.experiments.runner.configuration import Scale, load
from fedlocal.experiments.studies.femnist.problem import HandwritingTask
from fedlocal.experiments.studies.femnist.settings import FemnistSettings
from fedlocal.experiments.studies.femnist.study import feasible
from fedlocal.metrics import Evaluation

over = pytest.mark.parametrize
STUDIES = ("femnist-l1", "femnist-l2", "femnist-2nn")
TINY = ["rounds=6", "eval_every=3", "score.window=3", "local_epochs=1", "grid.client_step_size=[0.1]"]
TINY += ["grid.server_step_size=[0.3, 1.0]", 'methods=["FedDualAvg", "FedMiD-OSP"]']


def settings(name: str, *overrides: str, scale: Scale = "quick") -> FemnistSettings:
    loaded = load(name, scale, overrides=overrides)
    assert isinstance(loaded, FemnistSettings)
    return loaded


@over("name", STUDIES)
def test_femnist_gets_the_texts_settings(name: str):
    text = settings(name, "data=femnist", scale="paper")
    assert (text.rounds, text.eval_every, text.clients_per_round) == (5000, 100, 10)
    assert (text.batch_size, text.local_epochs) == (10, 10)
    assert text.grid.client_step_size == [0.001, 0.003, 0.01, 0.03, 0.1]
    assert text.grid.server_step_size == [0.01, 0.03, 0.1, 0.3, 1.0]
    score = text.score  # the averaged training loss on the last 10 checkpoints
    assert (score.metric, score.rule, score.window, score.largest) == ("loss", "mean", 10 * 100, False)
    assert (text.norm, text.radius) == {"femnist-l2": ("l2", 10)}.get(name, ("l1", 1000))
    assert text.fraction == (1 if name == "femnist-2nn" else 0.1)
    assert text.title.endswith("FEMNIST-62" if name == "femnist-2nn" else "FEMNIST-10")


@over("name", STUDIES)
def test_other_data_is_named_and_judged_on_ten_evaluations(name: str):
    scales: dict[Scale, str] = {"quick": "digits", "paper": "mnist_by_writer"}
    for scale, data in scales.items():
        chosen = settings(name, scale=scale)
        assert chosen.data == data
        assert chosen.title.endswith({"digits": "scikit-learn's digits", "mnist_by_writer": "MNIST by writer"}[data])
        assert chosen.score.window == 10 * chosen.eval_every
        assert f"<= {chosen.radius:g} on" in chosen.title
        named = {name for claim in chosen.claims for name in (claim.method, *claim.than)}
        assert named <= set(chosen.methods)


def test_an_override_wins_over_the_table_of_data_sets():
    assert settings("femnist-l1", "data=femnist", "rounds=7", "score.window=3").rounds == 7
    assert settings("femnist-l1", "data=femnist", "score.window=3").score.window == 3
    assert settings("femnist-l1", "rounds.digits=9").rounds == 9
    with pytest.raises(ValueError, match="data must be one of 'digits', 'mnist_by_writer', 'femnist', got 'mnist'"):
        settings("femnist-l1", "data=mnist")
    with pytest.raises(ValueError, match="'f1' is not measured; there are: loss, objective, training_accuracy"):
        settings("femnist-l1", "score.metric=f1")


def test_softmax_is_constrained_in_its_weights_alone():
    task = HandwritingTask(settings("femnist-l2", "radius=2"), 0)
    x = {"weights": jnp.full((64, 10), 5.0), "intercept": jnp.full(10, 5.0)}
    inside = task.constraint.prox(x, 1.0)
    assert float(jnp.linalg.norm(inside["weights"])) == pytest.approx(2)
    assert jnp.array_equal(inside["intercept"], x["intercept"])


def test_the_network_starts_inside_and_every_kernel_has_its_own_ball():
    task = HandwritingTask(settings("femnist-2nn", "radius=3"), 0)
    start = jax.jit(lambda key: task.problem.init(key))(jax.random.key(0))
    assert [layer["weights"].shape for layer in start] == [(64, 32), (32, 32), (32, 10)]
    for layer in start:
        assert float(jnp.sum(jnp.abs(layer["weights"]))) == pytest.approx(3, rel=1e-6)
    assert len({float(jnp.max(jnp.abs(layer["weights"]))) for layer in start}) == 3  # not one and the same


def test_accuracies_are_those_of_the_largest_score():
    task = HandwritingTask(settings("femnist-l1"), 3)
    rng = np.random.default_rng(0)
    points = [{"weights": rng.standard_normal((64, 10)), "intercept": rng.standard_normal(10)} for _ in range(3)]
    seen: Any = [Evaluation(x, 0.0, 0.0, task.problem, None, np.ones(1), {}) for x in points]  # pyright: ignore
    train, test = (metric.measure_many(seen) for metric in task.metrics[:2])
    for data, name, found in ((task.train, "training_accuracy", train), (task.test, "test_accuracy", test)):
        features, labels = (np.asarray(a) for a in data.arrays)
        for x, row in zip(points, found, strict=True):
            right = np.mean(np.argmax(features @ x["weights"] + x["intercept"], axis=1) == labels)
            assert row[name] == pytest.approx(right, abs=2e-3)  # scores in float32 may tie


@over(("violation", "diverged", "outcome"), [(5e-5, None, HOLDS), (2e-3, None, FAILS), (9.0, 4.0, HOLDS)])
def test_rounding_and_divergence_do_not_count_as_violations(violation: float, diverged: float | None, outcome: str):
    history = pd.DataFrame({"constraint_violation": [0.0, violation], "diverged": [None, diverged]})
    verdict = feasible(settings("femnist-l2", "radius=10"), history)
    assert verdict.outcome == outcome


@over("name", ["femnist-2nn", pytest.param("femnist-l2", marks=pytest.mark.thorough)])
def test_a_small_run_learns_inside_the_ball(name: str, tmp_path: Path):
    said = io.StringIO()
    changes = [*TINY, "radius=1" if name == "femnist-l2" else "radius=20"]
    where = experiments.run(name, overrides=changes, root=tmp_path, console=Console(file=said, width=1000))
    history: Any = pd.read_parquet(where / "history.parquet")
    assert len(history) == 2 * 2 * 3  # methods, pairs, rounds 0, 3 and 6
    assert history["constraint_violation"].max() <= 1e-5 * (1 if name == "femnist-l2" else 20)
    first, last = (history[history["round"] == r] for r in (0, 6))
    best = last.groupby("method")[["loss", "training_accuracy"]].agg({"loss": "min", "training_accuracy": "max"})
    assert (best["loss"] < first["loss"].min()).all()
    assert name != "femnist-l2" or (best["training_accuracy"] > 0.5).all()
    table = pd.read_parquet(where / "table.parquet")
    assert list(table["method"]) == ["FedDualAvg", "FedMiD-OSP"]
    assert (
        "scikit-learn's digits, seed 0: 1,437 examples by 50 clients, 360 for testing; 6 rounds (the text"
        in said.getvalue()
    )
    assert "holds: the constraints are always satisfied" in said.getvalue()
    assert "not measured: " in said.getvalue()  # what is about FedMiD
    assert (where / "figure.png").stat().st_size > 10_000


def test_femnist_has_62_classes_for_the_network_and_10_for_regression(tmp_path: Path):
    h5py = pytest.importorskip("h5py", reason="the extra femnist is not installed")
    for stem in ("fed_emnist", "fed_emnist_digitsonly"):
        for split in ("train", "test"):
            with h5py.File(tmp_path / f"{stem}_{split}.h5", "w") as file:
                for name, count in (("examples/a", 20), ("examples/b", 4)):
                    file[f"{name}/pixels"] = np.ones((count, 28, 28), np.float32)
                    file[f"{name}/label"] = np.arange(count, dtype=np.int32) % 10
    there = ["data=femnist", f"folder={tmp_path}"]
    network, regression = (HandwritingTask(settings(name, *there), 0) for name in ("femnist-2nn", "femnist-l1"))
    shapes = [jax.eval_shape(task.problem.init, jax.random.key(0)) for task in (network, regression)]
    assert shapes[0][-1]["bias"].shape == (62,)
    assert shapes[1]["intercept"].shape == (10,)
    assert network.train.client_sizes.tolist() == [20, 4]
    assert regression.train.client_sizes.tolist() == [2, 1]  # a tenth
    assert regression.test.client_sizes.tolist() == [20, 4]
