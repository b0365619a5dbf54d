"""A method that breaks the contract is told which function is wrong; a psi that is hidden never gives a silent wrong number."""

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedlocal as fl
from conformance.cases import CASES
from conformance.federation import federation, start
from fedlocal.core import GradFn, Params, Regularizer
from paths import ROOT

X0 = {"weights": np.zeros(3), "intercept": np.zeros(())}
PSI = fl.regularizers.L1(0.3)


class Wrapper(fl.LocalMethod):
    """Everything is done by another method."""

    inner: fl.LocalMethod

    def init(self, x0: Params) -> Any:
        return self.inner.init(x0)

    def start(self, server: Any, memory: Any) -> Any:
        return self.inner.start(server, memory)

    def step(self, client: Any, grad_fn: GradFn) -> Any:
        return self.inner.step(client, grad_fn)

    def finish(self, server: Any, client: Any) -> Any:
        return self.inner.finish(server, client)

    def update(self, server: Any, mean_message: Any, round: fl.Round) -> Any:
        return self.inner.update(server, mean_message, round)

    def solution(self, server: Any) -> Params:
        return self.inner.solution(server)

    def primal(self, client: Any) -> Params:
        return self.inner.primal(client)


class HonestWrapper(Wrapper):
    @property
    def regularizer(self) -> Regularizer:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.inner.regularizer


class OtherName(Wrapper):
    """A user's method whose penalty is called otherwise."""

    penalty: Regularizer


class ReadsPenalty(OtherName):
    @property
    def regularizer(self) -> Regularizer:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.penalty


class NoMemory(Wrapper):
    def finish(self, server: Any, client: Any) -> Any:
        return super().finish(server, client)[0]


class OtherMemory(Wrapper):
    def finish(self, server: Any, client: Any) -> Any:
        return super().finish(server, client)[0], np.zeros(2)


class NoReturn(Wrapper):
    def update(self, server: Any, mean_message: Any, round: fl.Round) -> Any:
        super().update(server, mean_message, round)


