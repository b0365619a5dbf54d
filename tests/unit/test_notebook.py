"""What a REPL and a notebook show of data, problems, results, certificates and advice: one line, and escaped HTML."""

from collections.abc import Callable
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedlocal as fl
from conformance.federation import federation

RNG = np.random.default_rng(0)
DATA = fl.FederatedData.from_clients([(RNG.normal(size=(n, 5)), RNG.normal(size=n)) for n in (30, 80, 12)])
SHOWN = "FederatedData(3 clients, 122 examples, 12 to 80 each; arrays (122, 5), (122,))"
ARGUMENTS: dict[str, Any] = {"rounds": 3, "local_steps": 2, "progress": False}


class Tags(HTMLParser):
    """Collects the text of HTML, and checks that every tag is closed in its order."""

    def __init__(self, content: str):
        super().__init__()
        self.open: list[str] = []
        self.names: set[str] = set()
        self.text = ""
        self.feed(content)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.open.append(tag)
        self.names.add(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.names.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data + " "


def squares(x: Any, a: Any, b: Any) -> Any:
    return (a @ x - b) ** 2


@cache
def result() -> fl.Result:
    def evil(x: Any) -> dict[str, float]:
        return {"<script>alert(1)</script>": 1 / 3}

    return fl.simulate(federation(), fl.methods.FedAvg(0.01), metrics=[evil], **ARGUMENTS)


@cache
def sweep() -> fl.SweepResult:
    grid = {"client_step_size": [1e-3, 1e-2, 1e60]}
    with pytest.warns(fl.DivergenceWarning):
        return fl.sweep(federation(), fl.methods.FedAvg(0.01), grid, **ARGUMENTS)


@cache
def advice() -> Any:
    problem = fl.problems.quadratics([[[1.0, 0.0], [0.0, 0.01]]] * 8, [[1.0, 1.0]] * 8, noise_std=0.01)
    return fl.advise(problem, rounds=20, local_steps=16, progress=False)


PROBLEMS: dict[str, Callable[[], Any]] = {
    f"LeastSquares(data={SHOWN}, intercept=True)": lambda: fl.problems.LeastSquares(DATA),
    f"LeastSquares(data={SHOWN}, intercept=False, l2=0.5)": lambda: fl.problems.LeastSquares(DATA, False, 0.5),
    f"Problem(loss_fn=squares, data={SHOWN})": lambda: fl.Problem(squares, DATA),
    "Oracle(value=quadratic_value, noise=normal_draw, init_fn=_zeros, num_clients=2)": lambda: fl.problems.quadratics(
        np.ones((2, 1, 1)), np.zeros((2, 1))
    ),
    f"Augmented(base=LeastSquares(data={SHOWN}, intercept=True), strength=1.0, center=float64[5])": lambda: (
        fl.problems.augmented(fl.problems.LeastSquares(DATA), 1.0, np.zeros(5))
    ),
    "MLP(data=FederatedData(1 client, 4 examples, 4 each; arrays (4, 3), (4,)), hidden=(7,), num_classes=2)": lambda: (
        fl.problems.MLP(fl.FederatedData.from_clients([(np.ones((4, 3)), np.array([0, 1, 1, 0]))]), hidden=(7,))
    ),
}


@pytest.mark.parametrize("shown", PROBLEMS)
def test_a_problem_is_one_line(shown: str):
    problem = PROBLEMS[shown]()
    assert repr(problem) == shown
    assert type(problem).__name__ in Tags(problem._repr_html_()).text


def test_a_traced_problem_has_a_line_too():
    seen: list[str] = []
    problem = fl.problems.augmented(fl.problems.LeastSquares(DATA), 1.0, np.zeros(5))
    jax.jit(lambda p: seen.append(repr(p)) or jnp.zeros(()))(problem)
    assert seen[0].startswith("Augmented(base=LeastSquares(data=")
    assert "\n" not in seen[0]


def test_data_say_how_many_examples_clients_have():
    text = Tags(DATA._repr_html_()).text
    for words in ("clients 3", "examples 122", "12 to 80, median 30", "float64 (122, 5)"):
        assert words in text


def test_a_result_shows_its_curve_and_its_last_metrics_with_names_escaped():
    shown = result()._repr_html_()
    tags = Tags(shown)
    assert {"svg", "polyline", "table"} <= tags.names
    assert "script" not in tags.names
    for words in ("<script>alert(1)</script> 0.333333", "round 3", "FedAvg(client_step_size=0.01", "MatrixSensing"):
        assert words in tags.text


def test_a_loaded_result_shows_the_text_of_a_method_that_was_not_saved(tmp_path: Path):
    method = fl.methods.FedAvg(0.01, server_optimizer=optax.sgd(0.5))
    fl.simulate(federation(), method, **ARGUMENTS).save(tmp_path / "run.npz")
    text = Tags(fl.load(tmp_path / "run.npz")._repr_html_()).text
    assert "server_optimizer=GradientTransformation" in text
    assert "MatrixSensing" in text


def test_a_result_of_no_rounds_has_no_curve():
    alone = fl.simulate(federation(), fl.methods.FedAvg(0.01), **{**ARGUMENTS, "rounds": 0})
    assert "svg" not in Tags(alone._repr_html_()).names


def test_a_sweep_shows_its_best_cells():
    tags = Tags(sweep()._repr_html_())
    scores = sweep().score("objective", "last")
    assert "3 cells, 1 diverged" in tags.text
    assert tags.text.index(f"{scores[1]:.6g}") < tags.text.index(f"{scores[0]:.6g}")
    assert "1e+60" not in tags.text


def test_a_sweep_in_which_all_diverged_shows_none():
    with pytest.warns(fl.DivergenceWarning):
        lost = fl.sweep(federation(), fl.methods.FedAvg(0.01), {"client_step_size": [1e60]}, **ARGUMENTS)
    assert "table" not in Tags(lost._repr_html_()).names


def test_certificates_show_the_gap_or_why_there_is_none():
    x = {"weights": np.zeros(5), "intercept": np.zeros(())}
    certificate = fl.certificate(fl.problems.LeastSquares(DATA), fl.regularizers.L1(0.1), x)
    assert certificate.duality_gap is not None
    assert f"duality gap {certificate.duality_gap:.6g}" in Tags(certificate._repr_html_()).text
    oracle = fl.problems.quadratics(np.ones((2, 1, 1)), np.zeros((2, 1)))
    assert "not known: Oracle has no conjugate" in Tags(fl.certificate(oracle, None, np.ones(1))._repr_html_()).text


def test_advice_is_one_line_and_its_html_has_the_code():
    assert repr(advice()).startswith("Advice(FedAc-I, 16 local steps of ")
    tags = Tags(advice()._repr_html_())
    assert {"table", "pre"} <= tags.names
    for words in ("predicted_error", advice().confidence, advice().code()):
        assert words in tags.text
