"""Exponents fitted to measured errors, and the rounds that linear speed-up takes."""

from typing import Any

import numpy as np
import pandas as pd

from fedlocal.experiments.studies.rates.cases import CASES, INVERSE, LETTERS


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
        above, r = np.flatnonzero(ratio > 0), np.log(own["rounds"].to_numpy())
        if len(above) == 0:
            needed = 1.0
        else:
            i = above[-1]
            needed = float(np.exp(r[i] + (r[i + 1] - r[i]) * ratio[i] / (ratio[i] - ratio[i + 1])))
        rows.append({"method": method, "clients": m, "rounds": needed})
    return pd.DataFrame(rows)
