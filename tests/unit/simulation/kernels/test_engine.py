"""The fused kernels against the compiled JAX program, given the same examples: 1e-12 of the size of the numbers in float64."""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
import pytest
import scipy.sparse

import fedlocal as fl
import fedlocal.simulation.kernels.engine
from conformance.federation import closeness
from fedlocal.core import Round, Separable
from fedlocal.methods import FedAc, FedAvg, FedDualAvg, FedMiD, GeneralFedAc, MinibatchAcSGD, MinibatchSGD
from fedlocal.regularizers import L1, Box, ElasticNet, GroupL1, NonNegative, SquaredL2, Zero
from fedlocal.simulation.engines import engine_name
from fedlocal.simulation.kernels.engine import LANES, LinearEngine, rows_of
from fedlocal.simulation.plan import Plan, Sampling
from fedlocal.simulation.rounds import first_state
from fedlocal.simulation.run import Run, RunArguments

# the engines are compared for all kinds of sampling; it does not matter here whether FedAc was made for their local steps
pytestmark = pytest.mark.filterwarnings("ignore:.* was made with local_steps=:UserWarning")
thorough = pytest.mark.thorough  # `make thorough` runs these too
quiet = pytest.mark.filterwarnings("ignore::fedlocal.DivergenceWarning")
PSIS: dict[str, fl.Regularizer] = {
    "zero": Zero(),
    "l1": L1(0.02),
    "elastic_net": ElasticNet(0.01, 0.3),
    "squared_l2": SquaredL2(0.4),
    "box": Box(-0.05, 0.1),
    "non_negative": NonNegative(),
}
METHODS: dict[str, fl.LocalMethod] = {
    "fed_avg": FedAvg(0.1, 0.7),
    "fed_ac_one": FedAc.one(step_size=0.05, strong_convexity=0.02, local_steps=6),
    "fed_ac_two": FedAc.two(step_size=0.05, strong_convexity=0.02, local_steps=6),
    "fed_ac_vanilla": FedAc.vanilla(step_size=0.05, strong_convexity=0.02),
    "minibatch_sgd": MinibatchSGD(0.2),
    "minibatch_ac_sgd": MinibatchAcSGD(0.1, 0.02),
    **{f"fed_dual_avg_{name}": FedDualAvg(0.3, 0.7, psi) for name, psi in PSIS.items()},
    **{f"fed_mid_{name}": FedMiD(0.3, 0.7, psi) for name, psi in PSIS.items()},
    "fed_dual_avg_osp": FedDualAvg(0.3, 0.7, PSIS["elastic_net"], prox_on_clients=False),
    "fed_mid_osp": FedMiD(0.3, 0.7, PSIS["elastic_net"], prox_on_clients=False),
    "fed_mid_shared": FedMiD(0.3, 0.7, PSIS["elastic_net"], client_share=0.3),
    "fed_mid_ocp": FedMiD(0.3, 1.3, PSIS["box"], client_share=1.0),
}
KINDS = ("fed_avg", "fed_ac_one", "fed_dual_avg_elastic_net", "fed_mid_elastic_net")  # what is compiled differently
STORAGE = dict.fromkeys(KINDS, "sparse") | {"fed_ac_one": "dense"}
# Compiling the loops of one kind for one storage takes 17 s. Those of two vectors are compiled here for dense features, and,
# as for sweeps on a9a, for many cells on sparse rows of ones; `make thorough` has them for a single run on sparse rows.
STEPS: dict[str, Any] = {"rounds": 5, "local_steps": 6, "batch_size": 1, "seed": 2}


def problem(
    kind: str = "logistic",
    l2: float = 0.0,
    intercept: bool = True,
    storage: str = "sparse",
    groups: np.ndarray | None = None,
    shape: tuple[int, int] = (108, 20),
    density: float = 0.12,
) -> Any:
    """Unequal clients of rows with few non-zeros (unless `storage` is "dense"); the first rows are empty, as is a column."""
    rng = np.random.default_rng(0)
    matrix = scipy.sparse.random_array(shape, density=density, rng=rng, format="lil", data_sampler=rng.standard_normal)
    matrix[:2], matrix[:, 3] = 0, 0
    matrix = matrix.tocsr()
    if storage == "ones":
        matrix.data[:] = 1
    features = rng.standard_normal(shape) / 3 if storage == "dense" else matrix
    groups = np.minimum(np.arange(shape[0]) // 7, 8) if groups is None else groups
    if kind == "logistic":
        data = fl.FederatedData.from_groups((features, np.where(rng.random(shape[0]) < 0.5, 1.0, -1.0)), groups)
        return fl.problems.Logistic(data, l2=l2, intercept=intercept)
    data = fl.FederatedData.from_groups((features, rng.standard_normal(shape[0])), groups)
    return fl.problems.LeastSquares(data, l2=l2, intercept=intercept)


EQUAL = np.arange(108) // 12


def l2_for(method: fl.LocalMethod) -> float:
    """Dual averaging serves a penalty of the problem only where no proximal map comes before it."""
    dual = isinstance(method, FedDualAvg) and method.prox_on_clients and not isinstance(method.regularizer, Zero)
    return 0.0 if dual else 0.02


def engine_of(problem: Any, *methods: fl.LocalMethod, **sampling: Any) -> LinearEngine:
    return LinearEngine(problem, methods, plan_of(problem, **sampling), problem.init(jax.random.key(0)))


def plan_of(problem: Any, rounds: int = 0, **sampling: Any) -> Plan:
    return Plan.make(problem, Sampling(**sampling))


def distance(a: Any, b: Any) -> float:
    """The largest difference, relative to the largest number."""
    return closeness(a, b) / max(float(np.max(np.abs(leaf))) for leaf in [*jax.tree.leaves(b), 1e-30])


def both(problem: Any, method: fl.LocalMethod, **arguments: Any) -> list[fl.Result]:
    return [fl.simulate(problem, method, engine=engine, **arguments) for engine in ("linear", "jax")]


def assert_same(fused: fl.Result, generic: fl.Result, tolerance: float = 1e-12) -> None:
    assert distance(fused.x, generic.x) < tolerance
    assert distance(fused.server, generic.server) < tolerance
    columns = [c for c in generic.history if c != "seconds"]
    np.testing.assert_allclose(fused.history[columns], generic.history[columns], rtol=tolerance)


def check(problem: Any, method: fl.LocalMethod, tolerance: float = 1e-12, **arguments: Any) -> fl.Result:
    """Both engines go the same way, and somewhere; returns where."""
    fused, generic = both(problem, method, **arguments)
    assert_same(fused, generic, tolerance)
    assert fused.provenance["configuration"]["engine"] == "linear"
    assert generic.provenance["configuration"]["engine"] == "jax"
    assert closeness(fused.x, problem.init(jax.random.key(0))) > 1e-3
    return fused


# every method and every psi


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        pytest.param(name, ("logistic", "squares")[i % 2], marks=() if STORAGE.get(name) == "sparse" else thorough)
        for i, name in enumerate(METHODS)
    ],
)
def test_kernels_equal_the_generic_engine(name: str, kind: str):
    method = METHODS[name]
    fused = check(problem(kind, l2_for(method)), method, weights="examples", **STEPS)
    weights = np.asarray(fused.x["weights"])
    if name.endswith(("_l1", "_osp", "elastic_net")):  # psi does something
        assert 0 < np.mean(weights == 0) < 1
    if name == "fed_dual_avg_box":
        assert weights.min() == -0.05 or weights.max() == 0.1
    if name.endswith("non_negative"):
        assert weights.min() == 0 < weights.max()


