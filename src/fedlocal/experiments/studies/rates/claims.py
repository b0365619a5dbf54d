"""Claims of the study of rates: exponents of the text's terms, and FedAc against FedAvg."""

from typing import Any

import numpy as np
import pandas as pd

from fedlocal.experiments.runner.claims import Verdict
from fedlocal.experiments.studies.rates.cases import CASES, INVERSE, LETTERS, METHODS, SHARP

CASE = ["assumption", "method", "term", "instance"]
CLOSE = 0.1  # exponents
SPEEDUP = "linear speed-up: an error at most twice that of the same method and M with communication in every step"


def exponents(history: pd.DataFrame) -> pd.DataFrame:
    """Fit log error to log M, log K and log R by least squares, in every case; for mu > 0 also with 1/(mu gamma K) for R."""
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
                    **dict(zip(CASE, case[:4], strict=True)),
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
    """Return the exponents of a column and their standard errors.

    >>> frame = pd.DataFrame({"rounds": [1.0, 2.0, 4.0], "error": [1.0, 0.25, 0.0625]})
    >>> slopes(frame, ["rounds"])[0].round(9).tolist()
    [-2.0]
    """
    x = np.column_stack([np.ones(len(frame)), *(np.log(frame[name]) for name in axes)])
    y = np.log(frame[column].to_numpy())
    found = np.linalg.lstsq(x, y, rcond=None)[0]
    variance = np.sum((y - x @ found) ** 2) / (len(y) - x.shape[1])
    return found[1:], np.sqrt(variance * np.diag(np.linalg.inv(x.T @ x)))[1:]


def rounds_needed(speedup: pd.DataFrame) -> pd.DataFrame:
    """Return the R from which on the error is at most twice that of communication in every step, interpolated in logarithms."""
    rows = []
    for (method, m), own in speedup.groupby(["method", "clients"], sort=False):  # pyright: ignore
        own = own.sort_values("rounds")
        ratio = np.log(own["error"].to_numpy() / own["error"].iloc[-1] / 2)
        above, r, needed = np.flatnonzero(ratio > 0), np.log(own["rounds"].to_numpy()), 1.0
        if len(above):
            i = above[-1]
            needed = float(np.exp(r[i] + (r[i + 1] - r[i]) * ratio[i] / (ratio[i] - ratio[i + 1])))
        rows.append({"method": method, "clients": m, "rounds": needed})
    return pd.DataFrame(rows)


def about_exponents(table: pd.DataFrame) -> list[Verdict]:
    """Judge each case: a sharp term's exponents agree with the text's; other errors fall at least as fast as their term."""
    judged = []
    for case in CASES:
        own: Any = table[(table[CASE] == list(case[:4])).all(axis=1)]
        off = own["measured"] - own["text"]
        measured = ", ".join(
            f"{row.measured:.2f} +- {row.standard_error:.2f} of {row.of} (text {row.text:.3g})"
            for row in own.itertuples()
        )
        if case.strong:
            plain = ", ".join(f"{row.raw:.2f} of {'R' if row.of == INVERSE else row.of}" for row in own.itertuples())
            measured += f"; raw: {plain}; mu gamma K R grows like R^{own['reach'].iloc[-1]:.2f}"
        if case.claim == SHARP:
            claim, holds = f"the rate {case.text()} is sharp", bool(np.abs(off).max() <= CLOSE)
        else:
            claim, holds = f"at least as fast as {case.text()}", bool((off - 2 * own["standard_error"]).max() <= CLOSE)
        claim += f", with {INVERSE} in the place of R" if case.strong else ""
        judged.append(Verdict.of(f"{case.assumption}, {case.method}, {case.term}: {claim}", measured, holds))
    return judged


def about_methods(table: pd.DataFrame) -> list[Verdict]:
    """Judge under each assumption that the overhead of FedAc falls faster with R than FedAvg's."""
    judged = []
    over: Any = table[(table["term"] == "overhead") & table["of"].isin(["R", INVERSE])]
    for assumption, own in over.groupby("assumption", sort=False):
        found = own.set_index("method")["raw"]
        claim = f"{assumption}: the overhead of FedAc falls faster with R than FedAvg's"
        measured = ", ".join(f"{name} R^{value:.2f}" for name, value in found.items())
        judged.append(Verdict.of(claim, measured, bool(found.drop("FedAvg").max() < found["FedAvg"] - CLOSE)))
    return judged


def about_speedup(needed: pd.DataFrame) -> Verdict:
    """Judge that FedAc needs fewer rounds than FedAvg for linear speed-up."""
    rounds = needed.pivot(index="clients", columns="method", values="rounds")
    fits = {name: slopes(needed[needed["method"] == name], ["clients"], "rounds") for name in METHODS}
    found = {name: slope[0] for name, (slope, _) in fits.items()}
    measured = "; ".join(
        f"{name}: {', '.join(f'{r:.3g}' for r in rounds[name])} rounds, like M^({found[name]:.2f} +- {error[0]:.2f})"
        for name, (_, error) in fits.items()
    )
    fewer = bool((rounds["FedAc-I"] < rounds["FedAvg"]).all() and found["FedAc-I"] < found["FedAvg"])
    clients = ", ".join(map(str, rounds.index))
    claim = f"FedAc needs fewer rounds than FedAvg, and a smaller power of M (orders of the text: M^(1/3), M), for {SPEEDUP}"
    return Verdict.of(claim, f"M = {clients}: {measured}", fewer)
