"""The certificate of a deployed run: the KKT residual is that of all rows together, the gap is never below the truth."""

from functools import cache
from itertools import product
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, MetricRecord, RecordDict

import fedlocal as fl
from fedlocal.core.types import WeightsName
from fedlocal.flower import InProcess, Policy, Strategy, client_app
from fedlocal.flower.checks.assessment import Assessment
from fedlocal.flower.coordinator.evaluation import EvaluationResult, measure, relative_gap
from fedlocal.flower.messages import records
from fedlocal.flower.messages.records import ARRAYS, CONFIG, METRICS, WEIGHT
from fedlocal.flower.site.certificate_terms import KINDS, gradient_at, l2_of
from fedlocal.util import serialization

SIZES, WIDTH = (20, 40, 20), 3
NAMES = ("north", "south", "west")
PROBLEMS = {"logistic": fl.problems.Logistic, "squares": fl.problems.LeastSquares}


def files() -> list[tuple[np.ndarray, np.ndarray]]:
    """Columns of very different sizes, some of whose values are missing, and sites that differ."""
    rng = np.random.default_rng(0)
    found = []
    for shift, n in enumerate(SIZES):
        X = rng.standard_normal((n, WIDTH)) * [1, 40, 0.2] + [shift, 150, 0]
        ill = (X[:, 0] - shift + X[:, 2] + rng.logistic(size=n) > 0).astype(float)
        X[rng.random(X.shape) < 0.1] = np.nan
        found.append((X, ill))
    return found


FILES = files()


def scaled() -> list[np.ndarray]:
    """Columns with mean 0 and variance 1 over the values of all sites; 0 where a value is missing."""
    rows = np.concatenate([X for X, _ in FILES])
    mean, scale = np.nanmean(rows, axis=0), np.nanstd(rows, axis=0)
    return [np.nan_to_num((X - mean) / scale) for X, _ in FILES]


SCALED = scaled()
USUAL = {  # both losses and weights, each penalty, with and without intercept
    ("logistic", 0.05, True, "examples"),
    ("squares", 0.02, False, "uniform"),
    ("logistic", 0.0, False, "uniform"),
}
TASKS = [
    pytest.param(
        *(kind, l1, l2, intercept, weights),
        id=f"{kind}-l1={l1}-l2={l2}-{'with' if intercept else 'without'}-intercept-{weights}",
        marks=() if (kind, l1, intercept, weights) in USUAL else pytest.mark.thorough,
    )
    for kind, (l1, l2), intercept, weights in product(
        PROBLEMS, [(0.05, 0.0), (0.02, 0.1), (0.0, 0.3)], [True, False], ["uniform", "examples"]
    )
]


@cache
def task_of(kind: str, l1: float, l2: float, intercept: bool, weights: WeightsName) -> "Task":
    return Task(kind, l1, l2, intercept, weights)


