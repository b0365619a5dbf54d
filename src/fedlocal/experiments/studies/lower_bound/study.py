"""The lower bound of FedAvg, measured: on the text's four-dimensional problem every step size has a large error.

Runs with finitely many clients are simulated. The limit of infinitely many is computed without sampling: from a common point
the average after K noisy steps is an expectation, which K applications of a transition kernel give.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from fedlocal.experiments.runner.claims import Verdict
from fedlocal.experiments.runner.pair_sweeps import sweep_history
from fedlocal.experiments.runner.store import Store, StudyOutcome
from fedlocal.experiments.studies.lower_bound.figures import draw_function, draw_rates, draw_step_sizes
from fedlocal.experiments.studies.lower_bound.settings import LowerBoundSettings
from fedlocal.methods import FedAvg, MinibatchSGD
from fedlocal.theory.bounds.bound import Constants, Setting
from fedlocal.theory.bounds.lower import lower_bound_curvature
from fedlocal.theory.constructions.lower_bound_instances import lower_bound_instance
from fedlocal.util.progress import ProgressBar

RUN = ["clients", "local_steps", "rounds", "heterogeneity"]  # columns that identify a run
PORTIONS = 10  # progress steps of the paths of one client, the longest part
FUNCTION_POINTS = 400  # an even number, so that 0, where there is no second derivative, is between two of them
ROUNDING = 1e-12
SPACING, REACH = 0.25, 9.0  # of the kernel's grid, in standard deviations of one step and of all


def verdicts(settings: LowerBoundSettings, best: Any, slopes: dict[str, float]) -> list[Verdict]:
    """Judge the lower bound, its exponents, and the rates of the baselines."""
    fed, limit = rows_of(best, "FedAvg"), rows_of(best, "FedAvg", limit=True)
    batch, alone = (rows_of(best, name, limit=True).set_index(RUN)["error"] for name in ("MB-SGD", "one client"))
    lead = limit.set_index(RUN)["error"] / np.minimum(batch, alone)
    behind = lead[lead < 1]
    by_rounds = lead.reset_index().pivot(index="local_steps", columns="rounds", values="error").sort_index(axis=1)
    widens = bool((by_rounds.diff(axis=1).iloc[:, 1:] > 0).all(axis=None) and by_rounds.iloc[:, -1].min() > 1)
    lowest = fed.loc[fed["constant"].idxmin()]
    late = limit.pivot(index="local_steps", columns="rounds", values="constant").sort_index(axis=1)
    kept = (late.iloc[:, -1] / late.iloc[:, -2]).min()
    return [
        Verdict.of(
            "with any step size FedAvg's error is at least a constant times mu B^2",
            f"the constant is between {lowest['constant']:.3g} (K = {lowest['local_steps']:g}, R = {lowest['rounds']:g}) and "
            f"{fed['constant'].max():.3g} in {len(fed)} settings; "
            f"from the last but one R to the last it changes by a factor of {kept:.3f} or more",
            bool(kept > 0.95),
        ),
        Verdict.of(
            "the error of FedAvg goes like R^(-2/3)",
            f"exponent {slopes['rounds']:.3f} in R at K = {settings.limit.fit_local_steps}",
            abs(slopes["rounds"] + 2 / 3) < 0.05,
        ),
        Verdict.of(
            "the error of FedAvg goes like K^(-1/3)",
            f"exponent {slopes['local_steps']:.3f} in K at R = {settings.limit.rounds[-1]}",
            abs(slopes["local_steps"] + 1 / 3) < 0.05,
        ),
        Verdict.of(
            "the better of minibatch SGD and SGD of one client has the better rate in R, with many clients",
            f"FedAvg's error over theirs {'grows' if widens else 'does not grow'} with R for every K, from {lead.min():.3g} to "
            f"{lead.max():.3g}; below 1 in {len(behind)} of {len(lead)} settings",
            widens,
        ),
    ]


def first_part(settings: LowerBoundSettings) -> pd.DataFrame:
    """Return F^(1), the piecewise quadratic part of the problem, and its first two derivatives on both sides of its optimum."""
    problem = lower_bound_instance(constants(settings), Setting(clients=1, rounds=1, local_steps=2))

    def value(x: jax.Array) -> jax.Array:
        return problem.value(jnp.zeros(4).at[0].set(x), 0)

    with jax.enable_x64(True):
        x = jnp.linspace(-settings.distance, settings.distance, FUNCTION_POINTS)
        derivatives = [value, jax.grad(value), jax.grad(jax.grad(value))]
        columns = [np.asarray(jax.vmap(each)(x)) for each in derivatives]
    return pd.DataFrame(dict(zip(("x", "value", "slope", "curvature"), (np.asarray(x), *columns), strict=True)))


def about_function(settings: LowerBoundSettings, function: Any) -> Verdict:
    """Judge what the text's figure of this function shows."""
    sides = {side: function[function["x"] * sign > 0] for side, sign in (("left", -1), ("right", 1))}
    curvatures = {side: (own["curvature"].min(), own["curvature"].max()) for side, own in sides.items()}
    scale = settings.smoothness * settings.distance
    through_0 = float((function["slope"] - function["curvature"] * function["x"]).abs().max()) / scale
    quadratic = float((function["value"] - function["slope"] * function["x"] / 2).abs().max()) / (
        scale * settings.distance
    )
    left, right = (curvatures[side][0] for side in ("left", "right"))
    constant = all(np.isclose(low, high, rtol=ROUNDING) for low, high in curvatures.values())
    holds = constant and max(through_0, quadratic) < ROUNDING and np.isclose(right, 2 * left, rtol=ROUNDING)
    return Verdict.of(
        "F^(1) is quadratic on either side of its optimum, its slope is continuous, its second derivative doubles there",
        f"F'' is {left:.4g} on the left and {right:.4g} on the right; the slope is F'' x and the value F'' x^2 / 2 up to "
        f"{max(through_0, quadratic):.1g} of L B and L B^2",
        bool(holds),
    )


