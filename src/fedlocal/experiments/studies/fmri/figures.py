"""Figures of the study of fMRI scans: accuracy against density over step sizes, and where the chosen voxels are."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap

from fedlocal.experiments.studies.fmri.settings import FmriSettings
from fedlocal.report.figures import COLORS, legend_below, panels

MARKERS = {"FedDualAvg": "o", "FedDualAvg-OSP": "s", "FedMiD": "^", "FedMiD-OSP": "v"}
AXES = ("first", "second", "third")
DARK = np.linspace(0.35, 1, 128)  # the part of a map of colours that is seen on grey
SIGNED = ListedColormap([*colormaps["Blues"](DARK[::-1]), *colormaps["Reds"](DARK)])
UNUSED = ListedColormap(["#d9d9d9"])
MARGIN = 1  # voxels around the mask


def draw_scatter(settings: FmriSettings, points: pd.DataFrame, target: Path) -> None:
    """Draw accuracy against density: one panel per round, one point per pair of step sizes."""
    rounds = settings.scatter.rounds
    which = (
        "all step sizes" if settings.tuning.search == "all" else "the step sizes that halving had not dropped by then"
    )
    with panels(len(rounds), target, f"{settings.title}: {which}", size=(3.8, 3.8), share_y=True) as axes:
        for axis, r in zip(axes, rounds, strict=True):
            for name in settings.scatter.methods:
                own: Any = points[(points["method"] == name) & (points["round"] == r)]
                look: Any = {"color": COLORS[name], "marker": MARKERS.get(name, "o"), "linewidths": 0}
                axis.scatter(own["density"], own["validation_accuracy"], s=34, alpha=0.75, label=name, **look)
            axis.set(title=f"after {r} rounds", xlabel="density", xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))
        axes[0].set_ylabel("validation accuracy")
        legend_below(axes)


def draw_brain(settings: FmriSettings, voxels: pd.DataFrame, shape: Sequence[int], target: Path) -> None:
    """Draw three projections of the mask, the largest weight along each axis, for a method and for the optimum."""
    names = ["FedDualAvg" if "FedDualAvg" in voxels else settings.methods[0], "optimum"]
    places = voxels[["axis_0", "axis_1", "axis_2"]].to_numpy()
    title = f"{settings.title}\nred: face, blue: {settings.data.against}, grey: voxels of the mask that are not used"
    with panels(3 * len(names), target, title, size=(3.6, 2.8), columns=3) as axes:
        for row, name in enumerate(names):
            weights = np.where(np.abs(voxels[name]) > settings.threshold, voxels[name], 0.0)
            for along in range(3):
                _view(axes[3 * row + along], places, weights, shape, along)
            axes[3 * row].set_title(f"{name}: {np.count_nonzero(weights)} of {len(weights)} voxels")


def largest_along(places: np.ndarray, weights: np.ndarray, shape: Sequence[int], along: int) -> np.ndarray:
    """Project the image along an axis: each pixel has the weight with the largest absolute value, or nan if there is no voxel."""
    rest = [a for a in range(3) if a != along]
    plane = np.full([shape[a] for a in rest], np.nan)
    order = np.argsort(np.abs(weights), kind="stable")  # so that the largest is written last
    plane[tuple(places[order][:, rest].T)] = weights[order]
    return plane


def _view(axis: Axes, places: np.ndarray, weights: np.ndarray, shape: Sequence[int], along: int) -> None:
    rest = [a for a in range(3) if a != along]
    plane = largest_along(places, weights, shape, along).T
    most = float(np.abs(weights).max()) or 1.0
    axis.imshow(np.where(np.isnan(plane), np.nan, 0.0), origin="lower", cmap=UNUSED)
    axis.imshow(np.where(plane == 0, np.nan, plane), origin="lower", cmap=SIGNED, vmin=-most, vmax=most)
    low, high = places[:, rest].min(axis=0) - MARGIN - 0.5, places[:, rest].max(axis=0) + MARGIN + 0.5
    x, y = (f"{AXES[a]} axis, voxels" for a in rest)
    axis.set(xlabel=x, ylabel=y, xlim=(low[0], high[0]), ylim=(low[1], high[1]))
    axis.grid(False)
