"""Flower's wrappers for differential privacy around any method, and the account that they keep."""

from pathlib import Path
from typing import Any

import dp_accounting
import numpy as np
import pytest
from dp_accounting.rdp import RdpAccountant as Reference
from flwr.app import Array, ArrayRecord, Error, Message, MessageType
from flwr.clientapp.mod import adaptiveclipping_mod, fixedclipping_mod
from flwr.serverapp.exception import PrivacyBudgetExhausted
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideAdaptiveClipping,
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
)
from flwr.supercore.privacy_accounting import NeighboringRelation, PrivacyConfig, SamplingMethod
from flwr.supercore.privacy_accounting.rdp_accountant import RdpAccountant

from conformance.cases import CASES, ETA, SERVER_ETA, STEPS
from conformance.federation import MASK, flat, rounds_of
from fedlocal.flower import Outcome, start
from fedlocal.flower.messages.records import from_record
from unit.flower.flower_sites import FULL, PROBLEM, X0, Sites, app_of, distance, expected, strategy, training

HUGE, SMALL, SIGMA, DELTA = 1e6, 0.05, 1.3, 1e-5
METHODS = ["fed_avg", "fed_ac_one", "fed_mid_l1", "fed_dual_avg_l1", "minibatch_sgd", "agd"]
WRAPPERS: dict[str, tuple[Any, list[Any]]] = {
    "server": (DifferentialPrivacyServerSideFixedClipping, []),
    "client": (DifferentialPrivacyClientSideFixedClipping, [fixedclipping_mod]),
}


def _run(wrapper: Any, mods: list[Any]) -> Any:
    """Run it; the arrays of the result and the grid."""
    grid = Sites(app_of(mods=mods))
    return from_record(start(wrapper, grid, timeout=5.0).arrays), grid


PAIRS = [  # every method with one of the wrappers
    pytest.param(name, where, marks=() if (i + j) % len(WRAPPERS) == 0 else pytest.mark.thorough)
    for i, name in enumerate(METHODS)
    for j, where in enumerate(WRAPPERS)
]


@pytest.mark.parametrize(("name", "where"), PAIRS)
def test_without_noise_and_clipping_nothing_changes(name: str, where: str):
    wrapper, mods = WRAPPERS[where]
    work = {**FULL, "local_steps": STEPS}
    inner = strategy(CASES[name], 4, **work)
    found, _ = _run(wrapper(inner, 0.0, HUGE, 3), mods)
    assert distance(found, expected(CASES[name], 4, **work)) < 1e-12
    assert distance(inner.solution(), flat(found)) == 0.0


def _clipped(change: np.ndarray) -> np.ndarray:
    return change * min(1.0, SMALL / np.linalg.norm(change))


def _walk(grads: Any) -> np.ndarray:
    x = flat(X0)
    for grad in grads:
        x = x - ETA * grad(x)
    return x - flat(X0)


def _soft(x: np.ndarray, t: float) -> np.ndarray:
    return np.where(MASK, np.sign(x) * np.maximum(np.abs(x) - t, 0), x)


def _dual_walk(grads: Any) -> np.ndarray:
    y, walked = flat(X0), 0.0
    for grad in grads:
        y, walked = y - ETA * grad(_soft(y, 0.3 * walked)), walked + ETA
    return y - flat(X0)


def _one_round(name: str) -> tuple[np.ndarray, list[np.ndarray]]:
    """The model after a round in which every client's change is clipped, by hand, and the changes before that."""
    (clients,) = rounds_of(PROBLEM, 1, **FULL)
    x, grads = flat(X0), [grads for _, grads in clients]
    if name == "fed_avg":
        changes = [_walk(g) for g in grads]
        return x + SERVER_ETA * np.mean([_clipped(c) for c in changes], axis=0), changes
    if name == "fed_dual_avg_l1":
        changes = [_dual_walk(g) for g in grads]
        y = x + SERVER_ETA * np.mean([_clipped(c) for c in changes], axis=0)
        return _soft(y, 0.3 * SERVER_ETA * 2 * ETA), changes
    changes = [np.mean([g(x) for g in steps], axis=0) for steps in grads]  # minibatch_sgd
    return x - ETA * np.mean([_clipped(c) for c in changes], axis=0), changes


@pytest.mark.parametrize("where", WRAPPERS)
@pytest.mark.parametrize("name", ["fed_avg", "fed_dual_avg_l1", "minibatch_sgd"])
def test_what_each_client_changed_is_clipped(name: str, where: str):
    wrapper, mods = WRAPPERS[where]
    found, grid = _run(wrapper(strategy(CASES[name], 1, **FULL), 0.0, SMALL, 3), mods)
    wanted, changes = _one_round(name)
    assert min(np.linalg.norm(c) for c in changes) > 1.5 * SMALL  # so that clipping does something
    assert distance(found, wanted) < 1e-12
    if where == "client":  # what left the sites is clipped already
        for question, answer in zip(grid.questions, grid.answers, strict=True):
            if training(question, {0}):
                before, after = (from_record(m.content["arrays"]) for m in (question, answer))
                squares = sum(np.sum((after[name] - before[name]) ** 2) for name in before)
                np.testing.assert_allclose(np.sqrt(squares), SMALL, rtol=1e-9)