def rows_of(best: Any, method: str, limit: bool = False) -> Any:
    """Return the rows of a method, or only those with infinitely many clients."""
    return best[(best["method"] == method) & (np.isinf(best["clients"]) if limit else True)]


def run_study(settings: LowerBoundSettings, store: Store) -> StudyOutcome:
    """Compare the errors of FedAvg, minibatch SGD and SGD of one client, each with its best step size, with mu B^2."""
    history = _measure(settings, store)
    best = tune(settings, history)
    slopes, function = _slopes(settings, best), first_part(settings)
    wide = best.pivot(index=RUN, columns="method", values="error")
    own = rows_of(best, "FedAvg").set_index(RUN)[["step_size", "constant"]]
    return StudyOutcome(
        history,
        wide.join(own.rename(columns={"step_size": "FedAvg_step_size"})).reset_index(),
        [*verdicts(settings, best, slopes), about_function(settings, function)],
        {
            "figure-function": lambda target: draw_function(settings, function, target),
            "figure-step-sizes": lambda target: draw_step_sizes(settings, history, best, target),
            "figure-rates": lambda target: draw_rates(settings, best, slopes, target),
        },
        notes=[
            "error: E F(x^(R,0)) - F* with the best step size of a grid with 0 and everything from 1e-6 to 10 over L",
            "constant: this error over mu B^2, the order of the lower bound; clients inf: the limit, only one client is sampled",
            f"exponents are fitted from K = {settings.limit.fit_local_steps} and R = {settings.limit.fit_rounds} on: below, "
            "the sum of sqrt(k) over K steps is not yet 2/3 K^(3/2), and the drift has not built up",
            f"clients inf, one client: the mean of {settings.limit.paths} paths, drawn with the first seed alone",
        ],
        extra={"function": function},
        numbers={"constant": float(rows_of(best, "FedAvg")["constant"].min()), **slopes},
    )


def _measure(settings: LowerBoundSettings, store: Store) -> pd.DataFrame:
    """Return simulated errors and those of the limit; stored parts are read."""
    cases = [(case, seed) for case in settings.cases for seed in settings.seeds]
    frames = []
    with ProgressBar("parts", len(cases) + PORTIONS + len(settings.limit.local_steps)) as bar:
        for case, seed in cases:
            name = f"M{case.clients}-K{case.local_steps}-R{case.rounds}-Z{case.heterogeneity:g}-{seed}"
            bar.advance_to(len(frames), name)
            frames.append(store.frame(name, lambda _, case=case, seed=seed: simulate_case(settings, case, seed)))

        def advance(portions: int) -> None:
            bar.advance_to(len(cases) + portions, "many clients, one of them alone")

        alone = store.frame("limit-one-client", lambda _: single_clients(settings, advance))
        for k in settings.limit.local_steps:
            bar.advance_to(len(frames) + PORTIONS, f"many clients, K = {k}")
            frames.append(store.frame(f"limit-K{k}", lambda _, k=k: limits(settings, k, alone)))
    return pd.concat(frames, ignore_index=True)


