"""The figure of the study of primal averaging: which weights of each model are not zero."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.colors import ListedColormap

from fedlocal.experiments.studies.curse.settings import CurseSettings
from fedlocal.report.figures import COLORS, panels


def draw_models(settings: CurseSettings, history: Any, target: Path) -> None:
    """Draw which weights are not zero: one row per client, one for their average or the server, one for the truth."""
    history = history[history["seed"] == settings.seeds[0]]
    shown = min(settings.shown_features, history["feature"].max() + 1)
    truth = history[history["who"] == "average"].drop_duplicates("feature")["truth"].to_numpy()
    with panels(2, target, settings.title, size=(6.4, 4.2)) as axes:
        for axis, (name, part) in zip(axes, history.groupby("method", sort=False), strict=True):
            weights = {str(who): rows["weight"].to_numpy() for who, rows in part.groupby("who", sort=False)}
            clients = [who for who in weights if who.startswith("client")]
            below = "average" if name == "FedMiD" else "server"
            lines = [*((who, weights[who]) for who in clients), ("", None), (below, weights[below]), ("truth", truth)]
            blank = np.full(shown, np.nan)
            picture = [blank if w is None else (w[:shown] != 0).astype(float) for _, w in lines]
            colors = ListedColormap(["#f1f1ee", COLORS[str(name)]])
            axis.imshow(picture, aspect="auto", interpolation="nearest", cmap=colors, vmin=0, vmax=1)
            axis.set_yticks(
                range(len(lines)), ["" if w is None else f"{who}  {(w != 0).mean():.1%}" for who, w in lines]
            )
            axis.set(title=f"{name}: weights that are not zero", xlabel=f"features 1 to {shown}")
            axis.grid(False)
