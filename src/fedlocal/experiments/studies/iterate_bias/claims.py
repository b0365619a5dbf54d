"""Claims of the study of iterate bias: its direction, its growth, its bounds, and the constant of its expansion."""

from typing import Any

import numpy as np
import pandas as pd

from fedlocal.experiments.runner.claims import Verdict
from fedlocal.experiments.studies.iterate_bias.settings import IterateBiasSettings
from fedlocal.theory.bias.quadrature import Law

EXPONENTS = {  # of k and of eta
    "piecewise": ("eta^2 k^(3/2) on the piecewise quadratic", 1.5, 2.0),
    "log_cosh": ("eta^3 k^2 on the log-cosh instance, which is third-order smooth", 2.0, 3.0),
}
LINES = [(name, axis) for name in EXPONENTS for axis in ("steps", "step_size")]  # along which the bias grows
CLOSE = 0.1  # exponents
TIGHT = 0.95  # of an upper bound, from which on its constant cannot be improved
NEAR = 0.02  # constants, relative


def slopes(settings: IterateBiasSettings, scales: pd.DataFrame) -> dict[tuple[str, str], float]:
    """Return the measured exponents, by instance and by the variable that they belong to."""
    found = {}
    for name, axis in LINES:
        rows: Any = scales[(scales["instance"] == name) & (scales["along"] == axis)]
        rows = rows[rows["steps"] >= settings.scaling.fit_from] if axis == "steps" else rows
        found[name, axis] = float(np.polyfit(np.log(rows[axis]), np.log(np.abs(rows["bias"])), 1)[0])
    return found


def about_means(table: pd.DataFrame, law: Law) -> list[Verdict]:
    """Judge that mean and density move to the left."""
    average, error = table["mean"].to_numpy(), table["standard_error"].to_numpy()
    off = np.abs(average - table["exact_mean"]) / error
    left = ", ".join(f"{m:.5f}" for m in average)
    shares = table["left_of_0"].to_numpy()
    return [
        Verdict.of(
            "the average gradually moves to the left",
            f"{left} after {', '.join(map(str, table['steps']))} steps; standard error {error.max():.1g}, at most "
            f"{off.max():.1f} of them from the exact means",
            bool((average < -4 * error).all() and (np.diff(average) < 0).all() and off.max() < 5),
        ),
        Verdict.of(
            "the density function gradually moves to the left",
            f"{', '.join(f'{share:.1%}' for share in shares)} of its mass is left of the optimum",
            bool((np.diff(table["exact_left_of_0"]) > 0).all() and shares[0] > 0.5),
        ),
        Verdict.of(
            "the bias increases in the number of steps k",
            f"exactly, at {len(law.steps)} numbers of steps up to {law.steps[-1]}",
            bool((np.diff(law.bias) < 0).all()),
        ),
    ]


def about_exponents(settings: IterateBiasSettings, scales: pd.DataFrame) -> list[Verdict]:
    """Judge the exponents of eta and of k."""
    found = slopes(settings, scales)
    return [
        Verdict.of(
            f"the bias is of the order {said}",
            f"exponents {found[name, 'step_size']:.3f} of eta and {found[name, 'steps']:.3f} of k",
            abs(found[name, "step_size"] - of_eta) < CLOSE and abs(found[name, "steps"] - of_k) < CLOSE,
        )
        for name, (said, of_k, of_eta) in EXPONENTS.items()
    ]


def about_bounds(table: pd.DataFrame, scales: pd.DataFrame) -> list[Verdict]:
    """Judge upper and lower bounds of the theorems."""
    size = np.abs(scales["bias"])
    second, later, first = scales["instance"] == "piecewise", scales["steps"] > 1, scales["steps"] == 1
    below: Any = size / scales["upper_bound"]
    above: Any = size[later] / scales["lower_bound"][later]
    highest = below[~second].max()
    tight = ", so 1/4 cannot be improved" if highest > TIGHT else ""
    caption = np.abs(table["exact_mean"]) / table["upper_bound"]
    return [
        Verdict.of(
            "upper bound min{4 eta^2 k^(3/2) L sigma, eta k^(1/2) sigma}",
            f"the bias is {below[second & later].min():.2f} to {below[second].max():.2f} of it, on the figure's objective "
            f"{caption.min():.2f} to {caption.max():.2f}",
            bool(below[second].max() <= 1 and caption.max() <= 1),
        ),
        Verdict.of(
            "upper bound (1/4) eta^3 k^2 Q sigma^2 under third-order smoothness",
            f"the bias comes to {highest:.3f} of it{tight}",
            bool(highest <= 1),
        ),
        Verdict.of(
            "lower bounds 0.002 min{eta^2 k^(3/2) L sigma, ...} and 0.005 eta^3 sigma^2 Q min{..., k (k - 1)}, from k = 2 on",
            f"the bias is at least {above[second].min():.3g} and {above[~second].min():.3g} times them",
            bool(above.min() >= 1),
        ),
        Verdict.of(
            "the lower bound with 0.002 holds for any k <= K (formal theorem), so for k = 1",
            f"the bias after one step is zero (computed {size[first & second].max():.1g}, the bound is "
            f"{scales['lower_bound'][first & second].min():.1g})",
            bool((size >= scales["lower_bound"])[first & second].all()),
        ),
    ]


def about_constant(constants: pd.DataFrame) -> list[Verdict]:
    """Judge the constant of the expansion, 1/2 or 1/4, at the smallest eta L k."""
    row: Any = constants.loc[constants["time"].idxmin()]
    measured = (
        f"at eta L k = {row['time']:g}: {row['sgd']:.4f} by the law of SGD, {row['sde']:.3f} +- {row['sde_error']:.3f} by "
        f"paths of the SDE, {row['backward']:.4f} by the backward equation with (1/2) eta sigma^2 u_xx, "
        f"{row['backward_of_the_text']:.4f} without the 1/2"
    )
    near = {word: bool(abs(row["sgd"] - value) <= NEAR * value) for word, value in (("(1/2)", 0.5), ("(1/4)", 0.25))}
    return [Verdict.of(f"the bias is about -{word} eta^3 k^2 sigma^2 F'''", measured, near[word]) for word in near]