def step_sizes(settings: LowerBoundSettings) -> np.ndarray:
    """Return the grid of step sizes: from 1e-6 to 10 over L."""
    return np.geomspace(1e-6, 10.0, settings.num_step_sizes) / settings.smoothness


def constants(settings: LowerBoundSettings, heterogeneity: float = 0.0) -> Constants:
    """Return the constants with this zeta_*. If it is not 0, gradients differ without bound, and zeta is None."""
    zeta = None if heterogeneity else 0.0
    numbers = (settings.smoothness, settings.noise, settings.distance)
    return Constants(*numbers, heterogeneity=zeta, optimum_heterogeneity=heterogeneity)


def simulate_case(settings: LowerBoundSettings, case: Any, seed: int) -> pd.DataFrame:
    """Return the error after the last round for every method and step size; without heterogeneity also of one client alone."""
    setting = Setting(case.clients, case.rounds, case.local_steps)
    problem = lower_bound_instance(constants(settings, case.heterogeneity), setting)
    runs: list[tuple[str, Any, Any]] = [("FedAvg", problem, FedAvg), ("MB-SGD", problem, MinibatchSGD)]
    if case.heterogeneity == 0:
        alone = lower_bound_instance(constants(settings), replace(setting, clients=1))
        runs.append(("one client", alone, FedAvg))
    etas, frames = step_sizes(settings), []
    grid = {"step_size": etas.tolist()}
    run = {"rounds": case.rounds, "local_steps": case.local_steps, "eval_every": case.rounds, "seed": seed}
    for name, problem, method in runs:
        history = sweep_history(
            problem, lambda step_size, method=method: method(step_size), grid, batch_size=1, progress=False, **run
        )
        last = history[history["round"] == case.rounds].set_index("cell")["loss"]
        errors = last.reindex(range(len(etas))).fillna(np.inf).to_numpy()
        frames.append(pd.DataFrame({"method": name, "step_size": etas, "error": errors}))
        start = float(history["loss"].iloc[0])
        frames.append(pd.DataFrame({"method": [name], "step_size": [0.0], "error": [start]}))
    cell = case.model_dump() | {"clients": float(case.clients), "seed": seed}
    return pd.concat(frames, ignore_index=True).assign(**cell)


def limits(settings: LowerBoundSettings, k: int, alone: pd.DataFrame) -> pd.DataFrame:
    """Return the errors with infinitely many clients and K local steps, for the numbers of rounds of `settings.limit`."""
    etas, rounds = _with_zero(settings), settings.limit.rounds
    drifts, frames = average_drifts(settings, etas, k, rounds), []
    for r in rounds:
        mu = lower_bound_curvature(constants(settings), Setting(1, r, k))
        first = {"FedAvg": drifts[r], "MB-SGD": 0.0 * etas, "one client": alone[str(k * r)].to_numpy()}
        for name, noisy in first.items():
            errors = noisy + _quadratic_part(settings, mu, etas, r if name == "MB-SGD" else k * r)
            row = {"method": name, "step_size": etas, "error": errors, "local_steps": k, "rounds": r}
            frames.append(pd.DataFrame(row))
    return pd.concat(frames, ignore_index=True).assign(clients=np.inf, heterogeneity=0.0, seed=-1)


def single_clients(settings: LowerBoundSettings, advance: Callable[[int], None]) -> pd.DataFrame:
    """Return E F^(1) of SGD: a row for each step size, a column for each number of steps that `settings.limit` has."""
    steps = sorted({k * r for k in settings.limit.local_steps for r in settings.limit.rounds})
    found = single_client_paths(settings, _with_zero(settings), steps, advance)
    return pd.DataFrame({str(t): x for t, x in found.items()})


