"""The fused kernels for networks against the JAX program and plain loops, given the same minibatches, in float32.

Both add up the same products in different orders: after some tens of steps points differ by a few units in the last place of the
largest number, which CLOSE allows (a hundred of them). Compiling the loops takes five seconds for each size of a tile and each
width of vectors, so that most tests take minibatches of four.
"""

import importlib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import fedlocal as fl
from fedlocal.methods import FedAvg, FedDualAvg, FedMiD, MinibatchSGD
from fedlocal.regularizers import L1, Box, ElasticNet, GroupL1, L1Ball, L2Ball, SquaredL2
from fedlocal.simulation.engines import engine_name
from fedlocal.simulation.kernels.networks.engine import NetworkEngine
from fedlocal.simulation.kernels.networks.layout import Layout, Machine
from fedlocal.simulation.plan import Plan, Sampling
from fedlocal.simulation.rounds import first_state
from fedlocal.simulation.run import Run, RunArguments
from unit.methods.test_contract import HonestWrapper

CLOSE = 1e-5
thorough = pytest.mark.thorough  # `make thorough` runs these too
METHODS: dict[str, fl.LocalMethod] = {
    "fed_avg": FedAvg(0.2, 0.7),
    "fed_mid_l1_ball": FedMiD(0.2, 0.7, L1Ball(15.0)),
    "fed_mid_l2_ball": FedMiD(0.2, 0.7, L2Ball(3.0)),
    "fed_mid_elastic_net": FedMiD(0.2, 0.7, ElasticNet(0.01, 0.1)),
    "fed_mid_osp": FedMiD(0.2, 0.7, L1Ball(15.0), prox_on_clients=False),
    "fed_mid_ocp": FedMiD(0.2, 0.7, L1Ball(15.0), client_share=1.0),
    "fed_mid_share": FedMiD(0.2, 0.7, L1(0.01), client_share=0.3),
    "fed_dual_avg_l1_ball": FedDualAvg(0.2, 0.7, L1Ball(15.0)),
    "fed_dual_avg_l2_ball": FedDualAvg(0.2, 0.7, L2Ball(3.0)),
    "fed_dual_avg_elastic_net": FedDualAvg(0.2, 0.7, ElasticNet(0.01, 0.1)),
    "fed_dual_avg_osp": FedDualAvg(0.2, 0.7, L1Ball(15.0), prox_on_clients=False),
    "fed_dual_avg_far": FedDualAvg(0.2, 0.7, L1Ball(1e4)),
}
EPOCHS: dict[str, Any] = {
    "local_epochs": 2,
    "batch_size": 4,
    "clients_per_round": 4,
    "weights": "examples",
    "rounds": 3,
    "seed": 3,
}


@pytest.fixture(autouse=True)
def _single_precision() -> Iterator[None]:
    with jax.enable_x64(False):
        yield


def problem(
    hidden: tuple[int, ...] = (37, 21), features: int = 19, classes: int = 5, density: float = 1.0
) -> fl.problems.MLP:
    """Clients of 3, 10, 17, ... examples; no width is a multiple of a vector."""
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(6), np.arange(3, 45, 7))
    x, y = rng.standard_normal((len(groups), features)).astype(np.float32), rng.integers(0, classes, len(groups))
    x *= rng.random(x.shape) < density
    return fl.problems.MLP(fl.FederatedData.from_groups((x, y), groups), hidden, classes)


def distance(a: Any, b: Any) -> float:
    """The largest difference, relative to the largest number."""
    pairs = list(zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))
    largest = max(float(np.max(np.abs(y))) for _, y in pairs)
    return max(float(np.max(np.abs(np.asarray(x, float) - np.asarray(y, float)))) for x, y in pairs) / largest


