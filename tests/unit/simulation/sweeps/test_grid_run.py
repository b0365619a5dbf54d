"""A sweep is many runs at once: each cell equals its own run, whatever its neighbours do and however it is cut."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
import pandas as pd
import pytest

import fedlocal as fl
from conformance.federation import closeness, federation
from fedlocal.simulation import driver
from fedlocal.simulation.sweeps import batches
from fedlocal.simulation.sweeps import result as sweep_results

GRID = {"client_step_size": [0.01, 0.05], "server_step_size": [0.5, 1.0, 1.5]}
EPOCHS: dict[str, Any] = {"local_epochs": 2, "batch_size": 3, "clients_per_round": 3, "weights": "examples"}
PSI = fl.regularizers.L1(0.3)
quiet = pytest.mark.filterwarnings("ignore::fedlocal.DivergenceWarning")


def untimed(history: pd.DataFrame) -> pd.DataFrame:
    return history.drop(columns="seconds")


def assert_cells_equal_single_runs(result: fl.SweepResult, tolerance: float, **arguments: Any) -> None:
    for i, method in enumerate(result.methods):
        alone, cell = fl.simulate(result.problem, method, engine="jax", **arguments), result.cell(i)
        assert closeness(cell.x, alone.x) <= tolerance
        assert closeness(cell.server, alone.server) <= tolerance
        got, wanted = untimed(cell.history), untimed(alone.history)
        assert list(got) == list(wanted)
        np.testing.assert_allclose(got, wanted, rtol=10 * tolerance, atol=10 * tolerance)


METHODS = {
    "fed_dual_avg": fl.methods.FedDualAvg(0.1, 1.0, PSI),
    "fed_mid_osp": fl.methods.FedMiD(0.1, 1.0, fl.regularizers.Nuclear(0.3), prox_on_clients=False),
    "fed_avg": fl.methods.FedAvg(0.1, 1.0),
}


@pytest.mark.parametrize(
    "name", [n if n != "fed_avg" else pytest.param(n, marks=pytest.mark.thorough) for n in METHODS]
)
def test_a_cell_equals_the_single_run_in_float64(name: str):
    arguments: dict[str, Any] = EPOCHS | {
        "rounds": 7,
        "eval_every": 3,
        "seed": 4,
        "metrics": [fl.metrics.ClientDiscrepancy()],
    }
    result = fl.sweep(federation(), METHODS[name], GRID, **arguments)
    assert len(result.methods) == 6
    assert_cells_equal_single_runs(result, 1e-12, **arguments)


def test_a_cell_equals_the_single_run_in_float32():
    with jax.enable_x64(False):
        arguments: dict[str, Any] = EPOCHS | {"rounds": 7, "eval_every": 3, "seed": 4}
        result = fl.sweep(federation(), METHODS["fed_dual_avg"], GRID, **arguments)
        assert result.points[0]["weights"].dtype == np.float32
        assert_cells_equal_single_runs(result, 1e-6, **arguments)


def test_blocks_on_threads_keep_float32_and_float64_apart(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(batches, "BATCH_BYTES", 1)  # every cell in its own block
    arguments: dict[str, Any] = EPOCHS | {"rounds": 3}
    with jax.enable_x64(False):
        result = fl.sweep(federation(), METHODS["fed_dual_avg"], GRID, **arguments)
        assert {a.dtype for a in jax.tree.leaves(result.servers)} == {np.dtype(np.float32)}
        assert_cells_equal_single_runs(result, 1e-6, **arguments)
    double = fl.sweep(federation(), METHODS["fed_dual_avg"], GRID, **arguments)
    assert_cells_equal_single_runs(double, 1e-12, **arguments)


def test_programs_that_call_lapack_do_not_wait_for_each_other(monkeypatch: pytest.MonkeyPatch):
    """Two of them at the same time would: each holds one of XLA's threads and waits for another."""
    monkeypatch.setattr(batches, "BATCH_BYTES", 1)
    arguments: dict[str, Any] = EPOCHS | {"rounds": 3}
    method = fl.methods.FedDualAvg(0.1, 1.0, fl.regularizers.Nuclear(0.3))
    assert_cells_equal_single_runs(fl.sweep(federation(), method, GRID, **arguments), 1e-12, **arguments)


