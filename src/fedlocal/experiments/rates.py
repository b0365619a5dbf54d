"""The table of convergence rates, measured: errors with the best step size, and their exponents in M, K and R.

Overheads are measured without noise of averaging, in the limit of infinitely many clients, on F(x) = F_1(x_1) + h/2 x_2^2: the
first coordinate is noisy and starts at its optimum, so that all it has is the bias of local steps; the second one starts at a
distance and asks for large steps. The statistical terms are those of noisy quadratics, exactly.

For mu > 0 the text's step size gamma is 1/(mu K R) times a logarithm. Exponents are fitted with 1/(mu gamma K) in the place of
R, which then is R but for this logarithm, and with R itself beside it.
"""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.interpolate import make_interp_spline

from fedlocal.experiments import rates_figures as figures
from fedlocal.experiments.claims import Verdict
from fedlocal.experiments.outcome import Outcome
from fedlocal.experiments.rates_errors import Cells, cells, finite_errors, limit_errors, quadratic_errors
from fedlocal.experiments.rates_figures import INVERSE
from fedlocal.experiments.settings.rates import Rates
from fedlocal.experiments.store import Store
from fedlocal.problems.oracle import piecewise_quadratic
from fedlocal.progress import ProgressBar
from fedlocal.theory.bound import Constants, Setting
from fedlocal.theory.instances import log_cosh_instance, piecewise_instance
from fedlocal.theory.lower_bounds import lower_bound_curvature
from fedlocal.theory.rates import CONVERGENCE, Term

CLOSE = 0.1  # exponents
FINE = 150  # step sizes of the grid on which the best one is looked for
HUGE = 1e6  # errors from here on are divergence
SHARP, UPPER = "sharp", "upper bound"
LETTERS = {"clients": "M", "local_steps": "K", "rounds": "R"}
METHODS = ("FedAvg", "FedAc-I")  # of the study of linear speed-up
SPEEDUP = "linear speed-up: an error at most twice that of the same method and M with communication in every step"


class Case(NamedTuple):
    """A term of a row of the table, and where it is measured."""

    assumption: str
    method: str
    term: str  # "statistical" or "overhead"
    instance: str
    claim: str = UPPER  # what the text says about the term

    @property
    def strong(self) -> bool:
        return self.assumption.endswith("mu > 0")

    @property
    def name(self) -> str:
        return "-".join((self.assumption, self.method, self.term, self.instance)).replace(" ", "")

    @property
    def part(self) -> str:
        """The name, of characters that every file system has."""
        return self.name.replace("mu>0", "strongly-convex").replace("mu=0", "convex")

    def text(self) -> Term:
        """The term of the text; of a minimum, that of the method."""
        rate = next(
            r for r in CONVERGENCE if r.assumption == self.assumption and r.method == self.method.partition("-")[0]
        )
        if self.term == "statistical":
            return next(one[0] for one in rate.terms if one[0].name == "statistical")
        found = [one for one in rate.overhead() if one[0].name != "acceleration"][-1]
        return found[-1] if self.method == "FedAc-II" else found[0]


CASES = (
    Case("second-order, mu > 0", "FedAvg", "statistical", "quadratic"),
    Case("second-order, mu > 0", "FedAc-I", "statistical", "quadratic"),
    Case("second-order, mu = 0", "FedAvg", "statistical", "quadratic", SHARP),
    Case("second-order, mu = 0", "FedAc-I", "statistical", "quadratic"),
    Case("second-order, mu > 0", "FedAvg", "overhead", "kink"),
    Case("second-order, mu > 0", "FedAc-I", "overhead", "kink"),
    Case("second-order, mu > 0", "FedAc-II", "overhead", "kink"),
    Case("third-order, mu > 0", "FedAvg", "overhead", "log cosh"),
    Case("third-order, mu > 0", "FedAc-II", "overhead", "log cosh"),
    Case("second-order, mu = 0", "FedAvg", "overhead", "lower bound", SHARP),
    Case("second-order, mu = 0", "FedAc-I", "overhead", "kink"),
    Case("second-order, mu = 0", "FedAc-II", "overhead", "kink"),
    Case("third-order, mu = 0", "FedAvg", "overhead", "log cosh"),
    Case("third-order, mu = 0", "FedAc-II", "overhead", "log cosh"),
)


