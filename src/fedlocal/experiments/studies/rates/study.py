"""The table of convergence rates, measured: errors with the best step size, and their exponents in M, K and R.

Overheads are measured in the limit of infinitely many clients, on F(x) = F_1(x_1) + h/2 x_2^2: the first coordinate is
noisy and starts at its optimum, so that all it has is the bias of local steps; the second one starts at a distance and
asks for large steps. The statistical terms are those of noisy quadratics, exactly. For mu > 0 exponents are fitted with
1/(mu gamma K) in the place of R, from which it differs by a logarithm, and with R itself beside it.
"""

from functools import partial

import numpy as np
import pandas as pd
from scipy.interpolate import make_interp_spline

from fedlocal.experiments.runner.store import Store, StudyOutcome
from fedlocal.experiments.studies.rates import claims, errors, figures
from fedlocal.experiments.studies.rates.cases import CASES, METHODS, RateCase
from fedlocal.experiments.studies.rates.claims import CLOSE, SPEEDUP, exponents, rounds_needed
from fedlocal.experiments.studies.rates.settings import RatesSettings
from fedlocal.problems.oracle import piecewise_quadratic
from fedlocal.theory.bounds.bound import Constants, Setting
from fedlocal.theory.bounds.lower import lower_bound_curvature
from fedlocal.theory.constructions.lower_bound_instances import log_cosh_instance, piecewise_instance

FINE = 150  # step sizes of the grid in which the best one is searched
HUGE = 1e6  # errors from here on are divergence


def run_study(settings: RatesSettings, store: Store) -> StudyOutcome:
    """Measure the tuned errors of every case, their exponents, and the rounds that linear speed-up takes."""
    ks = settings.local_steps
    groups = [{f"{case.part}-K{k}": partial(measure, settings, case, k) for k in ks} for case in CASES]
    cuts = [(method, m) for method in METHODS for m in settings.speedup.clients]
    last = {f"speedup-{method}-M{m}": partial(speedups, settings, method, m) for method, m in cuts}
    *frames, speedup = store.frames([*groups, last])
    cases = [frame.assign(case=case.name) for case, frame in zip(CASES, frames, strict=True)]
    history = pd.concat(cases, ignore_index=True)
    table, needed = exponents(history), rounds_needed(speedup)
    return StudyOutcome(
        history=history,
        table=table,
        verdicts=[*claims.about_exponents(table), *claims.about_methods(table), claims.about_speedup(needed)],
        figures={
            "figure-overhead": lambda target: figures.draw_overhead(settings, history, table, target),
            "figure-statistical": lambda target: figures.draw_statistical(settings, history, target),
            "figure-speedup": lambda target: figures.draw_speedup(settings, speedup, needed, target),
        },
        notes=_notes(settings, history, speedup),
        extra={"speedup": speedup, "needed": needed},
    )


def _notes(settings: RatesSettings, history: pd.DataFrame, speedup: pd.DataFrame) -> list[str]:
    edges, few = history["at_edge"].to_numpy(), speedup["at_edge"].to_numpy()
    return [
        "measured: exponents of the error with the best step size gamma; for mu > 0 with 1/(mu gamma K) in the place of R, "
        "which is R but for a logarithm where gamma is the theorem's; R itself is in the raw exponents alone",
        "raw: exponents of M, K and R themselves; reach: those of mu gamma K R, which would be 0 without the logarithm",
        f"sharp: every exponent within {CLOSE} of the text's; at least as fast: none larger by more than {CLOSE} and two "
        "standard errors of the fit",
        f"at the edge of their grid (at_edge) are {edges.sum()} of {len(edges)} best step sizes, and of those of the study "
        f"of linear speed-up, whose smallest has mu gamma T = 2, {few.sum()} of {len(few)}",
        "no problem is known here on which FedAc-I is as slow as its bound for mu > 0; on the kink it is as fast as FedAc-II",
        "third-order, mu = 0: on log cosh FedAvg is faster than the text's term",
        "analysis, not measured: bias and decay balance on log cosh at K^(-2/5) R^(-4/5) for FedAvg and, but for logarithms, "
        "K^(-2/5) R^(-8/5) for FedAc-II; on the kink at K^(-1/3) R^(-4/3) for FedAc",
        "not measured: the term L^(1/3) sigma^(2/3) B^(4/3) / (M^(1/3) K^(1/3) R) of FedAc, which vanishes with many clients",
        f"{SPEEDUP}. On a kink with curvatures L and mu. The text's orders leave out logarithms and L/mu; measured exponents "
        "are compared with each other, not with 1 and 1/3",
        f"all noise is drawn with the first seed, {settings.seeds[0]}",
    ]