def check(some: fl.problems.MLP | fl.problems.Softmax, method: fl.LocalMethod, **arguments: Any) -> fl.Result:
    """The network engine goes where the JAX engine goes, and somewhere; returns where."""
    fused, wanted = (
        fl.simulate(some, method, engine=engine, eval_every=3, progress=False, **arguments)
        for engine in ("network", "jax")
    )
    assert fused.provenance["configuration"]["engine"] == "network"
    assert distance(fused.x, wanted.x) < CLOSE
    assert distance(fused.server, wanted.server) < CLOSE
    np.testing.assert_allclose(fused.history["loss"], wanted.history["loss"], rtol=CLOSE)
    assert distance(some.init(jax.random.key(arguments.get("seed", 0))), fused.x) > 1e-2
    return fused


def engine_of(some: fl.problems.MLP, methods: list[fl.LocalMethod], **more: Any) -> NetworkEngine:
    sampling = {name: value for name, value in EPOCHS.items() if name != "rounds"}
    return NetworkEngine(some, methods, Plan.make(some, Sampling(**sampling)), some.init(jax.random.key(3)), **more)


def after(engine: NetworkEngine, methods: list[fl.LocalMethod], rounds: int = 3) -> Any:
    """The states after so many rounds."""
    x0 = engine.problem.init(jax.random.key(3))
    first = [first_state(engine.problem, method, x0, None, False) for method in methods]
    states, done = jax.tree.map(lambda *a: np.stack(a), *first), 0
    while done < rounds:
        states, more = engine.advance(states, done, rounds - done)
        done += more
    return states


@pytest.mark.parametrize("name", METHODS)
def test_every_method_and_psi(name: str):
    """Unequal clients, short last batches, server step sizes, some of the clients, weights."""
    method = METHODS[name]
    result = check(problem(), method, **EPOCHS)
    norms = [float(np.abs(np.asarray(layer["weights"])).sum()) for layer in result.x]
    if "l1_ball" in name or name == "fed_mid_osp":  # the constraint is active; a mean of points may lie within the ball
        assert 14 < max(norms) < 15 * (1 + CLOSE)
    if name == "fed_dual_avg_far":  # it is not, and dual averaging is FedAvg
        free = fl.simulate(problem(), METHODS["fed_avg"], engine="network", progress=False, **EPOCHS)
        assert distance(result.x, free.x) == 0
    if "elastic_net" in name or name == "fed_mid_share":
        assert 0 < np.mean(np.asarray(result.x[0]["weights"]) == 0) < 1


def test_plain_loops_go_the_same_way():
    arguments: dict[str, Any] = {"local_steps": 5, "batch_size": 4, "rounds": 3, "progress": False}
    fused = fl.simulate(problem(), METHODS["fed_avg"], engine="network", **arguments)
    assert distance(fused.x, fl.loop(problem(), METHODS["fed_avg"], **arguments).x) < CLOSE


@pytest.mark.parametrize("name", ["fed_avg", "fed_mid_l1_ball", "fed_dual_avg_l1_ball"])
def test_inputs_that_are_zero_in_all_examples_are_left_out(name: str):
    some = problem(density=0.2)
    assert engine_of(some, [METHODS[name]]).sizes.compacted > 0
    assert engine_of(problem(), [METHODS[name]]).sizes.compacted == 0
    check(some, METHODS[name], **EPOCHS)


def test_unequal_local_steps():
    arguments: dict[str, Any] = {"local_steps": [1, 2, 3, 4, 5, 9], "batch_size": 4, "rounds": 3, "weights": "examples"}
    check(problem(), METHODS["fed_mid_l1_ball"], **arguments)


@pytest.mark.parametrize("hidden", [(), pytest.param((50,), marks=thorough), (3, 35, 16, 1)])
def test_any_number_of_layers_and_any_widths(hidden: tuple[int, ...]):
    check(problem(hidden, features=33, classes=18), METHODS["fed_dual_avg_l1_ball"], **EPOCHS)