class OldUpdate(Wrapper):
    def update(self, server: Any, mean_message: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return server


class StepReturnsPair(Wrapper):
    def step(self, client: Any, grad_fn: GradFn) -> Any:
        return client, grad_fn(client)


class GradientOfAPart(Wrapper):
    def step(self, client: Any, grad_fn: GradFn) -> Any:
        return grad_fn(client["weights"])


class SolutionIsState(Wrapper):
    def solution(self, server: Any) -> Any:
        return server


class StartFails(Wrapper):
    def start(self, server: Any, memory: Any) -> Any:
        return server.z


FED_AVG = fl.methods.FedAvg(0.1)
BROKEN: dict[str, tuple[Callable[[], Any], str]] = {
    "finish without memory": (
        lambda: NoMemory(FED_AVG),
        r"NoMemory.finish must return a pair \(message, memory\), got",
    ),
    "another memory": (
        lambda: OtherMemory(FED_AVG),
        r"OtherMemory.finish must return as memory what init_memory returns, \(\), got float\d\d\[2\]",
    ),
    "update without return": (
        lambda: NoReturn(FED_AVG),
        r"NoReturn.update must return what init returns, .*, got None",
    ),
    "update of another version": (lambda: OldUpdate(FED_AVG), r"OldUpdate.update failed: TypeError: .* positional"),
    "step returns a pair": (
        lambda: StepReturnsPair(FED_AVG),
        r"StepReturnsPair.step must return what start returns, .*",
    ),
    "gradient of a part": (
        lambda: GradientOfAPart(FED_AVG),
        r"GradientOfAPart.step must give a point like x0 to grad_fn",
    ),
    "solution is a state": (
        lambda: SolutionIsState(FED_AVG),
        r"SolutionIsState.solution must return a point like x0, .*",
    ),
    "an error inside": (lambda: StartFails(FED_AVG), r"StartFails.start failed: AttributeError: .* 'z'"),
    "a class": (lambda: fl.methods.FedAvg, "method must be a LocalMethod, got the class FedAvg"),
    "hidden in a wrapper": (
        lambda: Wrapper(fl.methods.FedDualAvg(0.1, regularizer=PSI)),
        "Wrapper holds L1 in its field 'inner', but its regularizer is Zero",
    ),
    "another field": (
        lambda: OtherName(FED_AVG, PSI),
        "OtherName holds L1 in its field 'penalty', but its regularizer is Zero",
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_what_is_wrong_is_named(what: str):
    make, message = BROKEN[what]
    with pytest.raises(TypeError, match=f"^check_method: {message}"):
        fl.check_method(make(), X0)


ENGINES: dict[str, Callable[..., Any]] = {
    "simulate": fl.simulate,
    "loop": fl.loop,
    "sweep": lambda problem, method, **work: fl.sweep(problem, method, {"seed": [0, 1]}, **work),
    # not the first cell, and one of another structure
    "a cell": lambda problem, method, **work: fl.sweep(
        problem, lambda broken: method if broken else FED_AVG, {"broken": [False, True]}, **work
    ),
    "compare": lambda problem, method, **work: fl.compare(problem, [FED_AVG, method], seeds=[0], **work),
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("what", [what for what in BROKEN if what != "a class"])
def test_engines_check_before_they_run(engine: str, what: str):
    make, message = BROKEN[what]
    owner = engine if engine in ("simulate", "loop") else "sweep"
    with pytest.raises(TypeError, match=f"^{owner}: {message}"):
        ENGINES[engine](federation(), make(), rounds=1, local_steps=1, x0=start(False), progress=False)


@pytest.mark.parametrize("name", CASES)
def test_every_method_keeps_the_contract(name: str):
    fl.check_method(CASES[name].method, {"weights": np.zeros((3, 2)), "intercept": np.zeros(())})


@pytest.mark.parametrize(
    "wrapped", [lambda m: HonestWrapper(m), lambda m: ReadsPenalty(m, m.regularizer)], ids=["wrapper", "another name"]
)
def test_a_wrapper_that_tells_its_psi_has_the_objective_and_certificate_of_what_it_wraps(wrapped: Any):
    method, problem = fl.methods.FedDualAvg(0.05, regularizer=PSI), federation()
    options: dict[str, Any] = {"rounds": 3, "local_steps": 2, "x0": start(False), "progress": False}
    own, other = (fl.simulate(problem, m, **options) for m in (method, wrapped(method)))
    assert own.history["objective"].tolist() == other.history["objective"].tolist()
    assert own.history["objective"].iloc[-1] > own.history["loss"].iloc[-1]
    assert own.certificate() == other.certificate()
    swept = fl.sweep(
        problem, lambda eta: wrapped(fl.methods.FedDualAvg(eta, regularizer=PSI)), {"eta": [0.05]}, **options
    )
    np.testing.assert_allclose(swept.cell(0).history["objective"], own.history["objective"], rtol=1e-12)


def test_the_server_learns_the_round_and_the_participation():
    seen: list[tuple[int, float]] = []

    class Listens(Wrapper):
        def update(self, server: Any, mean_message: Any, round: fl.Round) -> Any:
            if isinstance(round.number, int):
                seen.append((round.number, float(round.participation)))
            return super().update(server, mean_message, round)

    problem = federation()
    fl.loop(problem, Listens(FED_AVG), rounds=3, local_steps=1, clients_per_round=2, x0=start(False), progress=False)
    assert seen == [(r, 2 / problem.num_clients) for r in range(3)]


def test_engines_ask_methods_and_do_not_look_at_their_class():
    """Outside methods/ nothing does getattr or isinstance on a method."""
    for path in (ROOT / "src" / "fedlocal").rglob("*.py"):
        if "methods" not in path.parts and "core" not in path.parts:
            assert not _looks(path), f"{path.name}: {_looks(path)}"


def _looks(path: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
            asked, kind = ast.unparse(node.args[0]).rpartition(".")[2], ast.unparse(node.args[-1])
            looks = node.func.id in ("isinstance", "getattr", "hasattr", "vars") and asked in ("method", "methods")
            allowed = ("LocalMethod", "type", "Mapping", "Sequence")  # whether it is a method, or several, may be asked
            if looks and kind not in allowed:
                found.append(ast.unparse(node))
    return found