@pytest.mark.parametrize(
    ("wrapper", "mods"),
    [
        (DifferentialPrivacyServerSideAdaptiveClipping, []),
        (DifferentialPrivacyClientSideAdaptiveClipping, [adaptiveclipping_mod]),
    ],
)
def test_adaptive_clipping(wrapper: Any, mods: list[Any]):
    """All three changes are longer than the norm; what Flower makes of that is exp(-0.2 (1 - 0.5)) times the norm."""
    outer = wrapper(strategy(CASES["fed_avg"], 1, **FULL), 0.0, 3, initial_clipping_norm=SMALL)
    found, _ = _run(outer, mods)
    assert distance(found, _one_round("fed_avg")[0]) < 1e-12
    np.testing.assert_allclose(outer.clipping_norm, SMALL * np.exp(-0.2 * (1 - 0.5)), rtol=1e-12)
    outer = wrapper(strategy(CASES["fed_dual_avg_l1"], 3, **FULL), 0.1, 3, initial_clipping_norm=SMALL)
    found, _ = _run(outer, mods)
    assert all(np.isfinite(a).all() for a in found.values())


# the account


def _accountant(max_epsilon: float | None = None) -> RdpAccountant:
    relation, sampling = NeighboringRelation.ADD_OR_REMOVE_ONE, SamplingMethod.NO_AMPLIFICATION
    return RdpAccountant(PrivacyConfig(DELTA, 3, relation, sampling, max_epsilon))


def _epsilon(rounds: int) -> float:
    """What the library that accounts says of so many Gaussian mechanisms."""
    reference = Reference()
    reference.compose(dp_accounting.GaussianDpEvent(SIGMA), rounds)
    return reference.get_epsilon(DELTA)


def _private(rounds: int, name: str = "fed_dual_avg_l1", max_epsilon: float | None = None, **more: Any) -> Any:
    inner = strategy(CASES[name], rounds, **FULL, **more)
    return DifferentialPrivacyServerSideFixedClipping(inner, SIGMA, SMALL, 3, accountant=_accountant(max_epsilon))


def test_the_account_is_that_of_the_accounting_library_and_grows():
    spent = []
    for rounds in (1, 2, 4):
        wrapper = _private(rounds)
        start(wrapper, Sites(), timeout=5.0)
        privacy = Outcome.of(wrapper).privacy
        assert privacy is not None
        assert privacy["epsilon"] == pytest.approx(_epsilon(rounds), rel=1e-12)
        assert privacy["delta"] == DELTA
        assert privacy["num_releases"] == rounds
        spent.append(privacy["epsilon"])
    assert 0 < spent[0] < spent[1] < spent[2]


def test_without_an_accountant_nothing_is_claimed():
    wrapper = DifferentialPrivacyServerSideFixedClipping(strategy(CASES["fed_avg"], 1, **FULL), SIGMA, SMALL, 3)
    start(wrapper, Sites(), timeout=5.0)
    assert Outcome.of(wrapper).privacy is None


def test_a_run_that_continues_continues_its_account(tmp_path: Path):
    kept: dict[str, Any] = {"checkpoint": str(tmp_path / "run")}
    start(_private(2, **kept), Sites(), timeout=5.0)
    again = _private(5, **kept)
    start(again, Sites(), timeout=5.0)
    privacy = Outcome.of(again).privacy
    assert privacy is not None
    assert privacy["num_releases"] == 5
    assert privacy["epsilon"] == pytest.approx(_epsilon(5), rel=1e-12)


def test_an_exhausted_budget_stops_the_run_and_keeps_it(tmp_path: Path):
    budget, kept = (_epsilon(2) + _epsilon(3)) / 2, {"checkpoint": str(tmp_path / "run")}
    wrapper = _private(5, max_epsilon=budget, **kept)
    with pytest.raises(PrivacyBudgetExhausted, match="would exceed max_epsilon"):
        start(wrapper, Sites(), timeout=5.0)
    outcome = Outcome.of(wrapper)
    assert wrapper.strategy.done == 2
    assert outcome.privacy is not None
    assert outcome.privacy["epsilon"] == pytest.approx(_epsilon(2), rel=1e-12)
    again = _private(5, max_epsilon=budget, **kept)
    grid = Sites()
    with pytest.raises(PrivacyBudgetExhausted):
        start(again, grid, timeout=5.0)
    assert grid.asked(MessageType.TRAIN) == []  # nothing more is asked of the sites
    assert outcome.x is not None
    np.testing.assert_array_equal(flat(again.strategy.solution()), flat(outcome.x))


