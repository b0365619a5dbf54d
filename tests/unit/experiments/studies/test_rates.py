"""The study of rates: its errors by other means, exponents that were planted, and a small run from end to end."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from fedlocal import experiments
from fedlocal.experiments.runner.configuration import load
from fedlocal.experiments.studies.rates import claims, study
from fedlocal.experiments.studies.rates.cases import CASES, SHARP, RateCase
from fedlocal.experiments.studies.rates.errors import (
    NoisyCoordinate,
    cells,
    finite_errors,
    limit_errors,
    quadratic_errors,
)
from fedlocal.experiments.studies.rates.settings import RatesSettings
from fedlocal.problems.oracle import piecewise_quadratic
from fedlocal.theory.bias.quadrature import Gaussian, exact_law
from fedlocal.theory.bounds.bound import Setting
from fedlocal.theory.constructions.lower_bound_instances import piecewise_instance

SMALL = [
    "local_steps=[4, 8]",
    "rounds=[32, 64]",
    "pairs=8",
    "num_strengths=3",
    "num_step_sizes=6",
    "clients=[1, 4]",
    "speedup.steps=16",
    "speedup.clients=[2, 4, 8]",
    "speedup.draws=32",
]
TEXT = {  # table tab:conv:rate: exponents of K and R
    ("second-order, mu > 0", "FedAvg", "overhead"): (-1, -2),
    ("second-order, mu > 0", "FedAc-I", "overhead"): (-1, -3),
    ("second-order, mu > 0", "FedAc-II", "overhead"): (-1, -4),
    ("third-order, mu > 0", "FedAvg", "overhead"): (-2, -4),
    ("third-order, mu > 0", "FedAc-II", "overhead"): (-2, -8),
    ("second-order, mu = 0", "FedAvg", "overhead"): (-1 / 3, -2 / 3),
    ("second-order, mu = 0", "FedAc-I", "overhead"): (-1 / 3, -1),
    ("second-order, mu = 0", "FedAc-II", "overhead"): (-1 / 4, -1),
    ("third-order, mu = 0", "FedAvg", "overhead"): (-1 / 3, -2 / 3),
    ("third-order, mu = 0", "FedAc-II", "overhead"): (-1 / 3, -4 / 3),
    ("second-order, mu > 0", "FedAvg", "statistical"): (-1, -1),
    ("second-order, mu > 0", "FedAc-I", "statistical"): (-1, -1),
    ("second-order, mu = 0", "FedAvg", "statistical"): (-1 / 2, -1 / 2),
    ("second-order, mu = 0", "FedAc-I", "statistical"): (-1 / 2, -1 / 2),
}


def settings(*changes: str) -> RatesSettings:
    loaded = load("rates", overrides=changes)
    assert isinstance(loaded, RatesSettings)
    return loaded


def measured(case: RateCase) -> pd.DataFrame:
    return pd.concat([study.measure(settings(), case, k) for k in settings().local_steps])


def test_every_term_of_the_table_is_a_case():
    assert {case[:3] for case in CASES} == set(TEXT)
    for case in CASES:
        powers = case.text().powers
        assert (float(powers["K"]), float(powers["R"])) == TEXT[case[:3]]
    parts = [case.part for case in CASES]
    assert len(set(parts)) == len(parts)
    assert not set("".join(parts)) & set('<>:"/\\|?* ')  # what some file systems do not allow


def test_the_limit_is_that_of_the_exact_law():
    """Rounds of FedAvg with infinitely many clients: the expectation of K steps, from quadrature, three times."""
    problem, eta, k = piecewise_instance(1.0, 1.0), 0.02, 8
    x, exact = 0.0, []
    for _ in range(3):
        law = exact_law(problem, x, eta, [k], Gaussian(1.0), kinks=[0.0])
        x = float(law.bias[0] + law.descent[0])
        exact.append(x**2 / 4)  # L/2 psi on the left
    own = cells("FedAvg", np.array([eta]), np.array([1.0]), k)
    found = limit_errors(NoisyCoordinate(problem, 1.0), own, k, [1, 2, 3], pairs=20_000, seed=0)[:, 0]
    np.testing.assert_allclose(found, exact, rtol=0.05)  # the bias itself to about 1/sqrt(20,000)


@pytest.mark.parametrize("method", ["FedAvg", "FedAc-I", "FedAc-II"])
def test_walks_on_a_quadratic_agree_with_its_closed_form(method: str):
    """Independent clients have 1/M of what one adds; pairs have nothing at all."""
    problem, own = (
        piecewise_quadratic(1.0, right=0.5, left=0.5),
        cells(method, np.array([0.1, 0.3]), np.full(2, 0.2), 4),
    )
    _, added = quadratic_errors(own, np.array([1.0]), 0.0, steps=12, noise=1.0)
    found = finite_errors(NoisyCoordinate(problem, 1.0), own, Setting(2, 3, 4), repeats=20_000, seed=1)
    np.testing.assert_allclose(found, added[:, 0] / 2, rtol=4 * np.sqrt(2 / 20_000))  # 4 standard errors of a square
    assert limit_errors(NoisyCoordinate(problem, 1.0), own, 4, [3], pairs=50, seed=1).max() < 1e-28


def test_the_closed_form_is_the_box_of_the_text():
    """FedAc-II on h/2 x^2 + lambda/2 (x - x0)^2 by for-loops: the mean, and the response to a push at every step."""
    own = cells("FedAc-II", np.array([0.1]), np.array([0.3]), 4, augment=True)
    alpha, beta, eta, gamma, strength = (float(a[0]) for a in own)
    h, x0, steps = 0.7, 2.0, 7

    def run(pushed: int | None, start: float) -> float:
        x = ag = start
        for t in range(steps):
            md = x / beta + (1 - 1 / beta) * ag
            g = h * md + strength * (md - start) + (t == pushed)
            x, ag = (1 - 1 / alpha) * x + md / alpha - gamma * g, md - eta * g
        return ag

    mean, added = quadratic_errors(own, np.array([h]), x0, steps, noise=0.5)
    assert mean[0, 0] == pytest.approx(h / 2 * run(None, x0) ** 2, rel=1e-12)
    assert added[0, 0] == pytest.approx(h / 2 * 0.25 * sum(run(t, 0.0) ** 2 for t in range(steps)), rel=1e-12)


def planted(shift: float = 0.0) -> pd.DataFrame:
    """Errors with the exponents of the text, for mu > 0 of 1/(mu gamma K), where mu gamma K R is a logarithm."""
    rows = []
    for case in CASES:
        of_k, of_r = TEXT[case[:3]]
        for m in [1, 8] if case.term == "statistical" else [np.inf]:
            for k in (4, 8, 16):
                for r in (64, 128, 256):
                    reach = np.log(m * k * r if np.isfinite(m) else k * r**2) if case.strong else np.nan
                    scale = r / reach if case.strong else r
                    error = k ** (of_k + shift) * scale**of_r * (m**of_k if np.isfinite(m) else 1)
                    setting = {"case": case.name, "clients": m, "local_steps": k, "rounds": r}
                    rows.append(setting | {"error": error, "reach": reach})
    return pd.DataFrame(rows)


def test_planted_exponents_are_found_and_judged():
    table: Any = claims.exponents(planted())
    np.testing.assert_allclose(table["measured"], table["text"], atol=1e-9)
    strong = table["of"] == "1/(mu gamma K)"
    assert table["assumption"][strong].str.endswith("mu > 0").all()
    assert not table["assumption"][table["of"] == "R"].str.endswith("mu > 0").any()
    assert (table["raw"] > table["text"] + 0.05)[strong].all()
    np.testing.assert_allclose((table["text"] * (1 - table["reach"]))[strong], table["raw"][strong], atol=1e-9)
    assert {v.outcome for v in claims.about_exponents(table)} == {"holds"}
    slower = claims.about_exponents(claims.exponents(planted(shift=0.2)))
    assert {v.outcome for v in slower} == {"does not hold"}
    faster = [v.outcome for v in claims.about_exponents(claims.exponents(planted(shift=-0.2)))]
    wanted = ["does not hold" if case.claim == SHARP else "holds" for case in CASES]
    assert faster == wanted


def test_verdicts_say_what_was_measured_in_the_place_of_rounds():
    for case, verdict in zip(CASES, claims.about_exponents(claims.exponents(planted())), strict=True):
        assert ("1/(mu gamma K) in the place of R" in verdict.claim) == case.strong
        assert ("; raw: " in verdict.measured and "mu gamma K R grows like R^" in verdict.measured) == case.strong


def test_methods_are_compared_by_rounds_themselves():
    """A step size so small that FedAc's error falls with R like FedAvg's, whatever its exponent of 1/(mu gamma K)."""
    table: Any = claims.exponents(planted())
    assert {v.outcome for v in claims.about_methods(table)} == {"holds"}
    slow = table.assign(raw=np.where(table["term"] == "overhead", -1.0, table["raw"]))
    assert {v.outcome for v in claims.about_methods(slow)} == {"does not hold"}


def test_a_best_step_size_at_the_edge_is_marked():
    etas = np.array([1.0, 2.0, 4.0, 1.0])
    assert [study._at_edge(etas, i) for i in range(4)] == [True, False, True, True]
    case = next(c for c in CASES if c.term == "statistical")
    inside: Any = study.measure(settings(), case, 8)
    assert not inside["at_edge"].any()


def test_rounds_needed_is_where_the_error_is_twice_the_smallest():
    """An error of max(1, M/R) is 2 at R = M/2."""
    rounds = 2 ** np.arange(10)
    frames = [
        pd.DataFrame({"method": name, "clients": m, "rounds": rounds, "error": np.maximum(1.0, m**power / rounds)})
        for name, power in (("FedAvg", 1.0), ("FedAc-I", 1 / 3))
        for m in (8, 64, 512)
    ]
    needed = claims.rounds_needed(pd.concat(frames))
    assert needed["rounds"].tolist() == pytest.approx([4.0, 32.0, 256.0, 1.0, 2.0, 4.0])
    verdict = claims.about_speedup(needed)
    assert verdict.outcome == "holds"
    assert "at most twice that of the same method" in verdict.claim
    assert "M^(1.00 +- 0.00)" in verdict.measured
    exchanged = needed.assign(method=needed["method"].to_numpy()[::-1])
    assert claims.about_speedup(exchanged).outcome == "does not hold"


@pytest.mark.parametrize("name", ["second-order, mu > 0", "second-order, mu = 0"])
def test_statistical_terms_are_those_of_the_text(name: str):
    case = next(c for c in CASES if c[:3] == (name, "FedAvg", "statistical"))
    found = measured(case)
    found = found.assign(rounds=found["rounds"] / found["reach"]) if case.strong else found
    slopes, _ = claims.slopes(found, ["clients", "local_steps", "rounds"])
    np.testing.assert_allclose(slopes, np.full(3, -1.0 if case.strong else -0.5), atol=0.05)


def test_fed_avg_is_as_slow_as_its_lower_bound():
    """On the text's problem, with infinitely many clients and the best step size: K^(-1/3) R^(-2/3)."""
    case = next(c for c in CASES if c.instance == "lower bound")
    slopes, _ = claims.slopes(measured(case), ["local_steps", "rounds"])
    np.testing.assert_allclose(slopes, [-1 / 3, -2 / 3], atol=0.1)


@pytest.mark.thorough
def test_a_small_run_from_end_to_end(tmp_path: Path):
    directory = experiments.run("rates", overrides=SMALL, root=tmp_path, console=Console(file=io.StringIO()))
    table = pd.read_parquet(directory / "table.parquet")
    assert len(table) == 4 * 3 + 10 * 2
    assert len(list((directory / "parts").iterdir())) == 14 * 2 + 2 * 3  # cases and K, methods and M
    for figure in ("figure-overhead", "figure-statistical", "figure-speedup"):
        assert (directory / f"{figure}.png").stat().st_size > 10_000
    assert len(json.loads((directory / "report.json").read_text())["verdicts"]) == 14 + 4 + 1