# where examples come from

SAMPLING: dict[str, dict[str, Any]] = {
    "batches_partial": {"local_steps": 6, "batch_size": 3, "clients_per_round": 4, "weights": "examples"},
    "epochs": {"local_epochs": 2, "batch_size": 5, "clients_per_round": 3},
    "unequal_steps": {"local_steps": [1, 2, 3, 4, 5, 6, 7, 8, 30], "batch_size": 2, "weights": "examples"},
    "full_gradients": {"local_steps": 4, "weights": "examples"},
    "unequal_full_gradients": {"local_steps": [1, 2, 3, 4, 5, 6, 7, 8, 9], "clients_per_round": 5},
    "one_step": {"local_steps": 1, "batch_size": 3, "weights": "examples"},  # all gradients at one point
    "one_full_step": {"local_steps": 1, "clients_per_round": 5},
    "one_short_step": {"local_epochs": 1, "batch_size": 60, "weights": "examples"},
}


@pytest.mark.parametrize("sampling", SAMPLING)
def test_all_kinds_of_sampling(sampling: str):
    """Each with one of the four kinds; sweeps have others."""
    name = KINDS[list(SAMPLING).index(sampling) % 4]
    some = problem(l2=l2_for(METHODS[name]), storage=STORAGE[name])
    check(some, METHODS[name], **(SAMPLING[sampling] | {"rounds": 4, "seed": 3}))


@thorough
@pytest.mark.parametrize("name", ["fed_mid_elastic_net", "minibatch_ac_sgd"])
def test_one_client(name: str):
    method = METHODS[name]
    check(problem(l2=l2_for(method), groups=np.zeros(108)), method, **STEPS)


@thorough
@pytest.mark.parametrize(
    ("name", "counted", "arguments"),
    [
        ("minibatch_sgd", True, {"local_steps": 6, "batch_size": 3, "weights": "examples"}),
        ("minibatch_ac_sgd", False, {"local_steps": 2, "batch_size": 3, "clients_per_round": 4}),
        ("minibatch_ac_sgd", True, {"local_steps": 3, "clients_per_round": 4}),
        ("minibatch_sgd", False, {"local_epochs": 1, "batch_size": 5, "clients_per_round": 2}),
    ],
)
def test_minibatch_methods_count_or_list_their_examples(name: str, counted: bool, arguments: dict):
    equal = problem(l2=0.02, groups=EQUAL)
    engine = engine_of(equal, METHODS[name], **arguments)
    assert engine.sizes.frozen
    assert (engine.numbers.counts.size > 0) == counted
    check(equal, METHODS[name], rounds=4, **arguments)


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if STORAGE[n] == "sparse" else thorough) for n in KINDS])
def test_only_what_was_touched_is_added(name: str):
    """Few steps in many columns, some of them twice; sweeps of the other kind do so, too."""
    method = METHODS[name]
    wide = problem(l2=l2_for(method), shape=(108, 300), density=0.02)
    arguments: dict[str, Any] = {"local_steps": [1, 2, 3] * 3, "batch_size": 2, "weights": "examples"}
    assert engine_of(wide, method, **arguments).sizes.touched
    x0 = {"weights": np.linspace(-1, 1, 300), "intercept": np.array(0.1)}
    check(wide, method, rounds=4, x0=x0, **arguments)


