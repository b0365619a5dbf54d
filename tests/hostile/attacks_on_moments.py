"""Attacks by what a site says of its columns and of its loss's curvature."""

from typing import Any

import numpy as np
from flwr.app import Array

from hostile.attack import (
    Attack,
    about_curvature,
    about_moments,
    arrays,
    numbers,
    on,
    refused,
)
from hostile.attacked_run import ACCELERATED
from hostile.attacks_on_introductions import fails_with
from hostile.attacks_on_labels import FORGED


def moments(name: str, does: str, words: str, **fields: Any) -> Attack:
    """Moments that are refused: every field a function of the honest one."""
    return refused(name, does, _moments(**fields), words)


def told(name: str, does: str, words: str, **fields: Any) -> Attack:
    """Moments that a site may have: the model is another one, and everybody is told."""
    return Attack(name, does, _moments(**fields), words, None, evaluated=None)


def _moments(**fields: Any) -> Any:
    return on(
        about_moments, arrays(lambda sent, a: {n: fields[n](v.copy()) if n in fields else v for n, v in a.items()})
    )


def _first(value: float) -> Any:
    """Another value in the first column."""

    def change(field: np.ndarray) -> np.ndarray:
        field[0] = value
        return field

    return change


CHOSEN = {"method": ACCELERATED, "choose_step_size": True}
MOMENTS = [
    refused(
        "no moments",
        "never answers what its moments are",
        on(about_moments, lambda q, a: None),
        "no moments: no answer in time; left out",
        settings={"timeout": 0.1},
        rounds=2,
    ),
    refused(
        "forged error for moments",
        "fails with a text that looks like events",
        on(about_moments, fails_with(FORGED)),
        r"no moments: x\?round 2: a: left out\?",
    ),
    moments("moments nan", "has means of nan", "no moments: they are not finite", mean=_first(np.nan)),
    moments("moments inf", "has squares of inf", "no moments: they are not finite", squares=_first(np.inf)),
    moments("negative squares", "has negative squares", "no moments: they are negative", squares=_first(-1.0)),
    moments("negative count", "has -5 values", "no moments: they are negative", present=_first(-5.0)),
    moments(
        "more values than rows", "has 61 values", "no moments: they count 61 values of 60 rows", present=_first(61.0)
    ),
    moments("half a value", "has 59.5 values", "no moments: they count", present=_first(59.5)),
    moments("means of 1e200", "has a mean of 1e200", "no moments: they are beyond 1e", mean=_first(1e200)),
    moments("squares of 1e302", "has squares of 1e302", "no moments: they are beyond 1e", squares=_first(1e302)),
    moments("squares of 1e-310", "has squares of 1e-310", "no moments: they are below 1e-140", squares=_first(1e-310)),
    moments("means of 1e-160", "has a mean of 1e-160", "no moments: they are below 1e-140", mean=_first(1e-160)),
    moments(
        "moments of other columns",
        "has moments of 3 columns",
        "moments of 3 columns, not of 4",
        mean=lambda a: a[:3],
        squares=lambda a: a[:3],
        present=lambda a: a[:3],
    ),
    moments(
        "moments as a matrix",
        "has moments of two axes",
        "no moments: ",
        mean=lambda a: a[None],
        squares=lambda a: a[None],
        present=lambda a: a[None],
    ),
    moments(
        "means of no values",
        "has a mean of a column without values",
        "no moments: they say something of columns without values",
        present=_first(0.0),
    ),
    refused(
        "other names of moments",
        "calls its moments otherwise",
        on(about_moments, arrays(lambda s, a: {"x": a["mean"]})),
        "no moments: arrays are called",
    ),
    refused(
        "moments of objects",
        "sends pickled moments",
        on(about_moments, arrays(lambda s, a: {**a, "mean": Array("object", (4,), "numpy.ndarray", b"")})),
        "no moments: mean has the type 'object'",
    ),
    told("means shifted", "shifts a mean by a thousand deviations", "look at age: mean 1005", mean=_first(1005.0)),
    told("means of 1e140", "has a mean of 1e140", r"look at age: mean 1e\+140", mean=_first(1e140)),
    told(
        "squares of 1e200",
        "has a deviation of 1e99",
        r"look at age: mean .* deviation 1\.29\de\+99",
        squares=_first(1e200),
    ),
    told(
        "few values far away",
        "has 9 values with a mean of 1e100",
        r"look at age: mean 1e\+100",
        present=_first(9.0),
        mean=_first(1e100),
    ),
    told(
        "few values wide apart",
        "has 9 values with a deviation of 1e99",
        "look at age: mean .*",
        present=_first(9.0),
        squares=_first(1e200),
    ),
    told(
        "squares of zero",
        "says that a column is constant",
        r"its gradient is|y/weights moved .* times as far as its moments|look at age",
        squares=lambda a: a * 0,
    ),
    Attack(
        "curvature of 1e30",
        "claims a curvature of 1e30",
        on(about_curvature, numbers(curvature=1e30)),
        r"no curvature: it is 1e\+30, and its moments allow for",
        chosen_without=True,
        rounds=2,
        settings=CHOSEN,
    ),
    Attack(
        "curvature nan",
        "claims a curvature of nan",
        on(about_curvature, numbers(curvature=float("nan"))),
        "no curvature: it is nan",
        chosen_without=True,
        rounds=2,
        settings=CHOSEN,
    ),
    Attack(
        "curvature inf",
        "claims a curvature of inf",
        on(about_curvature, numbers(curvature=float("inf"))),
        "no curvature: it is inf",
        chosen_without=True,
        rounds=2,
        settings=CHOSEN,
    ),
    Attack(
        "negative curvature",
        "claims a curvature of -1",
        on(about_curvature, numbers(curvature=-1.0)),
        "no curvature: it is -1",
        chosen_without=True,
        rounds=2,
        settings=CHOSEN,
    ),
    Attack(
        "no curvature",
        "never says what its curvature is",
        on(about_curvature, lambda q, a: None),
        "no curvature: no answer in time",
        chosen_without=True,
        rounds=2,
        settings={**CHOSEN, "timeout": 0.1},
    ),
    Attack(
        "curvature of 1e30, no bounds",
        "the same, where nothing is known of the loss",
        on(about_curvature, numbers(curvature=1e30)),
        r"suspicious: its curvature is .* times the median",
        None,
        evaluated=None,
        settings={**CHOSEN, "loss_bounds": None},
    ),
    Attack(
        "curvature of 1e-30",
        "claims a curvature of 1e-30",
        on(about_curvature, numbers(curvature=1e-30)),
        None,
        chosen_without=True,
        rounds=2,
        settings=CHOSEN,
    ),
]