def measure(settings: RatesSettings, case: RateCase, k: int) -> pd.DataFrame:
    """Return one row for every M and R at this K: the error with the best step size, and for mu > 0 its reach mu gamma K R."""
    rows = []
    coarse, fine = _grid(settings, case, k, settings.num_step_sizes), _grid(settings, case, k, FINE)
    noisy = _overheads(settings, case, coarse, k) if case.term == "overhead" else None
    for i, r in enumerate(settings.rounds):
        if noisy is None:
            mean, added = errors.quadratic_errors(fine, _curvatures(settings, case), 1.0, k * r, settings.noise)
            tried = {m: (mean + added / m).max(axis=1) for m in settings.clients}
        else:
            tried = {np.inf: between(coarse.eta, noisy[i], fine.eta) + _started(settings, case, fine, k, r)}
        for m, values in tried.items():
            best = int(np.argmin(values))
            row = {"clients": m, "local_steps": k, "rounds": r, "step_size": fine.eta[best], "error": values[best]}
            row["reach"] = settings.strong_convexity * fine.gamma[best] * k * r if case.strong else np.nan
            rows.append(row | {"at_edge": _at_edge(fine.eta, best)})
    return pd.DataFrame(rows)


def between(etas: np.ndarray, errors: np.ndarray, fine: np.ndarray) -> np.ndarray:
    """Interpolate errors to a finer grid of step sizes, by splines in logarithms; cells are (step sizes, strengths), flattened.

    >>> between(np.geomspace(1, 16, 5), np.geomspace(1, 256, 5), np.array([3.0, 5.0])).round(9).tolist()
    [9.0, 25.0]
    """
    coarse, wanted = np.unique(etas), np.unique(fine)
    values = errors.reshape(len(coarse), -1)
    out = np.full((len(wanted), values.shape[1]), np.inf)
    for i, column in enumerate(values.T):
        known = np.isfinite(column) & (column > 0) & (column < HUGE)
        if known.sum() > 1:
            spline = make_interp_spline(np.log(coarse[known]), np.log(column[known]), k=min(3, int(known.sum()) - 1))
            inside = (wanted >= coarse[known][0] * (1 - 1e-12)) & (wanted <= coarse[known][-1] * (1 + 1e-12))
            out[inside, i] = np.exp(spline(np.log(wanted[inside])))
    return out.ravel()


