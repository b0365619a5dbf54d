"""The discrepancy between clients inside a round, compared with the lemmas that bound it.

All runs take the step size 1/(4 L). The problems are quadratics with normal noise, the same for all clients or with optima
of their own, and logistic regression on a9a, whose clients draw single examples from one pool.
"""

import math
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from fedlocal import data
from fedlocal.core import LocalMethod
from fedlocal.data.federated_data import FederatedData
from fedlocal.experiments.runner.claims import Verdict
from fedlocal.experiments.runner.methods import composite_method, smooth_method
from fedlocal.experiments.runner.store import Store, StudyOutcome
from fedlocal.experiments.studies.discrepancy import lemmas
from fedlocal.experiments.studies.discrepancy.figures import draw_growth, draw_potentials
from fedlocal.experiments.studies.discrepancy.settings import DiscrepancySettings
from fedlocal.losses.logistic import LARGEST_THIRD
from fedlocal.problems import Logistic, quadratics
from fedlocal.regularizers import L1
from fedlocal.simulation.shadow import Shadow
from fedlocal.simulation.single_run import simulate
from fedlocal.solvers import centralized
from fedlocal.theory import Constants, Setting
from fedlocal.theory.bounds.fed_avg_stability import shadow_bound
from fedlocal.theory.constants.client_groups import fourth_moment

ERRORS = 4  # standard errors that count as chance


def run_study(settings: DiscrepancySettings, store: Store) -> StudyOutcome:
    """Run every method with every number of local steps and measure after every local step."""
    tasks = {"quadratic": quadratic(settings, 0.0), "unequal": quadratic(settings, settings.spread)}
    tasks["a9a"] = logistic(settings)
    groups = [
        {
            f"{p}-{name}-{k}-{seed}": partial(local_history, settings, tasks[p], name, k, seed)
            for name, k, seed in product(names, settings.local_steps, settings.seeds)
        }
        for p, names in lemmas.RUNS.items()
    ]
    frames = [frame.assign(problem=p) for p, frame in zip(lemmas.RUNS, store.frames(groups), strict=True)]
    history: Any = pd.concat(frames, ignore_index=True)
    cases = history.groupby(["problem", "method", "local_steps"], sort=False)
    table = pd.DataFrame([_row(settings, tasks[str(key[0])], part, *key) for key, part in cases])
    drawn = {"figure": draw_growth, "potentials": draw_potentials}
    figures = {file: partial(draw, settings, tasks, history) for file, draw in drawn.items()}
    return StudyOutcome(history, table, verdicts(settings, table), figures, _notes(tasks))


def quadratic(settings: DiscrepancySettings, spread: float) -> lemmas.LemmaProblem:
    """Make the problem 1/2 (x - c_m)' A (x - c_m) with eigenvalues of A from mu to 1, and |A (c_m - mean c)| up to `spread`."""
    d, clients, mu = settings.dimension, settings.clients, settings.strong_convexity
    curvature = np.geomspace(mu, 1.0, d)
    away = np.random.default_rng(0).standard_normal((clients, d))
    away -= away.mean(axis=0)
    away *= spread / np.linalg.norm(away, axis=1).max()  # A (c_m - mean c) = grad F(x) - grad F_m(x) at every x
    problem = quadratics(np.tile(np.diag(curvature), (clients, 1, 1)), away / curvature, settings.noise / math.sqrt(d))
    x0 = np.ones(d)
    optimum = float(np.mean(np.sum(away**2 / curvature, axis=1)) / 2)
    constants = Constants(1.0, settings.noise, math.sqrt(d), mu, heterogeneity=spread, gap=float(curvature.sum() / 2))
    return lemmas.LemmaProblem(problem, constants, x0, np.zeros(d), optimum)


def logistic(settings: DiscrepancySettings) -> lemmas.LemmaProblem:
    """Make the problem on the first examples of a9a. A gradient is at most as long as its example, which bounds the noise."""
    features, labels = data.a9a()
    features, labels = features[: settings.examples].toarray(), labels[: settings.examples]
    problem = Logistic(FederatedData.shared(features, labels, num_clients=settings.clients), l2=settings.l2)
    solution = centralized(problem, progress=False)
    lengths = np.linalg.norm(features, axis=1)
    top = float(np.linalg.eigvalsh(features.T @ features / len(features))[-1])
    variance = float(np.mean(lengths**2))
    constants = Constants(
        smoothness=top / 4 + settings.l2,
        noise=math.sqrt(variance),
        distance=float(np.linalg.norm(solution.x["weights"])),
        strong_convexity=settings.l2,
        fourth_moment=fourth_moment(lengths, variance) ** 0.25,
        third_order=LARGEST_THIRD * float(lengths.max()) * top,
        gap=math.log(2) - solution.objective,
    )
    start = {"weights": np.zeros(features.shape[1])}
    return lemmas.LemmaProblem(problem, constants, start, solution.x, solution.objective)


def method(name: str, task: lemmas.LemmaProblem, local_steps: int) -> LocalMethod:
    """Make a method of the study with the step size of its problem."""
    if name == "FedDualAvg":
        return composite_method(name, L1(task.constants.heterogeneity or 0.0), task.step_size)
    return smooth_method(name, task.step_size, task.constants.strong_convexity, local_steps)