@thorough
def test_more_columns_than_16_bits():
    wide = problem(l2=0.02, shape=(40, 2**17), density=1e-4, groups=np.arange(40) // 10)
    columns = rows_of(wide, np.float64).columns
    assert columns is not None
    assert columns.dtype == np.uint32
    assert columns.max() >= 2**16
    check(wide, METHODS["fed_avg"], **STEPS)


@thorough
def test_values_that_are_all_one_are_not_stored():
    ones = problem(storage="ones")
    assert rows_of(ones, np.float64).values is None
    check(ones, METHODS["fed_dual_avg_l1"], **STEPS)


@pytest.mark.parametrize(("kind", "intercept"), [("logistic", True), pytest.param("squares", False, marks=thorough)])
def test_dense_features(kind: str, intercept: bool):
    dense = problem(kind, 0.02, intercept, "dense")
    assert rows_of(dense, np.float64).columns is None
    check(dense, METHODS["fed_ac_one"], **(STEPS if kind == "logistic" else {"rounds": 3, "local_steps": 3}))
    check(problem(kind, 0.02, intercept, "dense", EQUAL), METHODS["minibatch_ac_sgd"], **STEPS)


@thorough
@pytest.mark.parametrize("kind", ["logistic", "squares"])
@pytest.mark.parametrize("name", METHODS)
def test_every_method_on_dense_features(name: str, kind: str):
    method = METHODS[name]
    check(problem(kind, l2_for(method), storage="dense"), method, **(STEPS | {"rounds": 3, "weights": "examples"}))


@thorough
def test_dense_arrays_with_few_non_zeros_are_taken_as_sparse():
    sparse = problem("squares")
    features = sparse.data.arrays[0].take(np.arange(108)).dense()
    data = fl.FederatedData(
        (features, sparse.data.arrays[1]), np.asarray(sparse.data.client_starts), np.asarray(sparse.data.client_sizes)
    )
    assert rows_of(fl.problems.LeastSquares(data), np.float64).columns is not None
    result = fl.simulate(fl.problems.LeastSquares(data), METHODS["fed_avg"], engine="linear", **STEPS)
    assert closeness(result.x, fl.simulate(sparse, METHODS["fed_avg"], engine="linear", **STEPS).x) == 0
    check(fl.problems.LeastSquares(data), METHODS["fed_avg"], **STEPS)


def test_no_examples_but_empty_rows():
    """Only the intercept moves."""
    data = fl.FederatedData.from_groups((scipy.sparse.csr_array((12, 4)), np.ones(12)), np.arange(12) // 4)
    x = check(fl.problems.LeastSquares(data), METHODS["fed_mid_l1"], **STEPS).x
    assert (np.asarray(x["weights"]) == 0).all()


@thorough
def test_examples_of_a_large_client_are_drawn_by_jax():
    rng = np.random.default_rng(0)
    rows = 2**16 + 90
    features = scipy.sparse.random_array((rows, 20), density=0.05, rng=rng, format="csr")
    data = fl.FederatedData.from_groups((features, rng.standard_normal(rows)), np.arange(rows) >= 2**16 + 10)
    large = fl.problems.LeastSquares(data)
    assert not engine_of(large, METHODS["fed_avg"], local_steps=6, batch_size=2).draws_itself
    check(large, METHODS["fed_avg"], rounds=70, local_steps=6, batch_size=2, eval_every=35)


@thorough
def test_epochs_of_large_clients_take_the_rows_that_jax_takes():
    """More than 512 examples are shuffled by sorting, whose indices are 64-bit in this precision."""
    large = problem(shape=(1200, 20), groups=np.arange(1200) // 600)
    check(large, FedAvg(0.5), rounds=2, local_epochs=1, batch_size=7)


# the linear part that is kept aside


@pytest.mark.parametrize("penalty", [0.002, 1.6])
@pytest.mark.parametrize("name", ["fed_avg", "fed_ac"])
def test_a_strong_penalty_does_not_underflow(name: str, penalty: float):
    """The linear part shrinks, or turns its sign, at every one of 200 steps; what is kept aside is renewed in time."""
    eta = 2.0
    method = FedAvg(eta) if name == "fed_avg" else GeneralFedAc(alpha=1.5, beta=3.0, eta=eta, gamma=eta)
    penalised = problem(l2=penalty / eta, intercept=False, storage="sparse" if name == "fed_avg" else "dense")
    arguments: dict[str, Any] = {"local_steps": 200, "batch_size": 1}
    period = engine_of(penalised, method, **arguments).sizes.period
    assert period < 200 or (penalty < 0.01 and name == "fed_avg")
    check(penalised, method, 1e-11, rounds=2, **arguments)  # a renewal forgets up to 30 times as much as a step


@thorough
def test_renewals_with_an_intercept_and_unequal_steps():
    method = FedAvg(0.5)
    arguments: dict[str, Any] = {"local_steps": [1, 7, 8, 9, 20, 40, 3, 2, 40], "batch_size": 2, "weights": "examples"}
    penalised = problem(l2=1.0)
    period = engine_of(penalised, method, **arguments).sizes.period
    assert 1 < period < 9
    check(penalised, method, rounds=3, **arguments)


# what psi does

OUTSIDE = {"weights": np.linspace(-3, 3, 20), "intercept": np.array(0.2)}


@thorough
@pytest.mark.parametrize("make", [FedDualAvg, FedMiD])
@pytest.mark.parametrize("box", [Box(0.5, 1.0), Box(-np.inf, 0.05)])
def test_boxes_without_the_starting_point_or_zero(make: Any, box: Box):
    result = check(problem("squares"), make(0.1, 0.7, box), x0=OUTSIDE, **STEPS)
    assert float(box.violation(result.x)) < 1e-15


@pytest.mark.parametrize("box", [Box(-0.1, 0.1), Box(-2.0, -0.3)])
def test_boxes_in_mirror_descent_on_a_problem_with_a_penalty(box: Box):
    check(problem(l2=0.5), FedMiD(0.3, 0.7, box), x0=OUTSIDE, **STEPS)


class Everything(fl.Regularizer):
    """All that `Separable` can say, at once."""

    l1: float
    l2: float
    lower: float
    upper: float

    def array_value(self, x: jax.Array) -> jax.Array:
        return self.l1 * jnp.sum(jnp.abs(x)) + self.l2 / 2 * jnp.sum(x**2)

    def array_prox(self, x: jax.Array, t: Any) -> jax.Array:
        return jnp.clip(L1(self.l1).array_prox(x, t) / (1 + t * self.l2), self.lower, self.upper)

    def separable(self) -> Separable:
        return Separable(self.l1, self.l2, self.lower, self.upper)


@pytest.mark.parametrize("make", [FedDualAvg, FedMiD])
def test_a_regulariser_of_the_user_with_strengths_and_bounds(make: Any):
    psi = Everything(0.02, 0.7, -0.1, 0.15)
    check(problem("squares"), make(0.1, 0.7, psi), x0=OUTSIDE, **STEPS)


@pytest.mark.parametrize("name", ["elastic_net", "box", "non_negative"])
def test_mirror_descent_with_many_idle_steps(name: str):
    """Forty steps on two examples of four non-zeros in twenty columns: most columns are idle for most of the time."""
    psi = PSIS[name]
    idle = problem(l2=0.05 if not isinstance(psi, Box) else 0.0, groups=np.arange(108) // 2)
    check(idle, FedMiD(0.2, 1.3, psi), rounds=3, local_steps=40, batch_size=1, x0=OUTSIDE)


@thorough
@pytest.mark.parametrize("make", [FedDualAvg, FedMiD])
def test_a_strength_that_makes_all_zero(make: Any):
    result = check(problem(), make(0.3, 1.0, L1(50.0)), **STEPS)
    assert (np.asarray(result.x["weights"]) == 0).all()


@thorough
@pytest.mark.parametrize("make", [FedDualAvg, FedMiD])
@pytest.mark.parametrize("server_step_size", [1.7])
def test_server_step_sizes(make: Any, server_step_size: float):
    check(problem(), make(0.3, server_step_size, L1(0.02)), x0=OUTSIDE, **STEPS)


@quiet
@pytest.mark.parametrize("cells", [1, pytest.param(3, marks=thorough)])
def test_a_box_does_not_hide_that_a_run_diverged(cells: int):
    """Clients overflow within a round; the server's projection of nan is nan."""
    grid = {"client_step_size": [1e80, 0.1, 0.2][:cells]}
    method = FedMiD(0.1, 1.0, Box(-1.0, 1.0), prox_on_clients=False)
    arguments: dict[str, Any] = {"rounds": 3, "local_steps": 30, "batch_size": 1}
    squares = problem("squares", intercept=False)
    fused, generic = (fl.sweep(squares, method, grid, engine=e, **arguments) for e in ("linear", "jax"))
    assert generic.cells["diverged"].tolist()[0] == 1
    pd.testing.assert_frame_equal(fused.cells, generic.cells)


@quiet
def test_weights_whose_squares_overflow_are_not_a_divergence():
    check(problem(intercept=False), FedAvg(1e200), rounds=2, local_steps=2, batch_size=1)


@quiet
@pytest.mark.parametrize("method", [FedAvg(2.5), FedMiD(2.5, 1.0, L1(0.1), prox_on_clients=False)])
def test_a_step_size_that_diverges_is_no_warning_of_numpy(method: fl.LocalMethod):
    diverging = problem(l2=1.0, intercept=False)
    assert fl.simulate(diverging, method, rounds=1, local_steps=3000, batch_size=1, engine="linear").diverged


# many runs side by side


ETAS = np.geomspace(0.01, 0.5, 17).tolist()
SWEEPS: dict[str, Callable[[int], fl.LocalMethod]] = {
    "fed_avg": lambda i: FedAvg(ETAS[i], 0.5 + i / 17),
    "fed_ac": lambda i: FedAc.one(step_size=ETAS[i] / 5, strong_convexity=0.02 + i / 100, local_steps=6),
    "fed_dual_avg": lambda i: FedDualAvg(ETAS[i], 0.5 + i / 17, L1(0.01 * (i % 3))),
    "fed_mid": lambda i: FedMiD(ETAS[i], 0.5 + i / 17, ElasticNet(0.01 * (i % 3), 0.1 * (i % 2))),
    "fed_mid_shared": lambda i: FedMiD(
        ETAS[i], 0.5 + i / 17, ElasticNet(0.02, 0.1), client_share=[None, 0.0, 0.3, 1.0][i % 4]
    ),
    "fed_dual_avg_box": lambda i: FedDualAvg(ETAS[i], 1.0, Box(-0.01 * i, 0.02)),
    "minibatch_ac_sgd": lambda i: MinibatchAcSGD(ETAS[i] / 5, 0.02 + i / 100),
}


def check_sweep(
    problem: Any, cell: Callable[[int], fl.LocalMethod], cells: Any, alone: bool = True, **arguments: Any
) -> fl.SweepResult:
    """Every cell is that of JAX, some are compared with their single runs, and those that diverge do so in the same round."""
    grid = {"i": list(range(cells)) if isinstance(cells, int) else cells}
    fused, generic = (fl.sweep(problem, cell, grid, engine=engine, **arguments) for engine in ("linear", "jax"))
    assert fused.provenance["configuration"]["engine"] == "linear"
    last = len(fused.methods) - 1
    for i, method in enumerate(fused.methods):
        mine, others = fused.cell(i), [generic.cell(i)]
        if alone and i in (0, last // 2, last):
            others.append(fl.simulate(problem, method, engine="linear", **arguments))
        for other in others:
            assert mine.diverged == other.diverged
            assert mine.history["round"].tolist() == other.history["round"].tolist()
            if mine.diverged is None:
                assert_same(mine, other)
    return fused


@pytest.mark.parametrize("name", ["fed_ac", "minibatch_ac_sgd"])
def test_cells_on_rows_of_ones_equal_the_generic_engine(name: str):
    """The loops of sweeps on a9a."""
    ones = problem("squares", 0.02, storage="ones", groups=EQUAL if name == "minibatch_ac_sgd" else None)
    assert rows_of(ones, np.float64).values is None
    check_sweep(ones, SWEEPS[name], 3, alone=False, weights="examples", **STEPS)


@thorough
@pytest.mark.parametrize("name", SWEEPS)
def test_every_cell_equals_its_own_run(name: str):
    check_sweep(problem("squares"), SWEEPS[name], 13, weights="examples", eval_every=2, **STEPS)


@thorough
@quiet  # one cell of the 17 grows
@pytest.mark.parametrize("name", ["fed_dual_avg", "fed_mid"])
@pytest.mark.parametrize("cells", [17, [0, 1]])
def test_blocks_and_padding(name: str, cells: Any):
    """17 cells are two blocks; cell 0 has no psi, so that alone it would be compiled as another kind."""
    check_sweep(problem("squares"), SWEEPS[name], cells, weights="examples", eval_every=2, **STEPS)


@thorough
@pytest.mark.parametrize(
    ("name", "sampling"),
    [
        ("fed_avg", {"local_steps": 1, "batch_size": 3}),
        ("fed_ac", {"local_steps": [1, 2, 3, 4, 5, 6, 7, 8, 9]}),
        ("fed_mid", {"local_epochs": 2, "batch_size": 5, "clients_per_round": 3}),
    ],
)
def test_cells_with_all_kinds_of_sampling(name: str, sampling: dict):
    check_sweep(problem(l2=0.1), SWEEPS[name], 2, rounds=3, **sampling)


@pytest.mark.parametrize(
    ("name", "storage"),
    [("fed_ac", "ones"), *(pytest.param(n, "sparse", marks=thorough) for n in ("fed_ac", "fed_mid"))],
)
def test_cells_that_touch_little(name: str, storage: str):
    wide = problem(shape=(108, 300), density=0.02, storage=storage)
    arguments: dict[str, Any] = {"local_steps": [1, 2, 3] * 3, "batch_size": 1}
    assert engine_of(wide, SWEEPS[name](1), SWEEPS[name](2), **arguments).sizes.touched
    x0 = {"weights": np.linspace(-1, 1, 300), "intercept": np.array(0.1)}
    check_sweep(wide, SWEEPS[name], 3, alone=storage == "sparse", rounds=3, x0=x0, **arguments)


@thorough
def test_cells_that_renew_at_different_times():
    """The strongest penalty decides when all of them renew."""
    etas = [0.01, 0.5, 1.5]
    check_sweep(problem(l2=1.0, intercept=False), lambda i: FedAvg(etas[i]), 3, rounds=2, local_steps=50, batch_size=1)


DIVERGING = [0.01, 1e30, 0.05, 40.0, 1e5, 0.02, 1e100, 3e3, 0.1, 1e60, 1e7, 200.0, 1e9, 1e11, 0.04, 1e13, 1e40]
DIVERGENT: dict[str, Callable[[int], fl.LocalMethod]] = {
    "fed_avg": lambda i: FedAvg(DIVERGING[i]),
    "fed_dual_avg": lambda i: FedDualAvg(DIVERGING[i], 1.0, L1(0.01)),
    "fed_mid": lambda i: FedMiD(DIVERGING[i], 1.0, L1(0.01)),
}


@pytest.mark.thorough
@quiet
@pytest.mark.parametrize(
    ("name", "intercept"),
    [
        ("fed_avg", False),
        pytest.param("fed_dual_avg", True, marks=thorough),
        pytest.param("fed_mid", False, marks=thorough),
    ],
)
def test_cells_that_diverge_do_so_in_the_same_round_and_disturb_nobody(name: str, intercept: bool):
    """Most of two blocks die, and the others move together."""
    arguments: dict[str, Any] = {"rounds": 12, "local_steps": 6, "batch_size": 1, "eval_every": 3}
    found = check_sweep(problem("squares", intercept=intercept), DIVERGENT[name], 17, **arguments)
    diverged: Any = found.cells["diverged"]
    assert 3 < diverged.notna().sum() < 13
    assert diverged.nunique() > 1


@thorough
@quiet
def test_a_sweep_continues_to_the_same_bits(tmp_path: Path):
    arguments: dict[str, Any] = {
        "local_steps": 6,
        "batch_size": 1,
        "clients_per_round": 5,
        "eval_every": 2,
        "engine": "linear",
    }
    grid = {"i": list(range(17))}
    for name in ("fed_avg", "fed_mid"):
        cell, squares = DIVERGENT[name], problem("squares")
        whole = fl.sweep(squares, cell, grid, rounds=12, **arguments)
        fl.sweep(squares, cell, grid, rounds=4, checkpoint=tmp_path / name, **arguments)
        rest = fl.sweep(squares, cell, grid, rounds=12, checkpoint=tmp_path / name, **arguments)
        for a, b in zip(jax.tree.leaves(rest.servers), jax.tree.leaves(whole.servers), strict=True):
            np.testing.assert_array_equal(a, b)
        pd.testing.assert_frame_equal(rest.history.drop(columns="seconds"), whole.history.drop(columns="seconds"))
        pd.testing.assert_frame_equal(rest.cells, whole.cells)


def test_the_same_bits_however_the_run_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    arguments: dict[str, Any] = {
        "local_steps": 6,
        "batch_size": 1,
        "clients_per_round": 4,
        "seed": 1,
        "engine": "linear",
    }
    for name, storage in (("fed_ac_one", "dense"), ("fed_dual_avg_l1", "sparse")):
        method, some = METHODS[name], problem(storage=storage)
        whole = fl.simulate(some, method, rounds=150, eval_every=150, **arguments)
        often = fl.simulate(some, method, rounds=150, eval_every=7, **arguments)
        assert closeness((whole.x, whole.server), (often.x, often.server)) == 0
        monkeypatch.setattr(importlib.import_module("fedlocal.simulation.driver"), "SAVE_SECONDS", 0.0)
        fl.simulate(some, method, rounds=60, eval_every=150, checkpoint=tmp_path / name, **arguments)
        rest = fl.simulate(some, method, rounds=150, eval_every=150, checkpoint=tmp_path / name, **arguments)
        assert closeness((whole.x, whole.server), (rest.x, rest.server)) == 0


def test_divergence_is_noticed_in_the_same_round():
    with pytest.warns(fl.DivergenceWarning):
        fused, generic = both(problem("squares"), FedAvg(1e30), **(STEPS | {"rounds": 50}))
    assert fused.diverged is not None
    assert fused.diverged == generic.diverged


# float32


@thorough
def test_float32_stays_close_over_a_thousand_steps():
    with jax.enable_x64(False):
        single = problem(l2=0.02)
        fused, generic = both(single, METHODS["fed_avg"], rounds=2, local_steps=1000, batch_size=1, eval_every=2)
    assert fused.x["weights"].dtype == np.float32
    assert distance(fused.x, generic.x) < 1e-4


@thorough
@pytest.mark.parametrize("storage", ["sparse", "dense"])
@pytest.mark.parametrize("name", METHODS)
def test_every_method_in_float32_stays_close_over_a_thousand_steps(name: str, storage: str):
    method = METHODS[name]
    with jax.enable_x64(False):
        single = problem(l2=l2_for(method), storage=storage)
        fused, generic = both(single, method, rounds=2, local_steps=500, batch_size=1, seed=1, eval_every=2)
    assert distance(fused.x, generic.x) < 1e-4


@thorough
@pytest.mark.parametrize(
    ("make", "psi"),
    [(FedDualAvg, ElasticNet(0.002, 0.01)), (FedDualAvg, Box(-0.3, 0.5)), (FedMiD, L1(0.002)), (FedMiD, NonNegative())],
)
def test_float32_cells_stay_close_over_a_thousand_steps(make: Any, psi: fl.Regularizer):
    with jax.enable_x64(False):
        grid = {"client_step_size": [0.05, 0.1]}
        arguments: dict[str, Any] = {"rounds": 2, "local_steps": 1000, "batch_size": 1}
        found = [
            fl.sweep(problem(), make(0.1, 1.0, psi), grid, engine=engine, eval_every=2, **arguments)
            for engine in ("linear", "jax")
        ]
    for i in range(2):
        fused, generic = (result.cell(i) for result in found)
        assert fused.x["weights"].dtype == np.float32
        assert np.abs(fused.x["weights"]).max() > 0.1
        assert distance(fused.x, generic.x) < 1e-4
        assert distance(fused.server, generic.server) < 1e-4


# memory

CANARY, MARGIN = 0xFF, 4096  # as numbers, nan; as an index, far outside


def guarded(array: np.ndarray, buffers: list[np.ndarray], keep: bool) -> np.ndarray:
    """A copy of an array (of its contents only where they matter) in the middle of bytes that nobody may touch."""
    buffer = np.full(array.nbytes + 2 * MARGIN, CANARY, np.uint8)
    inside = buffer[MARGIN : MARGIN + array.nbytes].view(array.dtype).reshape(array.shape)
    if keep:
        inside[...] = array
    buffers.append(buffer)
    return inside


WALKS: dict[str, dict[str, Any]] = {
    "walking": {"local_steps": 5, "batch_size": 2},
    "unequal": {"local_steps": [1, 9, 2, 3, 4, 5, 6, 7, 8], "batch_size": 1, "clients_per_round": 5},
    "epochs": {"local_epochs": 1, "batch_size": 5},
    "full": {"local_steps": 3},
    "frozen_counted": {"local_steps": 1, "batch_size": 20},
    "frozen_listed": {"local_steps": 1, "batch_size": 2},
    "frozen_full": {"local_steps": 1, "clients_per_round": 3},
    "touched": {"local_steps": 3, "batch_size": 1, "shape": (108, 300), "density": 0.02},
}


GUARDED = [
    (name, cells, walk)
    for name in ("fed_avg", "fed_ac", "fed_dual_avg", "fed_mid", "minibatch_ac_sgd")
    for cells in (1, 3)
    for walk in WALKS
    if walk not in ("epochs", "unequal")
    or (name, cells) == ("fed_mid", 1)
    or (walk == "unequal" and "mini" not in name)
]


TWO_VECTORS = ("fed_ac", "minibatch_ac_sgd")


@pytest.mark.parametrize(
    ("name", "cells", "walk"),
    [pytest.param(*case, marks=() if (case[0] in TWO_VECTORS) == (case[1] == 3) else thorough) for case in GUARDED],
)
def test_nothing_is_written_or_read_outside(name: str, cells: int, walk: str):
    """The arrays that threads work in lie between canaries; what they need not find there is nan."""
    arguments: dict[str, Any] = dict(WALKS[walk])
    shape: dict[str, Any] = {k: arguments.pop(k) for k in ("shape", "density") if k in arguments}
    minibatch = name == "minibatch_ac_sgd"
    methods = [SWEEPS[name](i + 1) for i in range(cells)]
    storage = "ones" if name in TWO_VECTORS and cells == 3 else "sparse"  # the loops of sweeps on a9a
    for intercept in (True, False):
        groups = EQUAL if minibatch else None
        some = problem("squares", intercept=intercept, storage=storage, groups=groups, **shape)
        x0 = some.init(jax.random.key(0))
        first = [first_state(some, method, x0, None, False) for method in methods]
        states = jax.tree.map(lambda *a: np.stack(a), *first)
        engine = engine_of(some, *methods, **arguments)
        assert len(engine.lanes) == (1 if cells == 1 else LANES)
        assert engine.sizes.frozen == (minibatch or (walk.startswith("frozen") and name != "fed_mid"))
        assert engine.sizes.touched or walk != "touched" or minibatch
        wanted, _ = engine.advance(states, 0, 3)
        engine, buffers = engine_of(some, *methods, **arguments), []
        kept = ("local", "server", "examples", "amounts", "counts")
        arrays: dict[str, Any] = {k: guarded(a, buffers, k in kept) for k, a in engine.numbers._asdict().items()}
        engine.numbers = type(engine.numbers)(**arrays)
        found, done = engine.advance(states, 0, 3)
        assert done == 3
        for buffer in buffers:
            assert (buffer[:MARGIN] == CANARY).all()
            assert (buffer[-MARGIN:] == CANARY).all()
        for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
            np.testing.assert_array_equal(a, b)


# where it does not apply


class Sign(FedAvg):
    def step(self, client: Any, grad_fn: Any) -> Any:
        return jax.tree.map(lambda a, g: a - 0.1 * jnp.sign(g), client, grad_fn(client))


class Elsewhere(FedDualAvg):
    """Its clients take their gradients at another point."""

    def primal(self, client: Any) -> Any:
        return jax.tree.map(lambda y: y + 1, client.y)


class Firm(L1):
    def array_prox(self, x: jax.Array, t: Any) -> jax.Array:
        return jnp.where(jnp.abs(x) > t * self.strength, x, 0)


class Absolute(fl.problems.LeastSquares):
    def losses_of_scores(self, scores: jax.Array, targets: jax.Array) -> jax.Array:
        return jnp.abs(scores - targets)


def classes() -> fl.problems.Softmax:
    rng = np.random.default_rng(0)
    data = fl.FederatedData.from_groups((rng.standard_normal((12, 3)), rng.integers(0, 3, 12)), np.arange(12) // 4)
    return fl.problems.Softmax(data)


HALF = {"weights": np.zeros(20, np.float16), "intercept": np.zeros((), np.float16)}
POSITIVE = {"weights": np.full(20, 0.1), "intercept": np.array(0.1)}
AGAINST: dict[str, tuple[Callable[[], Any], fl.LocalMethod, dict[str, Any], str]] = {
    "average": (problem, METHODS["fed_avg"], {"average": "third_order"}, "look at every local step"),
    "discrepancy": (
        problem,
        METHODS["fed_avg"],
        {"metrics": [fl.metrics.ClientDiscrepancy()]},
        "look at every local step",
    ),
    "softmax": (classes, METHODS["fed_avg"], {}, "serves Logistic and LeastSquares, not Softmax"),
    "another_loss": (lambda: Absolute(problem("squares").data), METHODS["fed_avg"], {}, "not Absolute"),  # pyright: ignore[reportCallIssue]
    "group_l1": (problem, FedDualAvg(0.1, 1.0, GroupL1(0.1)), {}, "FedDualAvg is not an affine recurrence"),
    "box_of_arrays": (problem, FedMiD(0.1, 1.0, Box(np.zeros(20), 1.0)), {}, "FedMiD is not an affine recurrence"),
    "entropy": (
        problem,
        FedMiD(0.1, 1.0, Zero(), fl.mirrors.Entropy()),
        {"x0": POSITIVE},
        "FedMiD is not an affine recurrence",
    ),
    "optimiser": (problem, FedAvg(0.1, server_optimizer=optax.adam(0.1)), {}, "FedAvg is not an affine recurrence"),
    "float16": (problem, METHODS["fed_avg"], {"x0": HALF}, "float32 and float64, not float16"),
    "unequal_minibatch": (
        problem,
        METHODS["minibatch_sgd"],
        {"local_steps": [1, 2, 3] * 3},
        "MinibatchSGD needs the same number of local steps on every client",
    ),
    "unequal_minibatch_epochs": (
        problem,
        METHODS["minibatch_ac_sgd"],
        {"local_steps": None, "local_epochs": 1},
        "MinibatchAcSGD needs the same number of local steps",
    ),
    "another_step": (problem, Sign(0.1), {}, "Sign is not an affine recurrence"),  # pyright: ignore[reportCallIssue]
    "another_prox": (problem, FedMiD(0.1, 1.0, Firm(0.1)), {}, "Firm is not one of the separable regularisers"),
    "another_point": (problem, Elsewhere(0.1), {}, "Elsewhere is not an affine recurrence"),  # pyright: ignore[reportCallIssue]
    "dual_with_l2": (
        lambda: problem(l2=0.1),
        METHODS["fed_dual_avg_l1"],
        {},
        "FedDualAvg: the problem's l2 term .* put it into the regulariser",
    ),
    "mirror_with_strong_l2": (
        lambda: problem(l2=4.0),
        METHODS["fed_mid_l1"],
        {},
        r"FedMiD: client_step_size \* l2 must be below 1, got 0.3 \* 4",
    ),
    "not_invertible": (
        problem,
        GeneralFedAc(alpha=1.0, beta=1.0, eta=0.1, gamma=0.1),
        {},
        "GeneralFedAc: its linear part cannot",
    ),
}


@pytest.mark.parametrize("name", AGAINST)
def test_where_it_does_not_apply_it_says_why_and_auto_takes_jax(name: str):
    make, method, arguments, words = AGAINST[name]
    arguments: dict[str, Any] = {"rounds": 1, "local_steps": 2, "batch_size": 1, **arguments}
    with pytest.raises(ValueError, match=f"simulate: engine='linear' does not apply: .*{words}.*use engine='auto'"):
        fl.simulate(make(), method, engine="linear", **arguments)
    taken = fl.simulate(make(), method, **{**arguments, "rounds": 0})
    assert taken.provenance["configuration"]["engine"] == "jax"


def test_a_sweep_says_why_too_and_one_bad_cell_is_enough():
    grid = {"alpha": [1.0, 2.0]}
    arguments: dict[str, Any] = {"rounds": 1, "local_steps": 2, "batch_size": 1}
    method = GeneralFedAc(alpha=1.0, beta=1.0, eta=0.1, gamma=0.1)
    with pytest.raises(ValueError, match="sweep: engine='linear' does not apply: GeneralFedAc: its linear part cannot"):
        fl.sweep(problem(), method, grid, engine="linear", **arguments)
    assert fl.sweep(problem(), method, grid, **arguments).provenance["configuration"]["engine"] == "jax"
    with pytest.raises(ValueError, match="engine must be one of 'auto', 'jax', 'linear', 'network', got 'fast'"):
        fl.sweep(problem(), method, grid, engine="fast", **arguments)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("storage", "width", "batch_size", "rounds", "engine"),
    [
        ("sparse", 512, 50, 10_000, "jax"),  # 92 million numbers, with three clients and two steps
        ("sparse", 512, 50, 1_000_000, "linear"),
        ("sparse", 20, 50, 1_000_000, "jax"),
        ("sparse", 20, 50, 10_000_000, "linear"),
        ("sparse", 512, None, 1_000_000, "linear"),
        ("dense", 511, 1, 1_000_000, "jax"),
        ("dense", 512, 1, 1_000_000, "linear"),
        ("dense", 512, 4, 1_000_000, "linear"),
        ("dense", 512, 5, 1_000_000, "jax"),
        ("dense", 512, None, 1_000_000, "jax"),
    ],
)
def test_what_auto_takes(storage: str, width: int, batch_size: int | None, rounds: int, engine: str):
    """The kernels for long runs, and on dense features only where they are faster; always if they are asked for."""
    some = problem("squares", storage=storage, shape=(108, width))
    sampling = Sampling(local_steps=2, batch_size=batch_size)
    run = Run.make("simulate", some, METHODS["fed_avg"], RunArguments(sampling, rounds, rounds, None, (), None))
    assert engine_name("simulate", "auto", run, [run.method]) == engine
    assert engine_name("simulate", "linear", run, [run.method]) == "linear"
    assert engine_name("simulate", "jax", run, [run.method]) == "jax"


@pytest.mark.parametrize("engine", ["jax", "linear"])
def test_a_longer_run_keeps_the_engine_of_its_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: Any):
    """Also a sweep, and if the longer run would have had another engine from its beginning."""
    monkeypatch.setattr(fedlocal.simulation.kernels.engine, "SMALL_RUN", 0 if engine == "jax" else np.inf)
    arguments: dict[str, Any] = {"local_steps": 6, "batch_size": 1, "eval_every": 5, "checkpoint": tmp_path / "run"}
    some, method = problem(shape=(108, 512)), METHODS["fed_avg"]
    fl.simulate(some, method, rounds=5, engine=engine, **arguments)
    longer = fl.simulate(some, method, rounds=10, **arguments)
    whole = fl.simulate(some, method, rounds=10, engine=engine, **{**arguments, "checkpoint": None})
    assert longer.provenance["configuration"]["engine"] == engine
    assert closeness(longer.x, whole.x) == 0
    other = fl.simulate(some, method, rounds=10, **{**arguments, "checkpoint": None})
    assert other.provenance["configuration"]["engine"] != engine
    if engine == "jax":  # the loops of sweeps are compiled elsewhere
        arguments["checkpoint"] = tmp_path / "sweep"
        fl.sweep(some, method, {"seed": [0, 1]}, rounds=5, engine=engine, **arguments)
        longer = fl.sweep(some, method, {"seed": [0, 1]}, rounds=10, **arguments)
        assert longer.provenance["configuration"]["engine"] == engine


# the forms


def prox_of(psi: Separable, x: np.ndarray, t: float) -> np.ndarray:
    soft = np.sign(x) * np.maximum(np.abs(x) - t * psi.l1, 0)
    return np.clip(soft / (1 + t * psi.l2), psi.lower, psi.upper)


@pytest.mark.parametrize("psi", PSIS.values(), ids=PSIS)
@pytest.mark.parametrize("t", [0.0, 0.1, 3.0])
def test_the_separable_form_is_the_prox_and_the_value(psi: fl.Regularizer, t: float):
    form = psi.separable()
    assert form is not None
    x = np.random.default_rng(0).standard_normal(50) / 5
    np.testing.assert_allclose(psi.array_prox(jnp.asarray(x), t), prox_of(form, x, t), rtol=1e-14, atol=1e-16)
    feasible = np.clip(x, form.lower, form.upper)
    value = np.sum(form.l1 * np.abs(feasible) + form.l2 / 2 * feasible**2)
    np.testing.assert_allclose(psi.array_value(jnp.asarray(feasible)), value, rtol=1e-14)


@pytest.mark.parametrize("name", METHODS)
def test_the_affine_form_is_the_method(name: str):
    """A round of two unequal clients on random vectors, by the matrices (with `Proximal` as its docstring says) and by the
    method's own functions."""
    method, rng = METHODS[name], np.random.default_rng(0)
    equal = name.startswith("minibatch")  # the form of minibatch methods knows the number of steps
    steps, shares = (3, 3) if equal else (2, 4), (0.3, 0.7)
    affine = method.affine(local_steps=3)
    assert affine is not None
    query, transition, gain, start, keep, take = (np.asarray(a, float) for a in affine[:6])
    proximal = affine.proximal
    on_clients = proximal if proximal is not None and proximal.on_clients else None
    hessian = np.diag([1.0, 2.0, 3.0])
    server = jax.tree.map(lambda a: abs(rng.standard_normal(np.shape(a))) / 9, method.init(np.zeros(3)))
    leaves = jax.tree.leaves(server)
    walked = float(leaves.pop()) if proximal is not None and proximal.dual else 0.0
    V, messages, ends, lengths = np.array(leaves), [], [], []
    for count in steps:
        client, S, t = method.start(method.broadcast(server), ()), start @ V, walked
        for _ in range(count):
            client = method.step(client, lambda x: hessian @ x - 0.4)
            x = query @ S
            if on_clients is not None and on_clients.dual:
                x = prox_of(on_clients.psi, x, t)
            S = transition @ S - np.outer(gain, hessian @ x - 0.4)
            if on_clients is not None and not on_clients.dual:
                S = prox_of(on_clients.psi, S, on_clients.step)
            t += 0.0 if proximal is None else proximal.step
        messages.append(method.finish(method.broadcast(server), client)[0])
        ends.append(S)
        lengths.append(t - walked)
    mean_message = jax.tree.map(lambda *a: sum(p * b for p, b in zip(shares, a, strict=True)), *messages)
    after = jax.tree.leaves(method.update(server, mean_message, Round()))
    V = keep @ V + take @ sum(p * S for p, S in zip(shares, ends, strict=True))
    length = float(np.dot(shares, lengths))
    if proximal is not None and proximal.dual:
        assert float(after.pop()) == pytest.approx(walked + proximal.server_step * length, rel=1e-12)
    elif proximal is not None:
        psi = proximal.psi if proximal.server_psi is None else proximal.server_psi
        V = prox_of(psi, V, proximal.server_step * length)
    np.testing.assert_allclose(after, V, rtol=1e-12, atol=1e-14)


# what is not served, though it looks as if it were


class ThreeVectors(FedAvg):
    """FedAvg stated with two vectors that nobody needs."""

    def affine(self, local_steps: int) -> Any:
        eye, eta = np.eye(3), self.client_step_size
        return fl.core.Affine([0, 0, 1], eye, [eta] * 3, np.ones((3, 1)), [[0.0]], [[0.0, 0.0, 1.0]])


class Sum(MinibatchSGD):
    """Gradients added up instead of averaged: its matrices do not depend on the number of steps."""

    def finish(self, server: Any, client: Any) -> Any:
        return client.total, ()

    def affine(self, local_steps: int) -> Any:
        form = super().affine(local_steps)
        return form._replace(take=[[0.0, -self.step_size]])


@pytest.mark.parametrize(
    ("method", "steps", "words"),
    [
        (ThreeVectors(0.1), 3, "at most two vectors"),  # pyright: ignore[reportCallIssue]
        (Sum(0.1), [1, 2, 3] * 3, "same number of local steps"),
        (eqx.tree_at(lambda m: m.client_step_size, FedAvg(0.1), np.full(20, 0.1)), 3, "plain numbers"),
    ],
)
def test_forms_that_the_loops_cannot_follow_are_left_to_jax(method: fl.LocalMethod, steps: Any, words: str):
    arguments: dict[str, Any] = {"rounds": 1, "local_steps": steps, "batch_size": 1}
    with pytest.raises(ValueError, match=words):
        fl.simulate(problem(intercept=False), method, engine="linear", **arguments)
    result = fl.simulate(problem(intercept=False), method, **arguments)
    assert result.provenance["configuration"]["engine"] == "jax"


def test_a_sum_with_equal_steps_is_served():
    check(problem(storage="dense"), Sum(0.1), **STEPS)


def test_a_server_step_size_in_float32_does_not_make_the_mean_leak():
    check(problem(l2=0.02), FedAvg(0.1, jnp.float32(0.1)), **(STEPS | {"rounds": 40}))


def test_other_random_bits_of_jax_are_noticed():
    """In one process with runs that made the bits themselves."""
    check(problem(l2=0.02), FedAvg(0.1), **STEPS)
    with jax.threefry_partitionable(False):
        check(problem(l2=0.02), FedAvg(0.1), **STEPS)


@thorough
def test_dual_averaging_in_float32_is_the_same_however_it_is_cut():
    with jax.enable_x64(False):
        arguments: dict[str, Any] = {"local_steps": 3, "batch_size": 1, "rounds": 100, "engine": "linear"}
        whole = fl.simulate(problem(), FedDualAvg(0.1, 0.777, L1(0.01)), eval_every=100, **arguments)
        often = fl.simulate(problem(), FedDualAvg(0.1, 0.777, L1(0.01)), eval_every=7, **arguments)
    assert closeness((whole.x, whole.server), (often.x, often.server)) == 0


def test_provenance_names_the_engines_of_all_groups_of_a_sweep(monkeypatch: pytest.MonkeyPatch):
    grid = {"regularizer": [GroupL1(0.1), L1(0.1)]}
    wide = problem(intercept=False, shape=(108, 512))
    monkeypatch.setattr(fedlocal.simulation.kernels.engine, "SMALL_RUN", 0)
    result = fl.sweep(wide, FedDualAvg(0.1), grid, rounds=1, local_steps=2, batch_size=1)
    assert result.provenance["configuration"]["engine"] == "jax, linear"
