"""Every method over Flower's bytes: the same as `simulate`, and as the transcripts from the text."""

from functools import cache
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
import pytest

import fedlocal as fl
from conformance.cases import CASES, ETA, PAIRS, SERVER_ETA, STEPS
from conformance.federation import MASK, closeness, federation, flat, rounds_of, start
from conformance.test_methods import MAIN, SAMPLING
from fedlocal.core import GradFn, Params
from fedlocal.flower import InProcess, Policy, Strategy, client_app
from fedlocal.flower.messages.records import from_record
from fedlocal.methods import method_spec
from fedlocal.simulation.plan import cohort_table
from unit.flower.flower_sites import Sites, app_of, configuration, problem_of, training

SMALL = problem_of((6, 9, 6))  # two sizes, two programs
SAMPLINGS: dict[str, dict[str, Any]] = {
    "full": {"local_steps": STEPS, "weights": "examples"},
    "epochs_partial": {"local_epochs": 2, "batch_size": 4, "clients_per_round": 2, "weights": "examples"},
    "replacement_partial": {"local_steps": STEPS, "batch_size": 2, "clients_per_round": 2, "weights": "uniform"},
    "unequal_steps": {"local_steps": [4, 1, 4], "batch_size": 2, "weights": "examples"},
}
STATES = ("fed_avg", "fed_ac_one", "scaffold", "accelerated_proximal_gradient")  # and that of FedDualAvg
USUAL = [*((name, "full") for name in STATES), ("fed_dual_avg_l1", "epochs_partial")]
MORE = [(name, "full") for name in [*MAIN, "fed_dual_avg_entropy_l1"] if "zero" not in name and name not in STATES]
MORE += [("fed_mid_l1", "unequal_steps")]
MORE += [("fed_avg", "replacement_partial"), ("fed_avg", "unequal_steps"), ("fed_ac_one", "epochs_partial")]


def deployed(problem: Any, method: fl.LocalMethod, **arguments: Any) -> tuple[Any, Strategy]:
    """What a strategy returns when each client of a problem is a site, and the strategy."""
    names = [f"site {m}" for m in range(problem.num_clients)]
    strategy = Strategy(method, sites=names, patience=5.0, **arguments)
    return strategy.start(InProcess(app_of(problem), configuration(names)), timeout=60.0), strategy


@cache
def _tables(which: str, sampling: str) -> Any:
    problem, arguments = (SMALL, SAMPLINGS) if which == "small" else (federation(), SAMPLING)
    return rounds_of(problem, 10, seed=3, **arguments[sampling])


def _compare(which: str, name: str, sampling: str, simulated: bool) -> None:
    case, x0 = (CASES | PAIRS)[name], start((CASES | PAIRS)[name].positive)
    problem, samplings = (SMALL, SAMPLINGS) if which == "small" else (federation(), SAMPLING)
    arguments = {"rounds": 10, "seed": 3, "x0": x0, "eval_every": 10, **samplings[sampling]}
    result, strategy = deployed(problem, case.method, **arguments)
    assert list(result.arrays) == ["intercept", "weights"]
    assert closeness(from_record(result.arrays), strategy.solution()) == 0
    wanted = case.transcript(flat(x0), _tables(which, sampling), MASK)[-1]
    np.testing.assert_allclose(flat(strategy.solution()), wanted, rtol=0, atol=1e-12)
    assert np.abs(wanted - flat(x0)).max() > 1e-3  # something happened
    if simulated:
        same = fl.simulate(problem, case.method, engine="jax", progress=False, **arguments)
        assert closeness(strategy.solution(), same.x) < 1e-12
        last, numbers = same.history.iloc[-1], strategy.history[-1]
        assert numbers["round"] == 10
        for column in ("loss", "objective"):
            np.testing.assert_allclose(numbers[column], last[column], rtol=1e-12)


@pytest.mark.parametrize(
    ("name", "sampling"), [*USUAL, *(pytest.param(*row, marks=pytest.mark.thorough) for row in MORE)]
)
def test_agrees_with_simulate_and_the_transcript(name: str, sampling: str):
    _compare("small", name, sampling, simulated=not name.endswith(("_osp", "_entropy_l1")))


@pytest.mark.thorough
@pytest.mark.parametrize("sampling", SAMPLING)
@pytest.mark.parametrize("name", [*CASES, *PAIRS])
def test_all_variants_and_samplings_agree(name: str, sampling: str):
    _compare("large", name, sampling, simulated=True)


def test_a_server_optimizer_stays_on_the_server():
    method = fl.methods.FedAvg(ETA, server_optimizer=optax.adam(0.05))
    arguments = {"rounds": 10, "x0": start(False), **SAMPLINGS["full"]}
    result, _ = deployed(SMALL, method, **arguments)
    simulated = fl.simulate(SMALL, method, engine="jax", progress=False, **arguments)
    assert closeness(from_record(result.arrays), simulated.x) < 1e-12
    assert closeness(simulated.x, start(False)) > 0.1