def test_a_function_of_the_grid_and_an_average():
    def method(step_size: float) -> fl.LocalMethod:
        return fl.methods.FedAc.one(step_size=step_size, strong_convexity=0.1, local_steps=2)

    arguments: dict[str, Any] = {"rounds": 5, "local_steps": 2, "batch_size": 2, "average": "uniform"}
    result = fl.sweep(federation(), method, {"step_size": [0.01, 0.05, 0.02]}, **arguments)
    assert_cells_equal_single_runs(result, 1e-12, **arguments)


def test_cells_that_differ_in_structure_get_a_program_each():
    grid = {"prox_on_clients": [True, False], "regularizer.strength": [0.1, 0.4]}
    arguments: dict[str, Any] = EPOCHS | {"rounds": 4}
    advance_cells: Any = batches._advance_cells
    advance_cells.clear_cache()
    result = fl.sweep(federation(), METHODS["fed_dual_avg"], grid, **arguments)
    assert advance_cells._cache_size() == 2
    assert_cells_equal_single_runs(result, 1e-12, **arguments)
    assert result.cells.columns.tolist() == ["prox_on_clients", "regularizer.strength", "diverged"]


def test_one_program_serves_all_blocks_rounds_and_seeds(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(batches, "BATCH_BYTES", 400)
    advance_cells: Any = batches._advance_cells
    advance_cells.clear_cache()
    for rounds, seed in ((3, 0), (9, 5)):
        fl.sweep(federation(), METHODS["fed_dual_avg"], GRID, rounds=rounds, seed=seed, **EPOCHS)
    assert advance_cells._cache_size() == 1


@quiet
@pytest.mark.parametrize("block_bytes", [pytest.param(1, marks=pytest.mark.thorough), 400, 1 << 20])
def test_diverging_cells_do_not_disturb_the_others(block_bytes: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(batches, "BATCH_BYTES", block_bytes)
    steps = [1e30, 0.01, 40.0, 0.03, 1e5, 0.02, 3.0]
    arguments: dict[str, Any] = EPOCHS | {"rounds": 30, "eval_every": 4, "metrics": [fl.metrics.Rank()]}
    result = fl.sweep(federation(), METHODS["fed_dual_avg"], {"client_step_size": steps}, **arguments)
    fine = result.cells["diverged"].isna()
    assert fine.tolist() == [False, True, False, True, False, True, False]
    for i in np.flatnonzero(fine):
        alone = fl.simulate(federation(), result.methods[i], **arguments)
        assert closeness(result.cell(int(i)).x, alone.x) < 1e-12
    for i in np.flatnonzero(~fine):
        with pytest.warns(fl.DivergenceWarning):
            alone = fl.simulate(federation(), result.methods[i], **arguments)
        cell = result.cell(int(i))
        assert cell.diverged == alone.diverged
        assert cell.history["round"].tolist() == alone.history["round"].tolist()


@quiet
def test_a_sweep_in_which_all_diverge_ends_early_and_has_no_best_cell():
    result = fl.sweep(federation(), METHODS["fed_dual_avg"], {"client_step_size": [1e8, 1e9]}, rounds=500, **EPOCHS)
    assert result.history["round"].to_numpy().max() < 500
    with pytest.raises(ValueError, match="all of them diverged"):
        result.best("loss")


def test_diverged_cells_are_told():
    with pytest.warns(fl.DivergenceWarning, match="1 of 2 cells diverged"):
        fl.sweep(federation(), METHODS["fed_dual_avg"], {"client_step_size": [1e8, 0.01]}, rounds=9, **EPOCHS)


@quiet
def test_the_history_is_tidy():
    grid = {"client_step_size": [1e8, 0.01], "server_step_size": [0.5, 1.0]}
    result = fl.sweep(federation(), METHODS["fed_dual_avg"], grid, rounds=5, eval_every=2, **EPOCHS)
    history: Any = result.history
    assert history.columns[:4].tolist() == ["cell", "client_step_size", "server_step_size", "round"]
    assert not history.duplicated(["cell", "round"]).any()
    assert history[history["cell"] == 3]["round"].tolist() == [0, 2, 4, 5]
    assert (history[history["cell"] == 3]["server_step_size"] == 1.0).all()


def test_the_rules_for_the_best_cell():
    curves = {0: [9.0, 1.0, 5.0], 1: [9.0, 4.0, 3.0], 2: [9.0, 0.5, np.inf]}
    rows = [
        {"cell": cell, "eta": cell, "round": r, "loss": loss}
        for cell, losses in curves.items()
        for r, loss in zip((0, 50, 100), losses, strict=True)
    ]
    cells = pd.DataFrame({"eta": [0, 1, 2], "diverged": pd.array([None, None, 100], "Int64")})
    nothing: dict[str, Any] = dict.fromkeys(["methods", "points", "servers", "problem", "plans"])
    result = fl.SweepResult(cells, pd.DataFrame(rows), provenance={"configuration": {"rounds": 100}}, **nothing)
    assert result.best("loss", "last") == 1
    assert result.best("loss", "mean", window=51) == 0  # (1 + 5) / 2 against (4 + 3) / 2
    assert result.best("loss", "mean", window=100, largest=True) == 1
    assert result.best("loss", "best") == 2  # before it diverged
    assert np.isnan(result.score("loss", "mean")[2])


class Stop:
    """A metric that interrupts, once, when it has been asked so many times."""

    def __init__(self, after: int):
        self.left = after

    def __call__(self, x: Any) -> float:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt
        return 0.0


@quiet
@pytest.mark.parametrize("after", [5, 20, 41])
def test_an_interrupted_sweep_continues_to_the_same_bits(after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(batches, "BATCH_BYTES", 400)
    monkeypatch.setattr(driver, "SAVE_SECONDS", 0.0)
    grid = {"client_step_size": [0.01, 1e20, 0.03, 20.0, 0.02, 0.04]}
    arguments: dict[str, Any] = EPOCHS | {"rounds": 12, "seed": 2}

    def run(stop: Stop, checkpoint: Path | None) -> fl.SweepResult:
        return fl.sweep(federation(), METHODS["fed_dual_avg"], grid, metrics=[stop], checkpoint=checkpoint, **arguments)

    whole = run(Stop(-1), None)
    with pytest.raises(KeyboardInterrupt):
        run(Stop(after), tmp_path / "sweep.npz")
    again = run(Stop(-1), tmp_path / "sweep.npz")
    for a, b in zip(jax.tree.leaves(again.points), jax.tree.leaves(whole.points), strict=True):
        np.testing.assert_array_equal(a, b)
    pd.testing.assert_frame_equal(untimed(again.history), untimed(whole.history))
    pd.testing.assert_frame_equal(again.cells, whole.cells)


def test_a_longer_sweep_continues_a_shorter_one_and_another_grid_does_not(tmp_path: Path):
    arguments: dict[str, Any] = EPOCHS | {"checkpoint": tmp_path / "sweep.npz"}
    method = METHODS["fed_dual_avg"]
    fl.sweep(federation(), method, GRID, rounds=5, eval_every=2, **arguments)
    longer = fl.sweep(federation(), method, GRID, rounds=8, eval_every=2, **arguments)
    whole = fl.sweep(federation(), method, GRID, rounds=8, eval_every=2, **EPOCHS)
    assert closeness(longer.points, whole.points) == 0
    pd.testing.assert_frame_equal(untimed(longer.history), untimed(whole.history))
    with pytest.raises(ValueError, match="belongs to another run: cells"):
        fl.sweep(federation(), method, {"client_step_size": [0.01]}, rounds=8, eval_every=2, **arguments)
    with pytest.raises(ValueError, match="round 8 already; rounds must be >= 8, got 2"):
        fl.sweep(federation(), method, GRID, rounds=2, eval_every=2, **arguments)


def test_a_cell_has_a_certificate():
    result = fl.sweep(federation(), METHODS["fed_dual_avg"], GRID, rounds=3, **EPOCHS)
    assert result.cell(2).certificate().kkt_residual > 0


MISTAKES: dict[str, tuple[Any, Any, type[Exception], str]] = {
    "no_such_field": (
        METHODS["fed_dual_avg"],
        {"lr": [0.1]},
        ValueError,
        "FedDualAvg has no 'lr'; it has: client_",
    ),
    "no_such_part": (
        METHODS["fed_dual_avg"],
        {"regularizer.x": [1]},
        ValueError,
        "L1 has no 'x'; it has: strength",
    ),
    "a_number": (
        METHODS["fed_dual_avg"],
        {"client_step_size": 0.1},
        TypeError,
        r"grid\['client_step_size'\] must be a list",
    ),
    "empty": (
        METHODS["fed_dual_avg"],
        {"client_step_size": []},
        ValueError,
        r"grid\['client_step_size'\] has no values",
    ),
    "not_a_grid": (METHODS["fed_dual_avg"], 3, TypeError, "grid must be a dict of lists or a list of dicts, got 3"),
    "ragged": (METHODS["fed_dual_avg"], [{"a": 1}, {"b": 2}], ValueError, "every cell the same names"),
    "bad_value": (
        METHODS["fed_dual_avg"],
        {"client_step_size": [-1.0]},
        ValueError,
        "client_step_size must be > 0, got -1",
    ),
    "reserved": (METHODS["fed_dual_avg"], {"round": [1]}, ValueError, "'round' is a column of the history"),
    "no_parts": (
        METHODS["fed_dual_avg"],
        {"client_step_size.x": [1]},
        ValueError,
        "'client_step_size' of .* has no parts",
    ),
    "class": (fl.methods.FedDualAvg, GRID, TypeError, "method must be a method or a function"),
    "function": (lambda eta: eta, {"eta": [1.0]}, TypeError, "must return a LocalMethod, got 1.0"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_told_in_one_sentence(name: str):
    method, grid, kind, sentence = MISTAKES[name]
    with pytest.raises(kind, match=sentence):
        fl.sweep(federation(), method, grid, rounds=1, **EPOCHS)


def test_a_rule_or_a_column_that_does_not_exist_is_told():
    result = fl.sweep(federation(), METHODS["fed_dual_avg"], GRID, rounds=1, **EPOCHS)
    with pytest.raises(ValueError, match="rule must be one of 'mean', 'last', 'best', got 'median'"):
        result.best("loss", "median")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match=r"metric must be one of .*'loss'.*, got 'f1'"):
        result.best("f1")
    with pytest.raises(ValueError, match="cell must be a whole number >= 0 and <= 5, got 6"):
        result.cell(6)


def test_a_sweep_over_a_method_with_an_optax_server_optimiser():
    method = fl.methods.FedAvg(0.1, server_optimizer=optax.adam(0.1))
    arguments: dict[str, Any] = EPOCHS | {"rounds": 4}
    result = fl.sweep(federation(), method, {"client_step_size": [0.01, 0.05]}, **arguments)
    assert_cells_equal_single_runs(result, 1e-12, **arguments)


def test_parts_of_blocks_are_reached_by_name():
    psi = fl.regularizers.Blocks({"weights": PSI})
    method = fl.methods.FedDualAvg(0.05, 1.0, psi)
    result = fl.sweep(federation(), method, {"regularizer.blocks.weights.strength": [0.1, 0.5]}, rounds=2, **EPOCHS)
    assert [m.regularizer.blocks["weights"].strength for m in result.methods] == [0.1, 0.5]  # pyright: ignore


def test_losses_that_grow_a_million_times_are_told_once():
    """All numbers are finite still, as `cells` says; a user would take them for results."""
    arguments: dict[str, Any] = {"rounds": 6, "eval_every": 6, "local_steps": 3}
    with pytest.warns(fl.DivergenceWarning) as caught:
        result = fl.sweep(federation(), fl.methods.FedAvg(1.0), {"client_step_size": [0.01, 10.0, 20.0]}, **arguments)
    said = "sweep: the loss of 2 of 3 cells grew more than a millionfold, though it is finite still; try smaller step sizes"
    assert [str(warning.message) for warning in caught] == [said]
    assert caught[0].filename == __file__
    assert result.cells["diverged"].isna().tolist() == [True] * 3
    with pytest.warns(fl.DivergenceWarning, match="the loss of 2 of 2 cells grew"):
        fl.compare(federation(), [fl.methods.FedAvg(10.0)], seeds=range(2), **arguments)


def test_one_value_that_is_not_finite_makes_a_mean_missing():
    rows = [
        {"cell": c, "round": r, "loss": v}
        for c, vs in {0: [np.inf, 1.0], 1: [2.0, 2.0]}.items()
        for r, v in enumerate(vs)
    ]
    frame = pd.DataFrame(rows)
    scores = sweep_results.score_groups(frame, "cell", frame["cell"] > 9, 1, "loss", "mean", 5, False)
    assert scores.to_dict() == {1: 2.0}


def test_methods_with_different_columns_share_a_checkpoint(tmp_path: Path):
    def method(accelerated: bool) -> fl.LocalMethod:
        if accelerated:
            return fl.methods.FedAc.one(step_size=0.05, strong_convexity=0.1, local_steps=2)
        return fl.methods.FedAvg(0.05)

    arguments: dict[str, Any] = {
        "rounds": 4,
        "local_steps": 2,
        "batch_size": 2,
        "metrics": [fl.metrics.ClientDiscrepancy()],
    }
    grid = {"accelerated": [False, True]}
    whole = fl.sweep(federation(), method, grid, **arguments)
    fl.sweep(federation(), method, grid, **{**arguments, "rounds": 2}, checkpoint=tmp_path / "s.npz")
    again = fl.sweep(federation(), method, grid, **arguments, checkpoint=tmp_path / "s.npz")
    pd.testing.assert_frame_equal(untimed(again.history), untimed(whole.history))


def test_parts_of_different_precision_become_one():
    x0 = {"weights": np.zeros((2, 3), np.float32), "intercept": np.zeros(())}
    result = fl.sweep(federation(), METHODS["fed_dual_avg"], GRID, rounds=2, x0=x0, **EPOCHS)
    assert result.points[0]["weights"].dtype == np.float64


def test_a_sweep_that_was_interrupted_between_evaluations_is_evaluated_at_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """It is stopped after round 3 and continued to the same round, which is its last now."""
    arguments: dict[str, Any] = EPOCHS | {"eval_every": 5}
    method, grid = METHODS["fed_dual_avg"], {"client_step_size": [0.01, 0.02]}
    advance, calls = batches._advance_cells, []

    def interrupted(*given: Any) -> Any:
        calls.append(1)
        if len(calls) == 5:  # the first compiles, the others run a round each
            raise KeyboardInterrupt
        return advance(*given)

    interrupted.lower = advance.lower  # pyright: ignore[reportFunctionMemberAccess]
    monkeypatch.setattr(batches, "_advance_cells", interrupted)
    monkeypatch.setattr(driver, "CALL_SECONDS", 0.0)
    with pytest.raises(KeyboardInterrupt, match="stopped after round 3"):
        fl.sweep(federation(), method, grid, rounds=12, checkpoint=tmp_path / "c", **arguments)
    monkeypatch.undo()
    ended = fl.sweep(federation(), method, grid, rounds=3, checkpoint=tmp_path / "c", **arguments)
    whole = fl.sweep(federation(), method, grid, rounds=3, **arguments)
    pd.testing.assert_frame_equal(untimed(ended.history), untimed(whole.history))