def test_noise_has_the_size_that_is_accounted_for():
    """One round of FedAvg from the same point, many numbers: their deviation from the clipped mean is sigma C / 3."""
    wanted, draws = _one_round("fed_avg")[0], []
    np.random.seed(0)  # Flower draws from the global generator  # noqa: NPY002
    for _ in range(30):
        wrapper = DifferentialPrivacyServerSideFixedClipping(strategy(CASES["fed_avg"], 1, **FULL), SIGMA, SMALL, 3)
        draws.append((flat(_run(wrapper, [])[0]) - wanted) / SERVER_ETA)
    sample = np.concatenate(draws) / (SIGMA * SMALL / 3)
    assert abs(sample.mean()) < 4 / np.sqrt(sample.size)
    assert abs(np.mean(sample**2) - 1) < 4 * np.sqrt(2 / sample.size)


@pytest.mark.parametrize("where", WRAPPERS)
@pytest.mark.parametrize("name", ["fed_dual_avg_l1", "fed_mid_l1"])
def test_the_length_walked_is_neither_clipped_nor_noised(name: str, where: str, tmp_path: Path):
    wrapper, mods = WRAPPERS[where]
    outer = wrapper(strategy(CASES[name], 4, checkpoint=str(tmp_path / "run"), **FULL), SIGMA, SMALL / 100, 3)
    _, grid = _run(outer, mods)
    answers = [a for q, a in zip(grid.questions, grid.answers, strict=True) if training(q, range(4))]
    sent = [float(a.content["metrics"]["walked"]) for a in answers]
    before = [SERVER_ETA * 2 * ETA * r if name == "fed_dual_avg_l1" else 0.0 for r in range(4) for _ in range(3)]
    np.testing.assert_allclose(sent, np.add(before, 2 * ETA), rtol=1e-12)
    if name == "fed_dual_avg_l1":
        with np.load(tmp_path / "run") as file:
            np.testing.assert_allclose(file["state/walked"], 4 * SERVER_ETA * 2 * ETA, rtol=1e-12)


# faults below a wrapper


@pytest.mark.parametrize("where", WRAPPERS)
def test_a_round_that_is_lost_is_not_accounted_for_and_repeated(where: str):
    """b fails once: the mean of two would need more noise than was promised, so nothing is released."""
    wrapper, mods = WRAPPERS[where]
    lost = []

    def fault(site: str, question: Any, answer: Any) -> Any:
        if site == "b" and training(question, {1}) and not lost:
            lost.append(site)
            answer.content["metrics"]["walked"] = float("nan")
        return answer

    outer = wrapper(strategy(CASES["fed_dual_avg_l1"], 3, **FULL), SIGMA, SMALL, 3, accountant=_accountant())
    start(outer, Sites(app_of(mods=mods), fault=fault), timeout=5.0)
    privacy = Outcome.of(outer).privacy
    assert lost == ["b"]
    assert privacy is not None
    assert privacy["num_releases"] == 3
    assert privacy["epsilon"] == pytest.approx(_epsilon(3), rel=1e-12)
    assert any("the round is repeated" in event.what for event in Outcome.of(outer).events)


def test_an_account_needs_all_answers():
    """Noise is calibrated to the mean over all sites asked; a mean over fewer would tell more than the account says."""
    inner = strategy(CASES["fed_avg"], 2, min_clients=2, **FULL)
    wrapper = DifferentialPrivacyServerSideFixedClipping(inner, SIGMA, SMALL, 3, accountant=_accountant())
    with pytest.raises(ValueError, match="start: min_clients must be 3"):
        start(wrapper, Sites(), timeout=5.0)


WRONG = {
    "shape": np.zeros((3, 2)),
    "type": np.zeros((2, 3), np.float32),
    "nan": np.full((2, 3), np.nan),
}


@pytest.mark.parametrize("what", ["shape", "type", "names", "error", "nan", "two records", "silence"])
def test_a_wrong_answer_does_not_reach_the_wrapper(what: str):
    def fault(site: str, question: Any, answer: Any) -> Any:
        if site != "b" or not training(question, {1}):
            return answer
        if what == "silence":
            return None
        if what == "error":
            return Message(Error(2, "KeyError"), reply_to=question)
        if what == "two records":
            answer.content["more"] = answer.content["arrays"]
        elif what == "names":
            answer.content["arrays"] = ArrayRecord({"evil": Array(np.zeros(1))})
        else:
            answer.content["arrays"]["x/weights"] = Array(WRONG[what])
        return answer

    inner = strategy(CASES["fed_avg"], 3, min_clients=2, **FULL)
    wrapper = DifferentialPrivacyServerSideFixedClipping(inner, 0.0, HUGE, 3)
    start(wrapper, Sites(fault=fault), timeout=0.2)
    assert distance(inner.solution(), expected(CASES["fed_avg"], 3, {(1, 1)}, **FULL)) < 1e-12
    assert [event.round for event in inner.events if event.site == "b" and "left out" in event.what] == [2]