def test_restarts_agree_with_simulate_and_the_transcript():
    """Only z is sent: what restarts depend on stays on the server."""
    case = CASES["accelerated_proximal_gradient"]
    arguments = {"rounds": 40, "seed": 3, "x0": start(False), "eval_every": 40, **SAMPLINGS["full"]}
    _, strategy = deployed(SMALL, case.method, **arguments)
    simulated = fl.simulate(SMALL, case.method, engine="jax", progress=False, **arguments)
    assert 1 <= float(simulated.server.t) < 15  # without a restart it is above 1 + 40 / 2
    assert closeness(strategy.solution(), simulated.x) < 1e-12
    wanted = case.transcript(flat(start(False)), rounds_of(SMALL, 40, seed=3, **SAMPLINGS["full"]), MASK)[-1]
    np.testing.assert_allclose(flat(strategy.solution()), wanted, rtol=0, atol=1e-12)


def test_float32_stays_float32():
    x0 = {name: np.asarray(a, np.float32) for name, a in start(False).items()}
    app = client_app(
        lambda context: fl.problems.only(problem_of((6, 9, 6)), int(context.node_config["m"])), policy=Policy.open()
    )
    strategy = Strategy(
        CASES["fed_dual_avg_l1"].method, rounds=10, sites=list("abc"), patience=5.0, x0=x0, **SAMPLINGS["full"]
    )
    result = strategy.start(InProcess(app, configuration()), timeout=60.0)
    found = from_record(result.arrays)
    assert {a.dtype for a in found.values()} == {np.dtype(np.float32)}
    wanted = CASES["fed_dual_avg_l1"].transcript(flat(x0), _tables("small", "full"), MASK)[-1]
    np.testing.assert_allclose(flat(found), wanted, rtol=0, atol=1e-6)


def test_without_a_starting_point_it_is_zero_as_in_simulate():
    result, strategy = deployed(SMALL, CASES["fed_avg"].method, rounds=1, **SAMPLINGS["full"])
    tables = rounds_of(SMALL, 1, seed=0, **SAMPLINGS["full"])
    wanted = CASES["fed_avg"].transcript(np.zeros(7), tables, MASK)[-1]
    np.testing.assert_allclose(flat(from_record(result.arrays)), wanted, rtol=0, atol=1e-12)
    assert strategy.done == 1


class Kept(NamedTuple):
    x: Params
    kept: Params


@method_spec.register
class HalfNow(fl.LocalMethod):
    """A client sends half of what it walked and of what it still owes, and owes the rest."""

    step_size: float

    def init(self, x0: Params) -> Params:
        return x0

    def init_memory(self, x0: Params) -> Params:
        return optax.tree.zeros_like(x0)

    def start(self, server: Params, memory: Params) -> Kept:
        return Kept(server, memory)

    def step(self, client: Kept, grad_fn: GradFn) -> Kept:
        return client._replace(x=optax.tree.add_scale(client.x, -self.step_size, grad_fn(client.x)))

    def finish(self, server: Params, client: Kept) -> tuple[Params, Params]:
        half = jax.tree.map(lambda x, before, kept: (x - before + kept) / 2, client.x, server, client.kept)
        return half, half

    def update(self, server: Params, mean_message: Params, round: Any) -> Params:
        return optax.tree.add_scale(server, SERVER_ETA, mean_message)

    def solution(self, server: Params) -> Params:
        return server

    def primal(self, client: Kept) -> Params:
        return client.x


def half_now(x: np.ndarray, tables: Any, cohorts: list[list[int]]) -> np.ndarray:
    """The same with loops."""
    kept: dict[int, np.ndarray] = {}
    for clients, cohort in zip(tables, cohorts, strict=True):
        total = np.zeros_like(x)
        for (weight, grads), m in zip(clients, cohort, strict=True):
            z = x.copy()
            for grad in grads:
                z = z - ETA * grad(z)
            kept[m] = (z - x + kept.get(m, np.zeros_like(x))) / 2
            total += weight * kept[m]
        x = x + SERVER_ETA * total
    return x


def test_a_method_of_ones_own_keeps_its_memory_on_the_sites():
    arguments = {"rounds": 10, "seed": 3, "x0": start(False), **SAMPLINGS["replacement_partial"]}
    result, _ = deployed(SMALL, HalfNow(ETA), **arguments)
    simulated = fl.simulate(SMALL, HalfNow(ETA), engine="jax", progress=False, **arguments)
    assert closeness(from_record(result.arrays), simulated.x) < 1e-12
    cohorts = cohort_table(3, 3, 2, 0)[:10].tolist()
    wanted = half_now(flat(start(False)), _tables("small", "replacement_partial"), cohorts)
    np.testing.assert_allclose(flat(from_record(result.arrays)), wanted, rtol=0, atol=1e-12)


def test_a_repeated_round_starts_from_the_memory_that_it_started_from():
    """b is not heard once: the round is repeated, and a and c must not pay twice."""
    lost = []

    def fault(site: str, question: Any, answer: Any) -> Any:
        if site == "b" and training(question, {2}) and not lost:
            lost.append(site)
            return None
        return answer

    arguments = {"rounds": 5, "x0": start(False), **SAMPLINGS["full"]}
    strategy = Strategy(HalfNow(ETA), sites=list("abc"), patience=5.0, min_clients=3, **arguments)
    strategy.start(Sites(app_of(SMALL), fault=fault), timeout=0.2)
    wanted = half_now(flat(start(False)), _tables("small", "full")[:5], [[0, 1, 2]] * 5)
    assert lost == ["b"]
    np.testing.assert_allclose(flat(strategy.solution()), wanted, rtol=0, atol=1e-12)