class Task:
    """The sites' problems, the same as one problem, and its optimum."""

    def __init__(self, kind: str, l1: float, l2: float, intercept: bool, weights: WeightsName):
        def make(rows: Any) -> Any:
            return PROBLEMS[kind](fl.FederatedData.from_clients(rows), l2=l2, intercept=intercept)

        rows = [(X, y) for X, (_, y) in zip(SCALED, FILES, strict=True)]
        self.psi = fl.regularizers.L1(l1) if l1 else fl.regularizers.Zero()
        self.whole, self.l1, self.l2 = make(rows), l1, l2
        self.weights: WeightsName = weights
        with jax.enable_x64(True):
            self.sites = {name: make([part]) for name, part in zip(NAMES, rows, strict=True)}
        self.best = fl.solvers.centralized(self.whole, self.psi, weights=weights, tolerance=1e-12, progress=False).x
        self.optimum = self.certified(self.best).objective
        shares = np.array(SIZES) if weights == "examples" else np.ones(3)
        self.second_moments = np.average([np.mean(X**2, axis=0) for X in SCALED], axis=0, weights=shares)

    def certified(self, x: Any) -> fl.Certificate:
        """With all rows at hand."""
        return fl.certificate(self.whole, self.psi, x, weights=self.weights)

    def measured(self, x: Any, second_moments: Any = True) -> EvaluationResult:
        """From what the sites say."""
        replies = {name: self.reply(name, x) for name in NAMES}
        numbers = [records.only_metrics(reply.content) for reply in replies.values()]
        shares = [part[WEIGHT] for part in numbers]
        means = {name: float(np.average([part[name] for part in numbers], weights=shares)) for name in numbers[0]}
        known = self.second_moments if second_moments is True else second_moments
        said = {name: Assessment.read(reply, x) for name, reply in replies.items()}
        return measure(self.psi, x, means, said, known)

    def reply(self, name: str, x: Any) -> Any:
        problem, rows = self.sites[name], SIZES[NAMES.index(name)]
        numbers = {
            WEIGHT: float(rows) if self.weights == "examples" else 1.0,
            "loss": self.loss(name, x),
            **l2_of(problem),
        }
        kind = ConfigRecord({"kind": KINDS.get(type(problem), "other")})
        arrays = records.to_record(serialization.to_arrays(gradient_at(problem, x)))
        return SimpleNamespace(content=RecordDict({ARRAYS: arrays, METRICS: MetricRecord(numbers), CONFIG: kind}))

    def loss(self, name: str, x: Any) -> float:
        m = NAMES.index(name)
        scores, y, w = SCALED[m] @ x["weights"] + x.get("intercept", 0.0), FILES[m][1], np.asarray(x["weights"])
        squares = isinstance(self.whole, fl.problems.LeastSquares)
        losses = (scores - y) ** 2 if squares else np.logaddexp(0, -(2 * y - 1) * scores)
        return float(np.mean(losses) + self.l2 / 2 * w @ w)

    def objective(self, x: Any) -> float:
        shares = np.array(SIZES) if self.weights == "examples" else np.ones(3)
        losses = np.average([self.loss(name, x) for name in NAMES], weights=shares)
        return float(losses + self.l1 * np.abs(x["weights"]).sum())

    def random(self, rng: np.random.Generator, away: float) -> Any:
        """A point around the optimum."""
        return jax.tree.map(lambda a: np.asarray(a + away * rng.standard_normal(np.shape(a))), self.best)


@pytest.mark.parametrize(("kind", "l1", "l2", "intercept", "weights"), TASKS)
def test_the_residual_is_exact_and_the_gap_bounds_what_is_left(
    kind: str, l1: float, l2: float, intercept: bool, weights: WeightsName
):
    task, rng = task_of(kind, l1, l2, intercept, weights), np.random.default_rng(1)
    for away in (5.0, 1.0, 1.0, 0.1, 1e-2, 1e-4, 1e-6, 0.0):
        x = task.random(rng, away)
        found, expected = task.measured(x), task.certified(x)
        assert found.no_gap_because is None
        assert found.numbers["objective"] == pytest.approx(expected.objective, rel=1e-12)
        assert found.numbers["kkt_residual"] == pytest.approx(expected.kkt_residual, abs=1e-10)
        left = expected.objective - task.optimum
        assert found.numbers["duality_gap"] >= left - 1e-12
    assert relative_gap(found.numbers) < 1e-9  # at the optimum itself


@pytest.mark.parametrize(("kind", "l1", "l2", "intercept", "weights"), TASKS)
def test_near_the_optimum_the_gap_is_small(kind: str, l1: float, l2: float, intercept: bool, weights: WeightsName):
    """Of the order of the distance to the optimum, which is the root of what is left; of its square, where nothing is shrunk.

    Slopes that do not balance, or whose gradient is beyond l1, are shrunk by what is wrong with them, to first order; the bounds
    of this make the gap larger by the loss over l1, about ten here.
    """
    task, rng = task_of(kind, l1, l2, intercept, weights), np.random.default_rng(2)
    for share in (1e-5, 1e-9, 1e-11):
        found = [relative_gap(task.measured(near(task, rng, share)).numbers) for _ in range(2)]
        assert share / 2 < max(found) < (100 * share if l2 and not intercept else 50 * share**0.5)


def near(task: Task, rng: np.random.Generator, share: float) -> Any:
    """A point whose objective is this share above the optimum; what is zero there is zero here."""
    weights = task.best["weights"] != 0
    where = {
        name: rng.standard_normal(np.shape(a)) * (weights if name == "weights" else 1) for name, a in task.best.items()
    }
    low, high, x = 0.0, 1.0, task.best
    for _ in range(60):
        middle = (low + high) / 2
        x = {name: np.asarray(a) + middle * where[name] for name, a in task.best.items()}
        low, high = (low, middle) if task.objective(x) > (1 + share) * task.optimum else (middle, high)
    return x


