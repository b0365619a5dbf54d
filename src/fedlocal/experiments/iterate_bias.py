"""The iterate bias of SGD: where 1024 noisy steps from the optimum lead on average, how fast this grows, and its constant."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from fedlocal.experiments import iterate_bias_figures as figures
from fedlocal.experiments.claims import Verdict
from fedlocal.experiments.outcome import Outcome
from fedlocal.experiments.settings.iterate_bias import IterateBias
from fedlocal.experiments.store import Store
from fedlocal.problems.oracle import piecewise_quadratic
from fedlocal.theory.bias_bounds import iterate_bias_lower_bound, iterate_bias_upper_bound
from fedlocal.theory.bias_sde import backward_bias, sde_bias
from fedlocal.theory.bound import Constants
from fedlocal.theory.exact_bias import Gaussian, Law, Uniform, exact_bias, exact_law
from fedlocal.theory.instances import log_cosh_instance, piecewise_instance
from fedlocal.theory.iterate_bias import monte_carlo_bias

EXPONENTS = {  # of k and of eta
    "piecewise": ("eta^2 k^(3/2) on the piecewise quadratic", 1.5, 2.0),
    "log_cosh": ("eta^3 k^2 on the log-cosh instance, which is third-order smooth", 2.0, 3.0),
}
AXES = ("steps", "step_size")  # along which the bias grows
CURVE_POINTS = 32  # of the exact mean against k
CLOSE = 0.1  # exponents
TIGHT = 0.95  # of an upper bound, from which on its constant cannot be improved
NEAR = 0.02  # constants, relative


def study(settings: IterateBias, store: Store, elsewhere: Any) -> Outcome:
    """Densities and means beside the exact ones; exponents; the constant of the expansion."""
    samples, scales, constants = _made(settings, store)
    law = exact(settings)
    curve = pd.DataFrame({"steps": law.steps, "mean": law.bias})
    table = means(settings, samples, law)
    history = pd.concat(
        [table.assign(part="means"), scales.assign(part="scaling"), constants.assign(part="constant")],
        ignore_index=True,
    )
    return Outcome(
        history=history,
        table=table,
        verdicts=[
            *_about_means(table, law),
            *_about_exponents(settings, scales),
            *_about_bounds(table, scales),
            *_about_constant(constants),
        ],
        figures={
            "figure": lambda target: figures.draw_densities(settings, samples, law, curve, target),
            "figure-growth": lambda target: figures.draw_growth(settings, scales, slopes(settings, scales), target),
            "figure-constant": lambda target: figures.draw_constant(settings, constants, target),
        },
        extra={"samples": samples, "scaling": scales, "constant": constants},
    )


def _made(settings: IterateBias, store: Store) -> list[pd.DataFrame]:
    """Samples, growth and constants, each of several parts."""
    groups: list[dict[str, Callable[[], pd.DataFrame]]] = [
        {f"samples-{seed}": partial(sample, settings, seed) for seed in settings.seeds},
        {f"scaling-{name}-{axis}": partial(scaling, settings, name, axis) for name in EXPONENTS for axis in AXES},
        {f"constant-{i}": partial(constant, settings, i) for i in range(len(settings.constant.times))},
    ]
    return store.frames(groups)


def sample(settings: IterateBias, seed: int) -> pd.DataFrame:
    """Where SGD is after each number of steps, a column each, a row per repeat."""
    problem = piecewise_quadratic(settings.noise, settings.right, settings.left)
    found = monte_carlo_bias(
        problem, 0.0, settings.step_size, settings.steps, settings.repeats, seed, keep_samples=True
    )
    assert found.samples is not None
    return pd.DataFrame({str(k): x for k, x in zip(settings.steps, found.samples, strict=True)})


def exact(settings: IterateBias) -> Law:
    """The law of the iterate at the numbers of steps of the figure and at others between."""
    last = settings.steps[-1]
    between = {last * i // CURVE_POINTS for i in range(1, CURVE_POINTS + 1)} - {0}
    problem = piecewise_quadratic(settings.noise, settings.right, settings.left)
    noise = Gaussian(settings.noise)
    return exact_law(problem, 0.0, settings.step_size, sorted(between | {*settings.steps}), noise, kinks=[0.0])


def means(settings: IterateBias, samples: pd.DataFrame, law: Law) -> pd.DataFrame:
    """One row per number of steps: mean, standard error and share below zero, sampled and exact, and the text's upper bound."""
    L = 2 * max(settings.right, settings.left)
    known = Constants(smoothness=L, noise=settings.noise, distance=0.0)
    rows = []
    for k in settings.steps:
        x, i = samples[str(k)].to_numpy(), int(np.flatnonzero(law.steps == k)[0])
        rows.append(
            {
                "steps": k,
                "mean": x.mean(),
                "standard_error": x.std(ddof=1) / np.sqrt(len(x)),
                "exact_mean": law.bias[i],
                "left_of_0": float(np.mean(x < 0)),
                "exact_left_of_0": float(np.sum((law.weights * law.density[i])[law.points < 0])),
                "upper_bound": iterate_bias_upper_bound(known, settings.step_size, k).value,
            }
        )
    return pd.DataFrame(rows)


