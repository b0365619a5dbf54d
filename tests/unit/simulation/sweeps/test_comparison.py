"""Seeds, local steps and several methods as axes of a sweep; `compare` is such a sweep."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedlocal as fl
from conformance.federation import closeness, federation, start
from fedlocal.simulation.sweeps import batches

METHODS = {
    "FedAvg": fl.methods.FedAvg(0.03),
    "FedDualAvg": fl.methods.FedDualAvg(0.03, regularizer=fl.regularizers.L1(0.1)),
    "SCAFFOLD": fl.methods.Scaffold(0.03),
}
WORK: dict[str, Any] = {"rounds": 5, "local_steps": 2, "batch_size": 2, "clients_per_round": 3, "weights": "examples"}


def assert_equal_single_runs(result: fl.SweepResult, tolerance: float = 1e-12, **arguments: Any) -> None:
    """Each cell is what `simulate` gives for its method and its values of the grid."""
    for i, method in enumerate(result.methods):
        own = {
            name: result.cells[name][i] for name in ("seed", "local_steps", "clients_per_round") if name in result.cells
        }
        cell, alone = result.cell(i), fl.simulate(result.problem, method, **{**arguments, **own})
        assert closeness(cell.x, alone.x) <= tolerance
        assert closeness(cell.server, alone.server) <= tolerance
        assert cell.plan.cohort(3).tolist() == alone.plan.cohort(3).tolist()
        columns = [c for c in alone.history if c != "seconds"]
        np.testing.assert_allclose(cell.history[columns], alone.history[columns], rtol=1e-10, atol=1e-12)


def test_compare_runs_every_method_with_every_seed_as_simulate_does():
    result = fl.compare(federation(), METHODS, seeds=[3, 0, 7], x0=start(False), **WORK)
    assert result.cells[["method", "seed"]].to_numpy().tolist() == [[m, s] for m in METHODS for s in (3, 0, 7)]
    assert_equal_single_runs(result, x0=start(False), **WORK)
    assert len(result.history) == 9 * 6
    assert list(result.history.columns[:5]) == ["cell", "method", "seed", "round", "loss"]


def test_seeds_start_where_their_runs_start(softmax_like: fl.problems.MLP):
    work: dict[str, Any] = {"rounds": 2, "local_steps": 2, "batch_size": 3}
    result = fl.sweep(softmax_like, fl.methods.FedAvg(0.1), {"seed": [0, 5]}, **work)
    assert_equal_single_runs(result, **work)
    assert closeness(result.points[0], result.points[1]) > 1e-2


@pytest.fixture(scope="module")
def softmax_like() -> fl.problems.MLP:
    rng = np.random.default_rng(0)
    clients = [(rng.normal(size=(n, 4)), np.arange(n) % 3) for n in (5, 8)]
    return fl.problems.MLP(fl.FederatedData.from_clients(clients), hidden=(3,))


def programs() -> int:
    return batches._advance_cells._cache_size()  # pyright: ignore[reportAttributeAccessIssue]


def test_seeds_of_a_method_are_one_program():
    before = programs()
    result = fl.compare(
        federation(), [fl.methods.FedAvg(0.0125)], seeds=range(4), x0=start(False), **{**WORK, "rounds": 3}
    )
    again = fl.compare(
        federation(), [fl.methods.FedAvg(0.025)], seeds=range(9, 13), x0=start(False), **{**WORK, "rounds": 3}
    )
    assert programs() - before <= 2  # the second looks whether a program stands alone
    assert closeness(result.points[0], again.points[0]) > 1e-3


def test_step_sizes_share_the_draws_of_their_seed_and_local_steps_are_an_axis():
    grid = {"client_step_size": [0.01, 0.03], "seed": [0, 1], "local_steps": [1, 3], "clients_per_round": [2, 5]}
    work = {name: value for name, value in WORK.items() if name not in ("local_steps", "clients_per_round")}
    result = fl.sweep(federation(), fl.methods.FedAvg(1.0), grid, x0=start(False), **work)
    assert len(result.cells) == 16
    assert_equal_single_runs(result, x0=start(False), **work)
    assert "seed" not in result.provenance["configuration"]
    assert result.provenance["configuration"]["weights"] == "examples"


def test_a_function_gets_the_local_steps_if_it_names_them():
    problem, seen = federation(), []

    def method(step_size: float, local_steps: int) -> fl.LocalMethod:
        seen.append(local_steps)
        return fl.methods.FedAc(step_size, 0.4, local_steps)

    work: dict[str, Any] = {"rounds": 3, "batch_size": 2, "x0": start(False)}
    result = fl.sweep(problem, method, {"step_size": [0.05], "local_steps": [1, 4], "seed": [0, 1]}, **work)
    assert seen == [1, 1, 4, 4]
    assert_equal_single_runs(result, **work)


def test_several_methods_each_with_the_whole_grid():
    several = {
        "plain": fl.methods.FedAvg(1.0),
        "dual": lambda client_step_size: fl.methods.FedDualAvg(client_step_size),
    }
    grid = {"client_step_size": [0.01, 0.03]}
    result = fl.sweep(federation(), several, grid, x0=start(False), **WORK)
    assert result.cells["method"].tolist() == ["plain", "plain", "dual", "dual"]
    assert_equal_single_runs(result, x0=start(False), **WORK)


def test_kernels_run_seeds_one_by_one_and_agree_with_jax():
    rng = np.random.default_rng(1)
    clients = [(rng.normal(size=(n, 6)), rng.integers(0, 2, n)) for n in (8, 5, 11)]
    problem = fl.problems.Logistic(fl.FederatedData.from_clients(clients), l2=0.1)
    work: dict[str, Any] = {"rounds": 4, "local_steps": 3, "batch_size": 2, "clients_per_round": 2}
    grid = {"client_step_size": [0.1, 0.3], "seed": [1, 2, 3]}
    for own in (grid, {"seed": [1, 2, 3]}):
        jax_, linear = (
            fl.sweep(problem, fl.methods.FedAvg(0.2), own, engine=engine, **work) for engine in ("jax", "linear")
        )
        for a, b in zip(jax_.points, linear.points, strict=True):
            assert closeness(a, b) < 1e-12
        assert np.allclose(jax_.history["loss"], linear.history["loss"], rtol=1e-12)


@pytest.mark.parametrize("grid", [{"seed": [0, 1, 2]}, {"client_step_size": [0.01, 0.02, 0.03], "seed": [0, 1]}])
def test_a_comparison_goes_on_from_its_checkpoint_to_the_same_bits(tmp_path: Any, grid: dict[str, Any]):
    file, work = tmp_path / "sweep.npz", {**WORK, "x0": start(False)}
    methods = {name: METHODS[name] for name in ("FedAvg", "FedDualAvg")}
    run = lambda **given: fl.sweep(federation(), methods, grid, **{**work, **given})  # noqa: E731
    run(rounds=2, checkpoint=file)
    resumed, whole = run(rounds=5, checkpoint=file), run(rounds=5)
    assert all(closeness(a, b) == 0 for a, b in zip(resumed.points, whole.points, strict=True))
    assert resumed.history.drop(columns="seconds").equals(whole.history.drop(columns="seconds"))


@pytest.mark.filterwarnings("ignore::fedlocal.DivergenceWarning")
def test_the_summary_is_over_the_seeds():
    grid = {"client_step_size": [0.03, 1e6], "seed": [0, 1, 2]}
    result = fl.sweep(federation(), fl.methods.FedAvg(1.0), grid, x0=start(False), **{**WORK, "rounds": 40})
    table = result.summary("loss")
    last = np.asarray(result.history["loss"])[np.asarray(result.history["round"]) == 40]
    assert len(last) == 3
    assert table["runs"].tolist() == [3, 3]
    assert table["diverged"].tolist() == [0, 3]
    np.testing.assert_allclose(
        table.loc[0, ["mean", "sd", "min", "max"]].astype(float),
        [np.mean(last), np.std(last, ddof=1), last.min(), last.max()],
    )
    assert np.isnan(table["mean"][1])


@pytest.mark.filterwarnings("ignore::fedlocal.DivergenceWarning")
def test_seeds_that_diverge_leave_the_others_as_they_are():
    problem = fl.problems.quadratics(matrices=[[[1.0]], [[3.0]]], optima=[[0.0], [1.0]])
    noisy = lambda key, x, m: jnp.where(jax.random.uniform(key) < 0.02, jnp.inf, 0.0) * jnp.ones_like(x)  # noqa: E731
    problem = fl.problems.Oracle(problem.value, num_clients=2, noise=noisy, init_fn=lambda key: jnp.ones(1))
    work: dict[str, Any] = {"rounds": 12, "local_steps": 1, "batch_size": 1}
    result = fl.sweep(problem, fl.methods.FedAvg(0.1), {"seed": list(range(6))}, **work)
    diverged: Any = result.cells["diverged"]
    assert 0 < diverged.notna().sum() < 6
    for seed in range(6):
        alone = fl.simulate(problem, fl.methods.FedAvg(0.1), seed=seed, **work)
        assert (alone.diverged is None) == bool(diverged.isna()[seed])
        if alone.diverged is None:
            assert closeness(alone.x, result.points[seed]) < 1e-13
        else:
            assert diverged[seed] == alone.diverged.round


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seeds": []}, "seeds must be different whole numbers, at least one, got"),
        ({"seeds": [1, 1]}, r"seeds must be different whole numbers, at least one, got \[1, 1\]"),
        ({"seeds": [0.5]}, "seeds must be a whole number >= 0, got 0.5"),
        ({"methods": fl.methods.FedAvg(0.1)}, "methods must be a dict {name: method} or a list of methods"),
        ({"methods": {}}, "method must be a method or a dict {name: method}, got {}"),
        ({"methods": [fl.methods.FedAvg(0.1)] * 2}, "the same method twice"),
        ({"methods": {"a": 3}}, "method must be a method or a function"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], message: str):
    given = {"methods": METHODS, "rounds": 1, "local_steps": 1, **arguments}
    with pytest.raises((ValueError, TypeError), match=message):
        fl.compare(federation(), given.pop("methods"), x0=start(False), **given)


def test_methods_of_one_class_are_named_by_what_they_hold():
    methods = [fl.methods.FedAvg(0.01), fl.methods.FedAvg(0.02)]
    result = fl.compare(federation(), methods, seeds=[0], x0=start(False), **WORK)
    assert result.cells["method"].tolist() == [str(method) for method in methods]