def study(settings: Rates, store: Store, elsewhere: Any) -> Outcome:
    """Tuned errors of every case, exponents, and the rounds that linear speed-up takes."""
    history, speedup = _made(settings, store)
    table, needed = exponents(history), rounds_needed(speedup)
    edges, few = history["at_edge"].to_numpy(), speedup["at_edge"].to_numpy()
    return Outcome(
        history=history,
        table=table,
        verdicts=[*_about_exponents(table), *_about_methods(table), _about_speedup(needed)],
        figures={
            "figure-overhead": lambda target: figures.draw_overhead(settings, history, table, target),
            "figure-statistical": lambda target: figures.draw_statistical(settings, history, target),
            "figure-speedup": lambda target: figures.draw_speedup(settings, speedup, needed, target),
        },
        notes=[
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
        ],
        extra={"speedup": speedup, "needed": needed},
    )


def _made(settings: Rates, store: Store) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The errors of all cases, and those of the study of linear speed-up; parts that are in the store are read."""
    cases = [(case, k) for case in CASES for k in settings.local_steps]
    cuts = [(method, m) for method in METHODS for m in settings.speedup.clients]
    frames, speedup = [], []
    with ProgressBar("parts", len(cases) + len(cuts)) as bar:
        for case, k in cases:
            bar.advance_to(len(frames), f"{case.assumption}, {case.method}, {case.term}, K = {k}")
            made = store.frame(f"{case.part}-K{k}", lambda _, case=case, k=k: measure(settings, case, k))
            frames.append(made.assign(case=case.name))
        for method, m in cuts:
            bar.advance_to(len(frames) + len(speedup), f"linear speed-up, {method}, M = {m}")
            name = f"speedup-{method}-M{m}"
            speedup.append(store.frame(name, lambda _, method=method, m=m: speedups(settings, method, m)))
    return pd.concat(frames, ignore_index=True), pd.concat(speedup, ignore_index=True)


def measure(settings: Rates, case: Case, k: int) -> pd.DataFrame:
    """One row for every M and R at this K: the error with the best step size, and for mu > 0 its reach mu gamma K R."""
    rows = []
    walked, fine = _grid(settings, case, k, settings.num_step_sizes), _grid(settings, case, k, FINE)
    noisy = _overheads(settings, case, walked, k) if case.term == "overhead" else None
    for i, r in enumerate(settings.rounds):
        if noisy is None:
            mean, added = quadratic_errors(fine, _curvatures(settings, case), 1.0, k * r, settings.noise)
            errors = {m: (mean + added / m).max(axis=1) for m in settings.clients}
        else:
            errors = {np.inf: between(walked.eta, noisy[i], fine.eta) + _started(settings, case, fine, k, r)}
        for m, values in errors.items():
            best = int(np.argmin(values))
            row = {"clients": m, "local_steps": k, "rounds": r, "step_size": fine.eta[best], "error": values[best]}
            row["reach"] = settings.strong_convexity * fine.gamma[best] * k * r if case.strong else np.nan
            rows.append(row | {"at_edge": _at_edge(fine.eta, best)})
    return pd.DataFrame(rows)


def between(etas: np.ndarray, errors: np.ndarray, fine: np.ndarray) -> np.ndarray:
    """Errors at step sizes of a finer grid, by splines in logarithms; cells come as (step sizes, strengths), flattened.

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


def exponents(history: pd.DataFrame) -> pd.DataFrame:
    """Least squares of log error on log M, log K and log R, in every case; for mu > 0 also with 1/(mu gamma K) for R."""
    rows = []
    for case in CASES:
        own: Any = history[history["case"] == case.name]
        term = case.text()
        axes = [name for name in LETTERS if own[name].nunique() > 1]
        raw, _ = slopes(own, axes)
        reach = slopes(own, axes, "reach")[0] if case.strong else np.full(len(axes), np.nan)
        regressed = own.assign(rounds=own["rounds"] / own["reach"]) if case.strong else own
        for i, (name, slope, error) in enumerate(zip(axes, *slopes(regressed, axes), strict=True)):
            rows.append(
                {
                    "assumption": case.assumption,
                    "method": case.method,
                    "term": case.term,
                    "instance": case.instance,
                    "of": INVERSE if case.strong and name == "rounds" else LETTERS[name],
                    "text": float(term.powers.get(LETTERS[name], 0)),
                    "measured": slope,
                    "standard_error": error,
                    "raw": raw[i],
                    "reach": reach[i],
                    "claim": case.claim,
                }
            )
    return pd.DataFrame(rows)


