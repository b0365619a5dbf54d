"""The iterate bias of SGD: the mean of the iterate after noisy steps from the optimum, how fast it grows, and its constant."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from fedlocal.experiments.runner.store import Store, StudyOutcome
from fedlocal.experiments.studies.iterate_bias import claims, figures
from fedlocal.experiments.studies.iterate_bias.settings import IterateBiasSettings
from fedlocal.problems.oracle import piecewise_quadratic
from fedlocal.theory.bias.bounds import iterate_bias_lower_bound, iterate_bias_upper_bound
from fedlocal.theory.bias.monte_carlo import monte_carlo_bias
from fedlocal.theory.bias.quadrature import Gaussian, Law, Uniform, exact_bias, exact_law
from fedlocal.theory.bias.sde import backward_bias, sde_bias
from fedlocal.theory.bounds.bound import Constants
from fedlocal.theory.constructions.lower_bound_instances import log_cosh_instance, piecewise_instance

CURVE_POINTS = 32  # of the exact mean against k


def run_study(settings: IterateBiasSettings, store: Store) -> StudyOutcome:
    """Compare sampled densities and means with exact ones; measure exponents and the constant of the expansion."""
    groups: list[dict[str, Callable[[], pd.DataFrame]]] = [
        {f"samples-{seed}": partial(sample, settings, seed) for seed in settings.seeds},
        {f"scaling-{name}-{axis}": partial(scaling, settings, name, axis) for name, axis in claims.LINES},
        {f"constant-{i}": partial(constant, settings, i) for i in range(len(settings.constant.times))},
    ]
    samples, scales, constants = store.frames(groups)
    law = exact(settings)
    table = means(settings, samples, law)
    parts = {"means": table, "scaling": scales, "constant": constants}
    history = pd.concat([frame.assign(part=name) for name, frame in parts.items()], ignore_index=True)
    return StudyOutcome(
        history=history,
        table=table,
        verdicts=[
            *claims.about_means(table, law),
            *claims.about_exponents(settings, scales),
            *claims.about_bounds(table, scales),
            *claims.about_constant(constants),
        ],
        figures={
            "figure": partial(figures.draw_densities, settings, samples, law),
            "figure-growth": partial(figures.draw_growth, settings, scales, claims.slopes(settings, scales)),
            "figure-constant": partial(figures.draw_constant, settings, constants),
        },
        extra={"samples": samples, "scaling": scales, "constant": constants},
    )


def sample(settings: IterateBiasSettings, seed: int) -> pd.DataFrame:
    """Return the iterates of SGD: a column per number of steps, a row per repeat."""
    problem, steps = piecewise_quadratic(settings.noise, settings.right, settings.left), settings.steps
    found: Any = monte_carlo_bias(problem, 0.0, settings.step_size, steps, settings.repeats, seed, keep_samples=True)
    return pd.DataFrame({str(k): x for k, x in zip(steps, found.samples, strict=True)})


def exact(settings: IterateBiasSettings) -> Law:
    """Return the law of the iterate at the numbers of steps of the figure and at others between them."""
    last = settings.steps[-1]
    between = {last * i // CURVE_POINTS for i in range(1, CURVE_POINTS + 1)} - {0}
    problem = piecewise_quadratic(settings.noise, settings.right, settings.left)
    steps, noise = sorted(between | {*settings.steps}), Gaussian(settings.noise)
    return exact_law(problem, 0.0, settings.step_size, steps, noise, kinks=[0.0])


def means(settings: IterateBiasSettings, samples: pd.DataFrame, law: Law) -> pd.DataFrame:
    """Return one row per number of steps: mean, standard error, share below zero, sampled and exact, and the upper bound."""
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


def scaling(settings: IterateBiasSettings, name: str, axis: str) -> pd.DataFrame:
    """Return the exact bias and its bounds on an instance, along `steps` or `step_size`."""
    s, rows = settings.scaling, []
    cells = [(s.step_size, [1, *s.steps])] if axis == "steps" else [(eta, [s.at_steps]) for eta in s.step_sizes]
    for eta, wanted in cells:
        for k, bias in zip(wanted, _instance_bias(settings, name, eta, wanted), strict=True):
            low, high = _bounds(settings, name, eta, k)
            cell = {"instance": name, "along": axis, "steps": k, "step_size": eta}
            rows.append(cell | {"bias": bias, "lower_bound": low, "upper_bound": high})
    return pd.DataFrame(rows)


def _instance_bias(settings: IterateBiasSettings, name: str, eta: float, steps: list[int]) -> np.ndarray:
    s = settings.scaling
    if name == "piecewise":
        problem = piecewise_instance(s.smoothness, s.noise)
        return exact_bias(problem, 0.0, eta, steps, Gaussian(s.noise), kinks=[0.0])
    problem = log_cosh_instance(s.smoothness, s.third_order, s.noise)
    return exact_bias(problem, 0.0, eta, steps, Uniform(s.noise))


def _bounds(settings: IterateBiasSettings, name: str, eta: float, k: int) -> tuple[float, float]:
    """Return the theorems' bounds: the lower one with the text's sigma, the upper one with the noise's deviation."""
    s, third = settings.scaling, None if name == "piecewise" else settings.scaling.third_order
    std = s.noise if name == "piecewise" else Uniform(s.noise).variance ** 0.5
    lower, upper = (Constants(s.smoothness, noise, distance=0.0, third_order=third) for noise in (s.noise, std))
    return iterate_bias_lower_bound(lower, eta, k).value, iterate_bias_upper_bound(upper, eta, k).value


def constant(settings: IterateBiasSettings, i: int) -> pd.DataFrame:
    """Return -bias / (eta^3 k^2 sigma^2 F''') at the i-th time: of SGD, of the SDE, and of the backward equation with and
    without its factor 1/2."""
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
