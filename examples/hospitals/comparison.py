"""The federated model beside the pooled one: coefficients in original units, accuracy, and a figure."""

import io
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
import pandas as pd
import sklearn
from app.hospitals_app.client_app import training_rows
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.console import Console
from sklearn.linear_model import LogisticRegression

import fedlocal as fl
from fedlocal.data.sets.heart import Hospital, read_hospital
from fedlocal.flower.coordinator.evaluation import in_words
from fedlocal.report.figures import STYLE, plain_log_scale
from fedlocal.report.tables import table

FEDERATED, POOLED, QUIET = "#0b6e4f", "#c8553d", "#98a2ad"
NOTHING = 1e-9  # a weight below is zero


class Model(NamedTuple):
    """A linear model of standardised columns."""

    weights: np.ndarray
    intercept: float
    scaling: fl.data.Scaling

    def correct(self, hospital: Hospital, rows: np.ndarray) -> float:
        """The part of these patients that is on the right side."""
        scores = self.scaling.apply(hospital.features[rows]) @ self.weights + self.intercept
        return float(np.mean(scores * hospital.targets[rows] > 0))


def compare(files: dict[str, Path], results: Path, l1: float) -> None:
    """Print tables, write coefficients.csv, accuracy.csv and hospitals.png."""
    hospitals = {name: read_hospital(file) for name, file in files.items()}
    federated, history = read(results)
    pooled, optimum = fit(hospitals, l1)
    alone = {name: fit({name: hospital}, l1, pooled.scaling)[0] for name, hospital in hospitals.items()}
    names = next(iter(hospitals.values())).names
    coefficients = _coefficients(names, federated, pooled)
    accuracy = _accuracy(hospitals, federated, pooled, alone)
    coefficients.to_csv(results / "coefficients.csv", index=False)
    accuracy.to_csv(results / "accuracy.csv", index=False)
    gap = history["objective"] - optimum
    draw(names, federated, pooled, history[["round", "duality_gap"]].assign(gap=gap), accuracy, results)
    console = Console()
    console.print(table(coefficients, "Log-odds of heart disease per unit of each column (0: left out by l1)"))
    console.print(table(accuracy, "Accuracy on the fifth of the patients that nobody trained on"))
    apart = float(np.abs(federated.weights - pooled.weights).max())
    console.print(
        f"  after {int(history['round'].iloc[-1])} rounds the sites' own certificate is: {in_words(history.iloc[-1].to_dict())}\n"
        f"  the objective is {gap.iloc[-1]:+.2g} from that of the pooled fit, no standardised coefficient differs by more than "
        f"{apart:.2g}\n  everything is in {results}",
        highlight=False,
        soft_wrap=True,
    )


def read(results: Path) -> tuple[Model, pd.DataFrame]:
    """The model that the coordinator wrote, and its history."""
    with np.load(results / "model.npz") as file:
        scaling = fl.data.Scaling(file["scaling/mean"], file["scaling/scale"])
        model = Model(file["x/weights"], float(file["x/intercept"]), scaling)
    return model, pd.read_csv(results / "history.csv")


def fit(hospitals: dict[str, Hospital], l1: float, scaling: fl.data.Scaling | None = None) -> tuple[Model, float]:
    """The model of these patients together, by scikit-learn, and its objective."""
    rows = np.concatenate([hospital.features[training_rows(hospital)] for hospital in hospitals.values()])
    y = np.concatenate([hospital.targets[training_rows(hospital)] for hospital in hospitals.values()])
    scaling = scaling or fl.data.Moments.of(rows).scaling()
    X = scaling.apply(rows)
    new = tuple(int(part) for part in sklearn.__version__.split(".")[:2]) >= (1, 8)
    penalty: dict[str, Any] = {"l1_ratio": 1.0} if new else {"penalty": "l1"}
    solver = LogisticRegression(C=1 / (l1 * len(y)), solver="saga", tol=1e-10, max_iter=100_000, **penalty).fit(X, y)
    weights, intercept = solver.coef_[0], float(solver.intercept_[0])
    loss = np.mean(np.logaddexp(0, -y * (X @ weights + intercept)))
    return Model(weights, intercept, scaling), float(loss + l1 * np.abs(weights).sum())


def _coefficients(names: tuple[str, ...], federated: Model, pooled: Model) -> pd.DataFrame:
    units = [model.scaling.unscale(model.weights, model.intercept) for model in (federated, pooled)]
    columns = {
        which: [*np.where(np.abs(model.weights) > NOTHING, weights, 0.0), float(intercept)]
        for which, model, (weights, intercept) in zip(("federated", "pooled"), (federated, pooled), units, strict=True)
    }
    return pd.DataFrame({"column": [*names, "(intercept)"], **columns})