def average_drifts(
    settings: LowerBoundSettings, etas: np.ndarray, local_steps: int, rounds: Sequence[int]
) -> dict[int, Any]:
    r"""Return F^(1) = L/24 psi(x_1) of FedAvg with infinitely many clients after some numbers of rounds, for every step size.

    With x_1 = eta sigma y a step is y <- y - a psi'(y) + N(0, 1), a = eta L / 24, and a round takes y to E[y after K steps].
    """
    out = {r: np.zeros(len(etas)) for r in rounds}
    reach = REACH * local_steps**0.5
    y = np.arange(-np.ceil(reach / SPACING), np.ceil(reach / SPACING) + 1) * SPACING
    for i, eta in enumerate(etas):
        moved = y - eta * settings.smoothness / 24 * np.where(y >= 0, 2, 1) * y
        kernel = np.exp(-((y[None, :] - moved[:, None]) ** 2) / 2)
        kernel /= kernel.sum(axis=1, keepdims=True)
        mean = y
        for _ in range(local_steps):
            mean = kernel @ mean
        place = 0.0
        for r in range(1, max(rounds) + 1):
            place = float(np.interp(place, y, mean))
            if r in out:
                out[r][i] = settings.smoothness / 24 * _psi(eta * settings.noise * place)
    return out


def single_client_paths(
    settings: LowerBoundSettings, etas: np.ndarray, steps: Sequence[int], advance: Callable[[int], None]
) -> dict[int, np.ndarray]:
    """Return E F^(1) of SGD after some numbers of steps, by step size: a mean over paths that share their noise."""
    random, x, out = np.random.default_rng(settings.seeds[0]), np.zeros((len(etas), settings.limit.paths)), {}
    pull, push = etas[:, None] * settings.smoothness / 24, etas[:, None] * settings.noise
    last = max(steps)
    for t in range(1, last + 1):
        x -= pull * (1.5 * x + 0.5 * np.abs(x)) + push * random.standard_normal(settings.limit.paths)
        if t in steps:
            out[t] = settings.smoothness / 24 * _psi(x).mean(axis=1)
        if t * PORTIONS // last > (t - 1) * PORTIONS // last:
            advance(t * PORTIONS // last)
    return out


def tune(settings: LowerBoundSettings, history: Any) -> pd.DataFrame:
    """Return the best step size of each method in each setting, by the mean over seeds, and its error over mu B^2."""
    means: Any = history.groupby(["method", *RUN, "step_size"], sort=False)["error"].mean().reset_index()
    best = means.loc[means.groupby(["method", *RUN], sort=False)["error"].idxmin()].reset_index(drop=True)
    moduli = [
        lower_bound_curvature(constants(settings, row.heterogeneity), Setting(1, int(row.rounds), int(row.local_steps)))
        for row in best.itertuples()
    ]
    order = np.array(moduli) * settings.distance**2
    return best.assign(order=order, constant=best["error"] / order)


def _with_zero(settings: LowerBoundSettings) -> np.ndarray:
    return np.concatenate([[0.0], step_sizes(settings)])


def _quadratic_part(settings: LowerBoundSettings, mu: float, etas: np.ndarray, steps: int) -> np.ndarray:
    """Return F^(2) + F^(3) after gradient steps from B/2."""
    with np.errstate(over="ignore"):
        parts = [h / 2 * ((1 - etas * h) ** steps * settings.distance / 2) ** 2 for h in (mu, settings.smoothness)]
    return parts[0] + parts[1]


def _psi(x: Any) -> Any:
    return np.where(x >= 0, 1.0, 0.5) * x**2


def _slopes(settings: LowerBoundSettings, best: pd.DataFrame) -> dict[str, float]:
    """Return the exponents of FedAvg's best error in R at the first K of the fit, and in K at the last R, in the limit."""
    grid, own = settings.limit, rows_of(best, "FedAvg", limit=True)
    own = own[(own["local_steps"] >= grid.fit_local_steps) & (own["rounds"] >= grid.fit_rounds)]
    first, last = own[own["local_steps"] == grid.fit_local_steps], own[own["rounds"] == grid.rounds[-1]]
    lines = {"rounds": first, "local_steps": last}
    return {name: float(np.polyfit(np.log(part[name]), np.log(part["error"]), 1)[0]) for name, part in lines.items()}