def speedups(settings: RatesSettings, method: str, m: int) -> pd.DataFrame:
    """Return the error with the best step size for T steps of M clients, divided into rounds in all ways."""
    s, rows = settings.speedup, []
    kink = piecewise_quadratic(settings.noise, right=settings.smoothness / 2, left=s.strong_convexity / 2)
    problem = errors.NoisyCoordinate(kink, settings.noise)
    curvatures = np.geomspace(s.strong_convexity, settings.smoothness, 8)
    for k in 2 ** np.arange(int(np.log2(s.steps)) + 1):
        reach = np.geomspace(2.0, min(24.0, s.steps / 2), s.num_step_sizes) / s.steps  # mu gamma
        gamma = reach / s.strong_convexity
        etas = gamma if method == "FedAvg" else np.minimum(s.strong_convexity * k * gamma**2, gamma)
        own = errors.cells(method, etas, np.full(len(etas), s.strong_convexity), int(k))
        r = s.steps // int(k)
        noisy = errors.finite_errors(problem, own, Setting(m, r, int(k)), s.draws // m, settings.seeds[0])
        values = noisy + errors.quadratic_errors(own, curvatures, 1.0, s.steps)[0].max(axis=1)
        values = np.where(np.isfinite(values), values, np.inf)
        best = int(np.argmin(values))
        row = {"method": method, "clients": m, "local_steps": int(k), "rounds": r, "error": float(values[best])}
        rows.append(row | {"at_edge": _at_edge(etas, best)})
    return pd.DataFrame(rows)


def _at_edge(etas: np.ndarray, best: int) -> bool:
    return bool(etas[best] in (etas.min(), etas.max()))


def _grid(settings: RatesSettings, case: RateCase, k: int, count: int) -> errors.FedAcCells:
    """Return the cells of a case: mu gamma K R from 1 to 40 for mu > 0, else step sizes, of FedAc with all l2 strengths."""
    mu, first, last = settings.strong_convexity, settings.rounds[0], settings.rounds[-1]
    if case.strong:
        gamma = np.geomspace(1 / last, min(40 / first, 0.9), count) / (mu * k)
        etas = gamma if case.method == "FedAvg" else mu * k * gamma**2
        return errors.cells(case.method, etas, np.full(count, mu), k)
    low, high = (1e-5, 0.5) if case.term == "statistical" else (0.002 / k, min(2.0, 2 / k))
    etas = np.geomspace(low, high, count) / _noisy_smoothness(settings, case)
    if case.method == "FedAvg":
        return errors.cells(case.method, etas, etas, k)
    per_round = np.geomspace(0.7 / last, min(10 / first, 0.7), settings.num_strengths)  # gamma lambda K
    etas, per_round = (a.ravel() for a in np.meshgrid(etas, per_round, indexing="ij"))
    return errors.cells(case.method, etas, per_round**2 / (etas * k), k, augment=True)


def _overheads(settings: RatesSettings, case: RateCase, own: errors.FedAcCells, k: int) -> np.ndarray:
    """Return (rounds, cells): F_1 in the limit of infinitely many clients."""
    noise = settings.noise
    if case.instance == "log cosh":
        problem = log_cosh_instance(settings.smoothness, settings.third_order, noise)
    else:
        problem = piecewise_instance(_noisy_smoothness(settings, case), noise)
    pairs = max(1, settings.pairs // (settings.num_strengths if np.any(own.augmented > 0) else 1))
    coordinate = errors.NoisyCoordinate(problem, noise)
    return errors.limit_errors(coordinate, own, k, settings.rounds, pairs, settings.seeds[0])


def _started(settings: RatesSettings, case: RateCase, own: errors.FedAcCells, k: int, r: int) -> np.ndarray:
    """Return (cells,): the error of the noiseless coordinate with the worst curvature, or of the text's two coordinates."""
    if case.instance == "lower bound":
        smooth, distance = settings.lower_bound_smoothness, settings.distance
        mu = lower_bound_curvature(Constants(smooth, settings.noise, distance), Setting(1, r, k))
        return errors.quadratic_errors(own, np.array([mu, smooth]), distance / 2, k * r)[0].sum(axis=1)
    distance = 1.0 if case.strong else settings.distance
    return errors.quadratic_errors(own, _curvatures(settings, case), distance, k * r)[0].max(axis=1)


def _curvatures(settings: RatesSettings, case: RateCase) -> np.ndarray:
    low = settings.strong_convexity if case.strong else 1e-4 * settings.smoothness
    return np.geomspace(low, settings.smoothness, 8 if case.strong else 32)


def _noisy_smoothness(settings: RatesSettings, case: RateCase) -> float:
    return settings.lower_bound_smoothness / 12 if case.instance == "lower bound" else settings.smoothness