@pytest.mark.parametrize("name", ["fed_avg", "fed_mid_l1_ball", "fed_dual_avg_l1_ball"])
def test_softmax_regression_is_a_network_of_one_layer(name: str):
    result = check(fl.problems.Softmax(problem().data, 5), METHODS[name], **EPOCHS)
    assert set(result.x) == {"weights", "intercept"}


@thorough
@pytest.mark.parametrize("batch_size", [1, 7, 10, 15, 30])
@pytest.mark.parametrize("name", ["fed_avg", "fed_mid_l1_ball", "fed_dual_avg_l1_ball"])
def test_any_size_of_minibatches(name: str, batch_size: int):
    """One tile, with another for short minibatches, and several."""
    check(problem(), METHODS[name], **(EPOCHS | {"batch_size": batch_size}))


@thorough
@pytest.mark.parametrize("lanes", [8, 16])
def test_vectors_of_other_processors(lanes: int):
    """With instructions that this one has: LLVM splits vectors that are longer than its own."""
    for method in METHODS.values():
        found = after(engine_of(problem(), [method], machine=Machine(lanes, lanes // 8)), [method])
        assert distance(found.server, after(engine_of(problem(), [method]), [method]).server) < CLOSE


def test_threads_share_clients_and_cells():
    methods: list[fl.LocalMethod] = [FedMiD(step, 0.7, L1Ball(15.0)) for step in (0.1, 0.2, 0.3)]
    alone = after(engine_of(problem(), methods, threads=1), methods)
    for threads in (2, 3, 5):
        engine = engine_of(problem(), methods, threads=threads)
        found = after(engine, methods)
        assert distance(found.server, alone.server) < CLOSE
        np.testing.assert_array_equal(found.server[0]["weights"], after(engine, methods).server[0]["weights"])


def test_a_sweep_is_its_runs_and_a_cell_that_diverges_leaves():
    grid = {"client_step_size": [0.1, 1e30, 0.3], "server_step_size": [0.5, 1.0]}
    some, method = problem(), METHODS["fed_dual_avg_l1_ball"]
    with pytest.warns(fl.DivergenceWarning):
        found = fl.sweep(some, method, grid, engine="network", progress=False, **EPOCHS)
    assert found.provenance["configuration"]["engine"] == "network"
    assert found.cells["diverged"].notna().tolist() == [False, False, True, True, False, False]
    for i in (0, 1, 4, 5):
        own = fl.simulate(some, found.methods[i], engine="network", progress=False, **EPOCHS)
        assert distance(found.cell(i).x, own.x) < CLOSE


def test_divergence_is_noticed_in_the_same_round():
    arguments: dict[str, Any] = {"local_steps": 3, "batch_size": 4, "rounds": 9, "progress": False}
    with pytest.warns(fl.DivergenceWarning):
        fused = fl.simulate(problem(), FedAvg(1e6), engine="network", **arguments)
    with pytest.warns(fl.DivergenceWarning):
        generic = fl.simulate(problem(), FedAvg(1e6), engine="jax", **arguments)
    assert fused.diverged is not None
    assert fused.diverged == generic.diverged


@pytest.mark.parametrize("name", ["fed_mid_l1_ball", "fed_dual_avg_l1_ball"])
def test_the_same_bits_however_the_run_is_cut(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    arguments: dict[str, Any] = {**EPOCHS, "rounds": 70, "eval_every": 70, "engine": "network", "progress": False}
    some, method = problem(), METHODS[name]
    whole = fl.simulate(some, method, **arguments)
    often = fl.simulate(some, method, **{**arguments, "eval_every": 9})
    assert distance((whole.x, whole.server), (often.x, often.server)) == 0
    monkeypatch.setattr(importlib.import_module("fedlocal.simulation.driver"), "SAVE_SECONDS", 0.0)
    fl.simulate(some, method, checkpoint=tmp_path / name, **{**arguments, "rounds": 40})
    rest = fl.simulate(some, method, checkpoint=tmp_path / name, **arguments)
    assert distance((whole.x, whole.server), (rest.x, rest.server)) == 0


def test_a_sweep_continues_to_the_same_bits(tmp_path: Path):
    grid = {"client_step_size": [0.1, 1e30, 0.3]}
    arguments: dict[str, Any] = {**EPOCHS, "engine": "network", "progress": False, "eval_every": 2}
    some, method = problem(), METHODS["fed_mid_l1_ball"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fl.DivergenceWarning)
        whole = fl.sweep(some, method, grid, **{**arguments, "rounds": 6})
        fl.sweep(some, method, grid, checkpoint=tmp_path / "sweep", **{**arguments, "rounds": 4})
        rest = fl.sweep(some, method, grid, checkpoint=tmp_path / "sweep", **{**arguments, "rounds": 6})
    for a, b in zip(jax.tree.leaves(rest.servers), jax.tree.leaves(whole.servers), strict=True):
        np.testing.assert_array_equal(a, b)
    pd.testing.assert_frame_equal(rest.history.drop(columns="seconds"), whole.history.drop(columns="seconds"))


def test_seeds_run_beside_each_other():
    some: Any = problem()
    arguments: dict[str, Any] = {k: v for k, v in EPOCHS.items() if k != "seed"} | {"progress": False}
    found = fl.sweep(some, METHODS["fed_avg"], {"seed": [3, 4]}, engine="network", **arguments)
    for i, seed in enumerate((3, 4)):
        own = fl.simulate(some, METHODS["fed_avg"], seed=seed, engine="network", **arguments)
        assert distance(found.cell(i).x, own.x) < CLOSE


CANARY, MARGIN = 0xFF, 4096  # as numbers, nan; as an index, far outside


@pytest.mark.parametrize("name", ["fed_mid_l1_ball", "fed_dual_avg_l1_ball"])
@pytest.mark.parametrize("density", [0.2, 1.0])
@pytest.mark.parametrize("batch_size", [4, pytest.param(10, marks=thorough), pytest.param(15, marks=thorough)])
def test_nothing_is_written_or_read_outside(
    name: str, density: float, batch_size: int, monkeypatch: pytest.MonkeyPatch
):
    """The arrays that threads work in lie between canaries; what they need not find there is nan."""
    monkeypatch.setitem(EPOCHS, "batch_size", batch_size)
    methods, some = [METHODS[name]] * 3, problem(density=density)
    wanted = after(engine_of(some, methods), methods)
    engine, buffers = engine_of(some, methods), []

    def guarded(array: np.ndarray, keep: bool) -> np.ndarray:
        buffer = np.full(array.nbytes + 2 * MARGIN, CANARY, np.uint8)
        inside = buffer[MARGIN : MARGIN + array.nbytes].view(array.dtype).reshape(array.shape)
        if keep:
            inside[...] = array
        buffers.append(buffer)
        return inside

    kept = ("server", "walked", "counting", "padding")
    arrays = {name: a for name, a in engine.numbers._asdict().items() if name != "cells"}
    engine.numbers = engine.numbers._replace(**{name: guarded(a, name in kept) for name, a in arrays.items()})
    found = after(engine, methods)
    for buffer in buffers:
        assert (buffer[:MARGIN] == CANARY).all()
        assert (buffer[-MARGIN:] == CANARY).all()
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_array_equal(a, b)


def test_packing_and_unpacking_are_inverse():
    layout = Layout.make([19, 37, 5], 4, Machine(16, 2))
    rng = np.random.default_rng(0)
    params = [
        {name: rng.standard_normal((3, *shape)).astype(np.float32) for name, shape in sizes.items()}
        for sizes in ({"bias": (37,), "weights": (19, 37)}, {"bias": (5,), "weights": (37, 5)})
    ]
    flat = np.zeros(3 * layout.numbers + layout.slack, np.float32)
    layout.pack(params, flat)
    assert np.count_nonzero(flat) == sum(a.size for a in jax.tree.leaves(params))
    for a, b in zip(jax.tree.leaves(layout.unpack(flat, 3)), jax.tree.leaves(params), strict=True):
        np.testing.assert_array_equal(a, b)


# where it does not apply


class Sign(FedAvg):
    def step(self, client: Any, grad_fn: Any) -> Any:
        return jax.tree.map(lambda a, g: a - 0.1 * jnp.sign(g), client, grad_fn(client))


class Tanh(fl.problems.MLP):
    def scores(self, x: Any, features: Any) -> jax.Array:
        return jnp.tanh(features @ x[0]["weights"])


AGAINST: dict[str, tuple[fl.LocalMethod, dict[str, Any], str]] = {
    "step": (Sign(0.1, 1.0), {}, "Sign is not an affine recurrence"),
    "momentum": (MinibatchSGD(0.1), {}, "MinibatchSGD: its clients hold more than their weights"),
    "box": (FedMiD(0.1, 1.0, Box(-1, 1)), {}, "Box is none of Zero, L1, SquaredL2"),
    "wrapper": (HonestWrapper(FedMiD(0.1, 1.0, L1Ball(1.0))), {}, "HonestWrapper is not an affine recurrence"),
    "groups": (FedDualAvg(0.1, 1.0, GroupL1(0.1)), {}, "FedDualAvg is not an affine recurrence"),
    "schedule": (FedAvg(lambda r: 0.1 / (r + 1)), {}, "a step size is a function of the round"),
    "full": (FedAvg(0.1), {"batch_size": None}, "minibatches of at most 96 examples"),
    "large": (FedAvg(0.1), {"batch_size": 97}, "minibatches of at most 96 examples"),
    "together": (FedAvg(0.1), {"average": "uniform"}, "averages and client discrepancy"),
    "between": (FedAvg(0.1), {"average": "rounds"}, "its kernels keep no average"),
}


@pytest.mark.parametrize("name", AGAINST)
def test_where_it_does_not_apply_it_says_why(name: str):
    method, more, words = AGAINST[name]
    arguments: dict[str, Any] = {"rounds": 1, "local_steps": 2, "batch_size": 4, **more}
    with pytest.raises(ValueError, match=f"simulate: engine='network' does not apply: .*{words}.*use engine='auto'"):
        fl.simulate(problem(), method, engine="network", **arguments)


def test_it_serves_networks_in_float32():
    arguments: dict[str, Any] = {"rounds": 1, "local_steps": 2, "batch_size": 4, "engine": "network"}
    other = Tanh(problem().data, (), 5)  # pyright: ignore
    with pytest.raises(ValueError, match="serves MLP and Softmax, not Tanh"):
        fl.simulate(other, FedAvg(0.1), **arguments)
    data = problem().data
    for softmax in (fl.problems.Softmax(data, 5, l2=0.1), fl.problems.Softmax(data, 5, intercept=False)):
        with pytest.raises(ValueError, match="Softmax with an intercept and without l2"):
            fl.simulate(softmax, FedAvg(0.1), **arguments)
    with jax.enable_x64(True), pytest.raises(ValueError, match="computes in float32, not float64"):
        fl.simulate(problem(), FedAvg(0.1), **arguments)
    with pytest.raises(ValueError, match="not of one kind"):
        fl.sweep(problem(), FedMiD(0.1, 1.0, L1(0.1)), {"regularizer.strength": [0.0, 0.1]}, **arguments)


def test_auto_takes_it_for_long_runs():
    some = problem()
    for rounds, engine in ((10, "jax"), (10**7, "network")):
        for method in (METHODS["fed_avg"], FedMiD(0.1, 1.0, SquaredL2(0.1))):
            run = Run.make("simulate", some, method, RunArguments(Sampling(3, None, 4), rounds, rounds, None, (), None))
            assert engine_name("simulate", "auto", run, [run.method]) == engine
