"""The table of convergence rates, measured: errors with the best step size, and their exponents in M, K and R.

Overheads are measured without noise of averaging, in the limit of infinitely many clients, on F(x) = F_1(x_1) + h/2 x_2^2: the
first coordinate is noisy and starts at its optimum, so that all it has is the bias of local steps; the second one starts at a
distance and asks for large steps. The statistical terms are those of noisy quadratics, exactly.
"""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.interpolate import make_interp_spline

from fedlocal.experiments import rates_figures as figures
from fedlocal.experiments.claims import Verdict
from fedlocal.experiments.outcome import Outcome
from fedlocal.experiments.rates_errors import Cells, cells, finite_errors, limit_errors, quadratic_errors
from fedlocal.experiments.schema import Rates
from fedlocal.experiments.store import Store
from fedlocal.problems.oracle import piecewise_quadratic
from fedlocal.theory.bound import Constants, Setting
from fedlocal.theory.instances import log_cosh_instance, piecewise_instance
from fedlocal.theory.lower_bounds import lower_bound_curvature
from fedlocal.theory.rates import CONVERGENCE, Term

CLOSE = 0.1  # exponents
FINE = 150  # step sizes of the grid on which the best one is looked for
HUGE = 1e6  # errors from here on are divergence
SHARP, UPPER = "sharp", "upper bound"
LETTERS = {"clients": "M", "local_steps": "K", "rounds": "R"}


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
    frames = [store.frame(case.name, lambda _, case=case: measure(settings, case)) for case in CASES]
    history = pd.concat([f.assign(case=c.name) for f, c in zip(frames, CASES, strict=True)], ignore_index=True)
    table = exponents(history)
    speedup = store.frame("speedup", lambda _: speedups(settings))
    needed = rounds_needed(speedup)
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
            "measured: with the best step size; for mu > 0 the exponent of R over mu gamma K R, the logarithm that the text's "
            "theorems have beside every 1/R; with_logarithm: of R itself",
            f"sharp: every exponent within {CLOSE} of the text's; at least as fast: none larger by more than {CLOSE} and two "
            "standard errors of the fit",
            "no problem is known here on which FedAc-I is as slow as its bound for mu > 0; on the kink it is as fast as FedAc-II",
            "third-order, mu = 0: the text's terms are not attained; on log cosh bias and decay balance at K^(-2/5) R^(-4/5) for "
            "FedAvg and, but for logarithms, K^(-2/5) R^(-8/5) for FedAc-II; on the kink at K^(-1/3) R^(-4/3) for FedAc",
            "not measured: the term L^(1/3) sigma^(2/3) B^(4/3) / (M^(1/3) K^(1/3) R) of FedAc, which vanishes with many clients",
            "rounds for linear speed-up: on a kink with curvatures L and mu, and many clients; with L and L/2 and at most 32 of "
            "them hardly any communication is needed. The text's orders leave out logarithms and L/mu; measured exponents are "
            "compared with each other, not with 1 and 1/3",
        ],
        extra={"speedup": speedup, "needed": needed},
    )


def measure(settings: Rates, case: Case) -> pd.DataFrame:
    """One row for every M, K, R: the error with the best step size, and its mu gamma K R, which is a logarithm."""
    rows = []
    for k in settings.local_steps:
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
                logarithm = settings.strong_convexity * fine.gamma[best] * k * r if case.strong else np.nan
                row = {"clients": m, "local_steps": k, "rounds": r, "step_size": fine.eta[best]}
                rows.append(row | {"error": values[best], "logarithm": logarithm})
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
    """Least squares of log error on log M, log K and log R, in every case; for mu > 0 with R over the logarithm."""
    rows = []
    for case in CASES:
        own: Any = history[history["case"] == case.name]
        term = case.text()
        axes = [name for name in LETTERS if own[name].nunique() > 1]
        plain, _ = slopes(own, axes)
        without = own.assign(rounds=own["rounds"] / own["logarithm"]) if case.strong else own
        for name, slope, error, raw in zip(axes, *slopes(without, axes), plain, strict=True):
            rows.append(
                {
                    "assumption": case.assumption,
                    "method": case.method,
                    "term": case.term,
                    "instance": case.instance,
                    "of": LETTERS[name],
                    "text": float(term.powers.get(LETTERS[name], 0)),
                    "measured": slope,
                    "standard_error": error,
                    "with_logarithm": raw,
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


def speedups(settings: Rates) -> pd.DataFrame:
    """The error with the best step size for T steps, cut into rounds in all ways, with M clients."""
    s, rows = settings.speedup, []
    problem = piecewise_quadratic(settings.noise, right=settings.smoothness / 2, left=s.strong_convexity / 2)
    curvatures = np.geomspace(s.strong_convexity, settings.smoothness, 8)
    for method in ("FedAvg", "FedAc-I"):
        for m in s.clients:
            for k in 2 ** np.arange(int(np.log2(s.steps)) + 1):
                reach = np.geomspace(2.0, min(24.0, s.steps / 2), s.num_step_sizes) / s.steps  # mu gamma
                gamma = reach / s.strong_convexity
                etas = gamma if method == "FedAvg" else np.minimum(s.strong_convexity * k * gamma**2, gamma)
                own = cells(method, etas, np.full(len(etas), s.strong_convexity), int(k))
                r = s.steps // int(k)
                noisy = finite_errors(problem, own, settings.noise, int(k), r, m, s.draws // m, settings.seeds[0])
                errors = noisy + quadratic_errors(own, curvatures, 1.0, s.steps)[0].max(axis=1)
                error = float(np.min(np.where(np.isfinite(errors), errors, np.inf)))
                rows.append({"method": method, "clients": m, "local_steps": int(k), "rounds": r, "error": error})
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
        if case.claim == SHARP:
            claim, holds = f"the rate {case.text()} is sharp", bool(np.abs(off).max() <= CLOSE)
        else:
            claim, holds = f"at least as fast as {case.text()}", bool((off - 2 * own["standard_error"]).max() <= CLOSE)
        verdicts.append(Verdict.of(f"{case.assumption}, {case.method}, {case.term}: {claim}", said, holds))
    return verdicts


def _about_methods(table: pd.DataFrame) -> list[Verdict]:
    verdicts = []
    over: Any = table[(table["term"] == "overhead") & (table["of"] == "R")]
    for assumption, own in over.groupby("assumption", sort=False):
        found = own.set_index("method")["measured"]
        said = ", ".join(f"{name} R^{value:.2f}" for name, value in found.items())
        faster = found.drop("FedAvg").max() < found["FedAvg"] - CLOSE
        verdicts.append(
            Verdict.of(f"{assumption}: the overhead of FedAc falls faster with R than FedAvg's", said, bool(faster))
        )
    return verdicts


def _about_speedup(needed: pd.DataFrame) -> Verdict:
    rounds = needed.pivot(index="clients", columns="method", values="rounds")
    found = {name: slopes(needed[needed["method"] == name], ["clients"], "rounds")[0][0] for name in rounds}
    said = "; ".join(
        f"{name}: {', '.join(f'{r:.3g}' for r in rounds[name])} rounds, like M^{found[name]:.2f}"
        for name in ("FedAvg", "FedAc-I")
    )
    fewer = bool((rounds["FedAc-I"] < rounds["FedAvg"]).all() and found["FedAc-I"] < found["FedAvg"])
    clients = ", ".join(map(str, rounds.index))
    claim = "for linear speed-up FedAc needs fewer rounds than FedAvg, and a smaller power of M (orders of the text: M^(1/3), M)"
    return Verdict.of(claim, f"M = {clients}: {said}", fewer)