def scaling(settings: IterateBias, name: str, axis: str) -> pd.DataFrame:
    """The exact bias and its bounds on an instance, against k or against the step size."""
    s, rows = settings.scaling, []
    cells = [(s.step_size, [1, *s.steps])] if axis == "steps" else [(eta, [s.at_steps]) for eta in s.step_sizes]
    for eta, wanted in cells:
        for k, bias in zip(wanted, _instance_bias(settings, name, eta, wanted), strict=True):
            low, high = _bounds(settings, name, eta, k)
            cell = {"instance": name, "along": axis, "steps": k, "step_size": eta}
            rows.append(cell | {"bias": bias, "lower_bound": low, "upper_bound": high})
    return pd.DataFrame(rows)


def _instance_bias(settings: IterateBias, name: str, eta: float, steps: list[int]) -> np.ndarray:
    s = settings.scaling
    if name == "piecewise":
        problem = piecewise_instance(s.smoothness, s.noise)
        return exact_bias(problem, 0.0, eta, steps, Gaussian(s.noise), kinks=[0.0])
    problem = log_cosh_instance(s.smoothness, s.third_order, s.noise)
    return exact_bias(problem, 0.0, eta, steps, Uniform(s.noise))


def _bounds(settings: IterateBias, name: str, eta: float, k: int) -> tuple[float, float]:
    """The theorems' bounds; the upper one with the standard deviation of the noise, the lower one with the text's sigma."""
    s, third = settings.scaling, None if name == "piecewise" else settings.scaling.third_order
    std = s.noise if name == "piecewise" else Uniform(s.noise).variance ** 0.5
    lower = Constants(smoothness=s.smoothness, noise=s.noise, distance=0.0, third_order=third)
    upper = Constants(smoothness=s.smoothness, noise=std, distance=0.0, third_order=third)
    return iterate_bias_lower_bound(lower, eta, k).value, iterate_bias_upper_bound(upper, eta, k).value


def slopes(settings: IterateBias, scales: pd.DataFrame) -> dict[tuple[str, str], float]:
    """Measured exponents, by instance and by what they are exponents of."""
    found = {}
    for name in EXPONENTS:
        for axis in AXES:
            rows: Any = scales[(scales["instance"] == name) & (scales["along"] == axis)]
            rows = rows[rows["steps"] >= settings.scaling.fit_from] if axis == "steps" else rows
            found[name, axis] = float(np.polyfit(np.log(rows[axis]), np.log(np.abs(rows["bias"])), 1)[0])
    return found


def constant(settings: IterateBias, i: int) -> pd.DataFrame:
    """-bias / (eta^3 k^2 sigma^2 F''') of SGD, of the SDE, and of the backward equation with and without its factor 1/2, at the
    i-th time."""
    c = settings.constant
    problem, k, variance = log_cosh_instance(c.smoothness, c.third_order, c.noise), [c.steps], c.noise**2
    eta = c.times[i] / (c.smoothness * c.steps)
    unit = -(eta**3) * c.steps**2 * variance * c.third_order
    paths = sde_bias(problem, 0.0, eta, k, variance, c.pairs, settings.seeds[0] + i)
    row = {
        "time": c.times[i],
        "steps": c.steps,
        "step_size": eta,
        "sgd": exact_bias(problem, 0.0, eta, k, Gaussian(c.noise))[0] / unit,
        "sde": paths.bias[0] / unit,
        "sde_error": paths.standard_error[0] / abs(unit),
        "backward": backward_bias(problem, 0.0, eta, k, variance)[0] / unit,
        "backward_of_the_text": backward_bias(problem, 0.0, eta, k, 2 * variance)[0] / unit,
    }
    return pd.DataFrame([row])


def _about_means(table: pd.DataFrame, law: Law) -> list[Verdict]:
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


def _about_exponents(settings: IterateBias, scales: pd.DataFrame) -> list[Verdict]:
    found = slopes(settings, scales)
    return [
        Verdict.of(
            f"the bias is of the order {said}",
            f"exponents {found[name, 'step_size']:.3f} of eta and {found[name, 'steps']:.3f} of k",
            abs(found[name, "step_size"] - of_eta) < CLOSE and abs(found[name, "steps"] - of_k) < CLOSE,
        )
        for name, (said, of_k, of_eta) in EXPONENTS.items()
    ]


def _about_bounds(table: pd.DataFrame, scales: pd.DataFrame) -> list[Verdict]:
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


def _about_constant(constants: pd.DataFrame) -> list[Verdict]:
    row: Any = constants.loc[constants["time"].idxmin()]
    measured = (
        f"at eta L k = {row['time']:g}: {row['sgd']:.4f} by the law of SGD, {row['sde']:.3f} +- {row['sde_error']:.3f} by "
        f"paths of the SDE, {row['backward']:.4f} by the backward equation with (1/2) eta sigma^2 u_xx, "
        f"{row['backward_of_the_text']:.4f} without the 1/2"
    )
    return [
        Verdict.of(f"the bias is about -{word} eta^3 k^2 sigma^2 F'''", measured, _near(row["sgd"], value))
        for word, value in (("(1/2)", 0.5), ("(1/4)", 0.25))
    ]


def _near(measured: float, value: float) -> bool:
    return bool(abs(measured - value) <= NEAR * value)