@pytest.mark.parametrize(
    ("l1", "l2", "intercept", "known", "why"),
    [
        (0.0, 0.0, True, True, "without a penalty there is no dual point; give l1 or l2"),
        (0.1, 0.0, True, False, "columns are not standardised"),
    ],
)
def test_where_there_is_no_gap_it_says_why(l1: float, l2: float, intercept: bool, known: bool, why: str):
    task = task_of("logistic", l1, l2, intercept, "uniform")
    found = task.measured(task.best, second_moments=known or None)
    assert why in str(found.no_gap_because)
    assert "duality_gap" not in found.numbers
    assert found.numbers["kkt_residual"] < 1e-9


def test_regularisers_without_a_formula_are_named():
    task: Any = Task("logistic", 0.1, 0.0, True, "uniform")
    task.psi = fl.regularizers.L2Ball(1.0)
    assert "no formula for L2Ball between sites; for L1 there is" in str(task.measured(task.best).no_gap_because)


def app_of(kind: str, l2: float, policy: Policy) -> Any:
    """Sites that find their rows by their names."""

    def features(context: Context) -> tuple[np.ndarray, np.ndarray]:
        return FILES[NAMES.index(str(context.node_config["site"]))]

    def problem_for_node(context: Context, scaling: fl.data.Scaling | None = None) -> Any:
        X, y = features(context)
        scaling = scaling or fl.data.Moments.of(X).scaling()
        return PROBLEMS[kind](fl.FederatedData.from_clients([(scaling.apply(X), y)]), l2=l2, intercept=True)

    return client_app(
        problem_for_node, moments_for_node=lambda context: fl.data.Moments.of(features(context)[0]), policy=policy
    )


def run_of(kind: str, l1: float, l2: float, weights: WeightsName, policy: Policy, **more: Any) -> Strategy:
    method = fl.methods.AcceleratedProximalGradient(1.0, fl.regularizers.L1(l1))
    with jax.enable_x64(True):
        bounds = fl.flower.LossBounds(1.0 if kind == "logistic" else None, 0.25 if kind == "logistic" else 2.0, l2)
        run = Strategy(
            method,
            sites=NAMES,
            standardize=True,
            choose_step_size=True,
            weights=weights,
            local_steps=1,
            loss_bounds=bounds,
            **more,
        )
        run.start(InProcess(app_of(kind, l2, policy), {name: {} for name in NAMES}))
    return run


@pytest.mark.parametrize(
    ("kind", "l1", "l2", "weights"),
    [
        pytest.param("logistic", 0.05, 0.0, "examples", marks=pytest.mark.thorough),
        ("logistic", 0.02, 0.1, "uniform"),
        pytest.param("squares", 0.05, 0.0, "uniform", marks=pytest.mark.thorough),
    ],
)
def test_a_deployed_run_knows_how_far_it_is(kind: str, l1: float, l2: float, weights: WeightsName):
    """Its certificate bounds what is left in every round, and it stops when tol is reached, which is true."""
    run = run_of(kind, l1, l2, weights, Policy.open(), rounds=400, eval_every=1, tol=1e-7)
    task = task_of(kind, l1, l2, True, weights)
    for row in run.history:
        assert row["duality_gap"] >= row["objective"] - task.optimum - 1e-12
    last, expected = run.history[-1], task.certified(run.solution())
    assert last["kkt_residual"] == pytest.approx(expected.kkt_residual, abs=1e-10)
    assert last["objective"] == pytest.approx(expected.objective, rel=1e-12)
    assert run.converged
    assert run.done < 400
    assert expected.objective - task.optimum <= 1e-7 * expected.objective
    assert all(row["duality_gap"] > 1e-7 * row["objective"] for row in run.history[:-2])  # two, as one may be false
    assert {event.what for event in run.events} == {"connected"}


def test_a_site_that_keeps_its_gradient_back_is_why_there_is_no_certificate():
    run = run_of("logistic", 0.05, 0.0, "examples", Policy(certificate=False), rounds=3, eval_every=1, tol=1e-3)
    assert run.no_gap_because == "a site's policy keeps its gradient back"
    assert not run.converged
    assert run.done == 3
