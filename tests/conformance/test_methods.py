"""Every method against its transcript from the text, and both engines against each other."""

import dataclasses
from functools import cache
from typing import Any

import jax
import numpy as np
import pytest

import fedlocal as fl
from conformance.cases import CASES, PAIRS
from conformance.federation import MASK, closeness, federation, flat, rounds_of, start
from fedlocal.util import serialization

SAMPLING: dict[str, dict[str, Any]] = {
    "full_gradients": {"local_steps": 4, "weights": "uniform"},
    "epochs_partial": {"local_epochs": 2, "batch_size": 3, "clients_per_round": 3, "weights": "examples"},
    "replacement_partial": {"local_steps": 4, "batch_size": 2, "clients_per_round": 2, "weights": "uniform"},
    "unequal_steps": {"local_steps": [1, 4, 2, 3, 5], "batch_size": 2, "weights": "examples"},
}
ROWS = CASES | PAIRS
OTHER_PSIS = ("squared_l2", "ball", "box", "nuclear", "entropy")
MAIN = [name for name in CASES if not any(psi in name for psi in OTHER_PSIS)]  # every method, with l1 and without
EVERYTHING = [(name, sampling) for name in ROWS for sampling in SAMPLING]
USUAL = {(name, "unequal_steps") for name in MAIN if "zero" not in name}  # a method knows nothing of samplings
USUAL |= {(name, "unequal_steps") for name in ("fed_dual_avg_nuclear", "fed_dual_avg_l1_ball", "fed_mid_p_norm_l1")}
USUAL |= {(f"fed_dual_avg_{h_psi}", "unequal_steps") for h_psi in ("entropy_simplex", "diagonal_box", "elastic_net")}
USUAL |= {("scaffold", "epochs_partial")}  # which has a memory of the rounds of each client
CHOSEN = [row if row in USUAL else pytest.param(*row, marks=pytest.mark.thorough) for row in EVERYTHING]


@cache
def shared_rounds(sampling: str) -> list:
    return rounds_of(federation(), 5, seed=3, **SAMPLING[sampling])


def test_every_method_has_a_transcript():
    missing = set(fl.methods.__all__) - {type(case.method).__name__ for case in CASES.values()}
    assert not missing, f"{sorted(missing)}: no row in CASES of conformance/cases.py"


@pytest.mark.parametrize(("name", "sampling"), CHOSEN)
def test_agrees_with_the_transcript(name: str, sampling: str):
    case, problem, x0 = ROWS[name], federation(), start(ROWS[name].positive)
    points: list[dict] = []
    result = fl.simulate(
        problem,
        case.method,
        rounds=5,
        x0=x0,
        seed=3,
        metrics=[lambda x: points.append(x) or 0.0],
        **SAMPLING[sampling],
    )
    expected = case.transcript(flat(x0), shared_rounds(sampling), MASK)
    for r, want in enumerate(expected):
        np.testing.assert_allclose(flat(points[r + 1]), want, rtol=0, atol=1e-10)
    np.testing.assert_allclose(flat(result.x), expected[-1], rtol=0, atol=1e-10)
    assert np.abs(expected[-1] - flat(x0)).max() > 1e-3  # something happened


@pytest.mark.parametrize(
    "name",
    [
        *("fed_avg", "agd", "fed_dual_avg_l1", "scaffold"),  # no state, accelerated, a dual state, a memory
        *(
            pytest.param(name, marks=pytest.mark.thorough)
            for name in ("fed_ac_one", "fed_mid_nuclear", "minibatch_ac_sgd", "fed_mid_l1_osp")
        ),
    ],
)
def test_simulate_equals_loop(name: str):
    case, problem, x0 = CASES[name], federation(), start(CASES[name].positive)
    metrics = [fl.metrics.ClientDiscrepancy()]
    arguments = {"rounds": 2, "x0": x0, "metrics": metrics, **SAMPLING["epochs_partial"]}
    fast, slow = fl.simulate(problem, case.method, **arguments), fl.loop(problem, case.method, **arguments)
    assert closeness(fast.x, slow.x) < 1e-12
    assert closeness(fast.server, slow.server) < 1e-12
    columns = [c for c in fast.history if c != "seconds"]
    np.testing.assert_allclose(fast.history[columns], slow.history[columns], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", ROWS)
def test_state_survives_serialisation(name: str):
    server = ROWS[name].method.init(jax.tree.map(np.asarray, start(True)))
    again = serialization.from_bytes(serialization.to_bytes(server), server)
    assert jax.tree.structure(again) == jax.tree.structure(server)
    assert closeness(again, server) == 0


@pytest.mark.thorough
@pytest.mark.parametrize("name", MAIN)
def test_vmap_over_the_method(name: str):
    """A sweep is one vmap over a method whose numbers are arrays; each cell equals the method on its own."""
    method = ROWS[name].method
    scales = np.array([1.0, 1.25])  # 1.25 keeps the p of a p-norm between 1 and 2
    many = jax.tree.map(lambda leaf: np.multiply.outer(scales, leaf), method)

    def two_steps(method: fl.LocalMethod) -> Any:
        server = method.init(start(True))
        client = method.start(method.broadcast(server), method.init_memory(start(True)))
        for _ in range(2):
            client = method.step(client, lambda x: jax.tree.map(lambda a: a - 0.2, x))
        return method.solution(method.update(server, method.finish(server, client)[0], fl.Round()))

    together = jax.vmap(two_steps)(many)
    for i, scale in enumerate(scales):
        alone = two_steps(jax.tree.map(lambda leaf, scale=scale: leaf * scale, method))
        assert closeness(jax.tree.map(lambda a, i=i: a[i], together), alone) < 1e-12


def test_the_program_is_compiled_once_for_all_step_sizes_seeds_and_chunks():
    from fedlocal.simulation import engines

    problem = federation()
    advance: Any = engines._advance
    advance.clear_cache()
    for eta, seed, rounds, every in [(0.1, 0, 3, 1), (0.2, 1, 10, 5), (0.05, 2, 7, 7)]:
        method = fl.methods.FedDualAvg(eta, 0.5, fl.regularizers.L1(eta))
        fl.simulate(
            problem,
            method,
            rounds=rounds,
            eval_every=every,
            local_steps=2,
            batch_size=2,
            seed=seed,
            clients_per_round=2,
        )
    assert advance._cache_size() == 1


@pytest.mark.parametrize("name", CASES)
def test_a_copy_with_replaced_fields_is_the_same_method(name: str):
    """`dataclasses.replace`, which sweeps use, gives every field back to the constructor."""
    method = CASES[name].method
    assert jax.tree.structure(dataclasses.replace(method)) == jax.tree.structure(method)