def _accuracy(hospitals: dict[str, Hospital], federated: Model, pooled: Model, alone: dict[str, Model]) -> pd.DataFrame:
    rows = []
    for name, hospital in hospitals.items():
        test = ~training_rows(hospital)
        models = {"federated": federated, "pooled": pooled, "alone": alone[name]}
        counts = {"hospital": name, "patients": int(training_rows(hospital).sum()), "tested": int(test.sum())}
        rows.append(counts | {which: model.correct(hospital, test) for which, model in models.items()})
    every = pd.DataFrame(rows)
    means = {which: np.average(every[which], weights=every["tested"]) for which in ("federated", "pooled", "alone")}
    total = {"hospital": "all", "patients": every["patients"].sum(), "tested": every["tested"].sum(), **means}
    return pd.concat([every, pd.DataFrame([total])], ignore_index=True)


def draw(
    names: tuple[str, ...], federated: Model, pooled: Model, gap: pd.DataFrame, accuracy: pd.DataFrame, results: Path
) -> None:
    """Coefficients on the left; convergence and accuracy on the right."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(11, 6.4), layout="constrained")
        axes = figure.subplot_mosaic([["weights", "gap"], ["weights", "accuracy"]], width_ratios=[1.1, 1])
        title = "Heart disease: one model, four hospitals, no record leaves"
        figure.suptitle(title, x=0.01, ha="left", fontsize=13.5, fontweight="bold")
        _draw_weights(axes["weights"], names, federated, pooled)
        _draw_gap(axes["gap"], gap)
        _draw_accuracy(axes["accuracy"], accuracy)
        picture = io.BytesIO()
        figure.savefig(picture, format="png")
    (results / "hospitals.png").write_bytes(picture.getvalue())


def _draw_weights(axis: Axes, names: tuple[str, ...], federated: Model, pooled: Model) -> None:
    kept = np.flatnonzero((np.abs(pooled.weights) > NOTHING) | (np.abs(federated.weights) > NOTHING))
    order = kept[np.argsort(pooled.weights[kept])]
    places = np.arange(len(order))
    axis.axvline(0, color="#444444", linewidth=0.9)
    axis.hlines(places, 0, federated.weights[order], color=FEDERATED, alpha=0.35, linewidth=2.4)
    axis.plot(federated.weights[order], places, "o", color=FEDERATED, markersize=6.5, label="federated")
    ring = {"markerfacecolor": "none", "markeredgewidth": 1.5, "markersize": 11}
    axis.plot(pooled.weights[order], places, "o", color=POOLED, label="all patients pooled", **ring)
    axis.set_yticks(places, [names[j] for j in order])
    axis.set_ylim(-0.7, len(order) - 0.3)
    axis.grid(axis="y", visible=False)
    axis.set(
        title="Log-odds per standard deviation",
        xlabel=f"{len(order)} of {len(names)} columns; the others are zero in both",
    )
    axis.legend(loc="lower right")


def _draw_gap(axis: Axes, gap: pd.DataFrame) -> None:
    axis.plot(
        gap["round"],
        gap["duality_gap"],
        color=QUIET,
        marker="o",
        markersize=4,
        label="bound from the sites (duality gap)",
    )
    axis.plot(gap["round"], gap["gap"], color=FEDERATED, marker="o", markersize=4, label="true difference")
    axis.set(title="Objective above that of the pooled fit", xlabel="communication rounds")
    plain_log_scale(axis)
    axis.legend(loc="lower left")


def _draw_accuracy(axis: Axes, accuracy: pd.DataFrame) -> None:
    places, width = np.arange(len(accuracy)), 0.26
    kinds = (("alone", QUIET, "own patients only"), ("federated", FEDERATED, "federated"), ("pooled", POOLED, "pooled"))
    for shift, (kind, color, label) in enumerate(kinds):
        axis.bar(places + (shift - 1) * width, 100 * accuracy[kind], width * 0.92, color=color, label=label)
    axis.set_xticks(
        places, [f"{name}\n({n})" for name, n in zip(accuracy["hospital"], accuracy["tested"], strict=True)]
    )
    axis.grid(axis="x", visible=False)
    axis.set(title="Accuracy on held-out patients (their number), in %", ylim=(50, 105))
    axis.legend(loc="upper right", ncols=3, fontsize=9, handlelength=1.0, columnspacing=1.0)