def local_history(
    settings: DiscrepancySettings, task: lemmas.LemmaProblem, name: str, local_steps: int, seed: int
) -> pd.DataFrame:
    """Return one row per local step: what the lemma bounds, suboptimality and distance of the shadow iterate, the potential."""
    lemma = lemmas.LEMMAS[name]
    run: dict[str, Any] = {"rounds": settings.rounds, "eval_every": settings.rounds, "local_steps": local_steps}
    run |= {"shadow": Shadow(task.solution, task.optimum, task.constants.strong_convexity), "x0": task.x0, "seed": seed}
    result = simulate(task.problem, method(name, task, local_steps), batch_size=1, progress=False, **run)
    rows: Any = result.shadow
    measured = rows[["round", "step", "distance"]].assign(measured=rows[lemma.column], gap=rows["loss"] - task.optimum)
    measured["potential"] = rows[lemma.potential] if lemma.potential else np.nan
    return measured.assign(seed=seed, method=name, local_steps=local_steps)


def _row(
    settings: DiscrepancySettings, task: lemmas.LemmaProblem, part: Any, problem: str, name: str, k: int
) -> dict[str, Any]:
    """Compare a case with its lemmas. A ratio is (mean + four standard errors) / bound; the text's claim is a ratio up to 1."""
    lemma, curve = lemmas.LEMMAS[name], lemmas.growth(part)
    inside = lemmas.over_seeds(part[part["step"] < k], "measured")
    bound = lemma.bound(task, Setting(settings.clients, settings.rounds, k))
    exponent = np.polyfit(np.log(curve.index), np.log(curve), 1)[0] if len(curve) > 1 else np.nan
    return {
        "problem": problem,
        "method": name,
        "local_steps": k,
        "lemma": lemma.label,
        "largest": float(inside["mean"].max()),
        "bound": bound,
        "ratio": float((inside["mean"] + ERRORS * inside["error"]).max() / bound),
        "exponent": float(exponent),
        "convergence_ratio": _convergence(settings, task, part, name, k),
    }


def _convergence(settings: DiscrepancySettings, task: lemmas.LemmaProblem, part: Any, name: str, k: int) -> float:
    """Return the left side of the method's convergence lemma over its right side with the measured discrepancy."""
    if name == "FedDualAvg":  # its lemma is about the mean of all shadow points
        return math.nan
    if lemmas.LEMMAS[name].potential is not None:
        seen = lemmas.over_seeds(part[(part["step"] == 0) & (part["round"] > 0)], "potential")
        above = seen["mean"] + ERRORS * seen["error"]
        right = lemmas.potential_bound(settings, task, part, name, k)
        return float(np.max(above.to_numpy() / right))
    apart = float(part[part["step"] < k]["measured"].sum()) * settings.clients / len(settings.seeds)
    each: Any = part[part["step"] > 0].groupby("seed")["gap"].mean()
    last = part[part["round"] == settings.rounds].groupby("seed")["distance"].mean()
    left = each + last / (2 * task.step_size * (k * settings.rounds))
    setting = Setting(settings.clients, settings.rounds, k)
    right = shadow_bound(task.constants, setting, task.step_size, apart).value
    return float((left.mean() + ERRORS * left.std(ddof=1) / math.sqrt(len(left))) / right)


def _notes(tasks: dict[str, lemmas.LemmaProblem]) -> list[str]:
    return [
        f"{lemmas.TITLES[name]}: L = {c.smoothness:.3g}, mu = {c.strong_convexity:.3g}, sigma = {c.noise:.3g}, "
        f"zeta = {c.heterogeneity:.3g}, step size {task.step_size:.3g}"
        for name, task in tasks.items()
        for c in [task.constants]
    ]


def verdicts(settings: DiscrepancySettings, table: Any) -> list[Verdict]:
    """Judge bounds, convergence and growth by the rows of the table."""
    judged = []
    for name, lemma in lemmas.LEMMAS.items():
        rows = table[table["method"] == name]
        worst = rows["ratio"].max()
        claim = f"{name} stays below lemma {lemma.label} at every step{lemma.narrowed}"
        judged.append(Verdict.of(claim, f"at most {worst:.2g} of the bound, over {len(rows)} cases", bool(worst <= 1)))
    rows = table[table["convergence_ratio"].notna()]
    worst = rows["convergence_ratio"].max()
    claim = "shadow and potentials converge as the lemmas say, given the discrepancy that was measured"
    judged.append(Verdict.of(claim, f"at most {worst:.2g} of the right side", bool(worst <= 1)))
    longest = table[table["local_steps"] == max(settings.local_steps)].set_index(["problem", "method"])
    for problem, limit, word in (("quadratic", 1, "linearly"), ("unequal", 2, "quadratically"), ("a9a", 1, "linearly")):
        found = longest["exponent"][problem, "FedAvg"]
        claim = f"FedAvg's discrepancy grows at most {word} in k on {lemmas.TITLES[problem]}"
        judged.append(Verdict.of(claim, f"like k^{found:.2f}", bool(found <= limit + 0.05)))
    for problem in ("quadratic", "a9a"):
        vanilla, stable = longest.loc[problem, "FedAc-vanilla"], longest.loc[problem, "FedAc-I"]
        factor = vanilla["largest"] / stable["largest"]
        claim = f"the cross term of vanilla acceleration is larger and grows faster than FedAc-I's on {lemmas.TITLES[problem]}"
        grows = f"like k^{vanilla['exponent']:.2f} against k^{stable['exponent']:.2f}"
        measured = f"{factor:.3g} times the cross term, a product of two distances, {grows}"
        faster = vanilla["exponent"] > stable["exponent"]
        judged.append(Verdict.of(claim, measured, bool(factor > 1 and faster)))
    return judged