def slopes(frame: Any, axes: list[str], column: str = "error") -> tuple[np.ndarray, np.ndarray]:
    """Exponents of a column and their standard errors.

    >>> frame = pd.DataFrame({"rounds": [1.0, 2.0, 4.0], "error": [1.0, 0.25, 0.0625]})
    >>> slopes(frame, ["rounds"])[0].round(9).tolist()
    [-2.0]
    """
    x = np.column_stack([np.ones(len(frame)), *(np.log(frame[name]) for name in axes)])
    y = np.log(frame[column].to_numpy())
    found = np.linalg.lstsq(x, y, rcond=None)[0]
    variance = np.sum((y - x @ found) ** 2) / (len(y) - x.shape[1])
    return found[1:], np.sqrt(variance * np.diag(np.linalg.inv(x.T @ x)))[1:]


def speedups(settings: Rates, method: str, m: int) -> pd.DataFrame:
    """The error with the best step size for T steps, cut into rounds in all ways, with M clients."""
    s, rows = settings.speedup, []
    problem = piecewise_quadratic(settings.noise, right=settings.smoothness / 2, left=s.strong_convexity / 2)
    curvatures = np.geomspace(s.strong_convexity, settings.smoothness, 8)
    for k in 2 ** np.arange(int(np.log2(s.steps)) + 1):
        reach = np.geomspace(2.0, min(24.0, s.steps / 2), s.num_step_sizes) / s.steps  # mu gamma
        gamma = reach / s.strong_convexity
        etas = gamma if method == "FedAvg" else np.minimum(s.strong_convexity * k * gamma**2, gamma)
        own = cells(method, etas, np.full(len(etas), s.strong_convexity), int(k))
        r = s.steps // int(k)
        noisy = finite_errors(problem, own, settings.noise, int(k), r, m, s.draws // m, settings.seeds[0])
        errors = noisy + quadratic_errors(own, curvatures, 1.0, s.steps)[0].max(axis=1)
        errors = np.where(np.isfinite(errors), errors, np.inf)
        best = int(np.argmin(errors))
        row = {"method": method, "clients": m, "local_steps": int(k), "rounds": r, "error": float(errors[best])}
        rows.append(row | {"at_edge": _at_edge(etas, best)})
    return pd.DataFrame(rows)


def rounds_needed(speedup: pd.DataFrame) -> pd.DataFrame:
    """From which R on the error is at most twice that of communication in every step, interpolated between two of them."""
    rows = []
    for (method, m), own in speedup.groupby(["method", "clients"], sort=False):  # pyright: ignore
        own = own.sort_values("rounds")
        ratio = np.log(own["error"].to_numpy() / own["error"].iloc[-1] / 2)
        above, r = np.flatnonzero(ratio > 0), np.log(own["rounds"].to_numpy())
        if len(above) == 0:
            needed = 1.0
        else:
            i = above[-1]
            needed = float(np.exp(r[i] + (r[i + 1] - r[i]) * ratio[i] / (ratio[i] - ratio[i + 1])))
        rows.append({"method": method, "clients": m, "rounds": needed})
    return pd.DataFrame(rows)


def _at_edge(etas: np.ndarray, best: int) -> bool:
    return bool(etas[best] in (etas.min(), etas.max()))


def _grid(settings: Rates, case: Case, k: int, count: int) -> Cells:
    """The cells of a case. For mu > 0 by mu gamma K R, from 1 to 40; for mu = 0 step sizes, for FedAc with all l2 strengths."""
    mu, first, last = settings.strong_convexity, settings.rounds[0], settings.rounds[-1]
    if case.strong:
        gamma = np.geomspace(1 / last, min(40 / first, 0.9), count) / (mu * k)
        etas = gamma if case.method == "FedAvg" else mu * k * gamma**2
        return cells(case.method, etas, np.full(count, mu), k)
    low, high = (1e-5, 0.5) if case.term == "statistical" else (0.002 / k, min(2.0, 2 / k))
    etas = np.geomspace(low, high, count) / _noisy_smoothness(settings, case)
    if case.method == "FedAvg":
        return cells(case.method, etas, etas, k)
    per_round = np.geomspace(0.7 / last, min(10 / first, 0.7), settings.num_strengths)  # gamma lambda K
    etas, per_round = (a.ravel() for a in np.meshgrid(etas, per_round, indexing="ij"))
    return cells(case.method, etas, per_round**2 / (etas * k), k, augment=True)


def _overheads(settings: Rates, case: Case, own: Cells, k: int) -> np.ndarray:
    """(rounds, cells): F_1 in the limit."""
    L, noise = settings.smoothness, settings.noise
    if case.instance == "kink":
        problem = piecewise_instance(L, noise)
    elif case.instance == "lower bound":
        problem = piecewise_instance(settings.lower_bound_smoothness / 12, noise)
    else:
        problem = log_cosh_instance(L, settings.third_order, noise)
    pairs = max(1, settings.pairs // (settings.num_strengths if np.any(own.augmented > 0) else 1))
    return limit_errors(problem, own, noise, k, settings.rounds, pairs, settings.seeds[0])


def _started(settings: Rates, case: Case, own: Cells, k: int, r: int) -> np.ndarray:
    """(cells,): the error of the noiseless coordinate with the worst curvature; on the text's problem that of its two."""
    if case.instance == "lower bound":
        smooth, distance = settings.lower_bound_smoothness, settings.distance
        mu = lower_bound_curvature(Constants(smooth, settings.noise, distance), Setting(1, r, k))
        return quadratic_errors(own, np.array([mu, smooth]), distance / 2, k * r)[0].sum(axis=1)
    distance = 1.0 if case.strong else settings.distance
    return quadratic_errors(own, _curvatures(settings, case), distance, k * r)[0].max(axis=1)


def _curvatures(settings: Rates, case: Case) -> np.ndarray:
    low = settings.strong_convexity if case.strong else 1e-4 * settings.smoothness
    return np.geomspace(low, settings.smoothness, 8 if case.strong else 32)


def _noisy_smoothness(settings: Rates, case: Case) -> float:
    return settings.lower_bound_smoothness / 12 if case.instance == "lower bound" else settings.smoothness


def _about_exponents(table: pd.DataFrame) -> list[Verdict]:
    """Where the text says that its term is sharp, exponents agree; elsewhere errors fall as fast, but for two standard errors."""
    verdicts = []
    for case in CASES:
        own: Any = table[(table[["assumption", "method", "term", "instance"]] == list(case[:4])).all(axis=1)]
        off = own["measured"] - own["text"]
        said = ", ".join(
            f"{row.measured:.2f} +- {row.standard_error:.2f} of {row.of} (text {row.text:.3g})"
            for row in own.itertuples()
        )
        if case.strong:
            plain = ", ".join(f"{row.raw:.2f} of {'R' if row.of == INVERSE else row.of}" for row in own.itertuples())
            said += f"; raw: {plain}; mu gamma K R grows like R^{own['reach'].iloc[-1]:.2f}"
        if case.claim == SHARP:
            claim, holds = f"the rate {case.text()} is sharp", bool(np.abs(off).max() <= CLOSE)
        else:
            claim, holds = f"at least as fast as {case.text()}", bool((off - 2 * own["standard_error"]).max() <= CLOSE)
        claim += f", with {INVERSE} in the place of R" if case.strong else ""
        verdicts.append(Verdict.of(f"{case.assumption}, {case.method}, {case.term}: {claim}", said, holds))
    return verdicts


def _about_methods(table: pd.DataFrame) -> list[Verdict]:
    verdicts = []
    over: Any = table[(table["term"] == "overhead") & table["of"].isin(["R", INVERSE])]
    for assumption, own in over.groupby("assumption", sort=False):
        found = own.set_index("method")["raw"]
        said = ", ".join(f"{name} R^{value:.2f}" for name, value in found.items())
        faster = found.drop("FedAvg").max() < found["FedAvg"] - CLOSE
        verdicts.append(
            Verdict.of(f"{assumption}: the overhead of FedAc falls faster with R than FedAvg's", said, bool(faster))
        )
    return verdicts


def _about_speedup(needed: pd.DataFrame) -> Verdict:
    rounds = needed.pivot(index="clients", columns="method", values="rounds")
    fits = {name: slopes(needed[needed["method"] == name], ["clients"], "rounds") for name in METHODS}
    found = {name: slope[0] for name, (slope, _) in fits.items()}
    said = "; ".join(
        f"{name}: {', '.join(f'{r:.3g}' for r in rounds[name])} rounds, like M^({found[name]:.2f} +- {error[0]:.2f})"
        for name, (_, error) in fits.items()
    )
    fewer = bool((rounds["FedAc-I"] < rounds["FedAvg"]).all() and found["FedAc-I"] < found["FedAvg"])
    clients = ", ".join(map(str, rounds.index))
    claim = f"FedAc needs fewer rounds than FedAvg, and a smaller power of M (orders of the text: M^(1/3), M), for {SPEEDUP}"
    return Verdict.of(claim, f"M = {clients}: {said}", fewer)
