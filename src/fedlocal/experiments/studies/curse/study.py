"""The curse of primal averaging, inside one round: every client's model is sparse, their average is not."""

from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from matplotlib.colors import ListedColormap

from fedlocal import data as generators
from fedlocal.core import Round
from fedlocal.experiments.runner.claims import Verdict
from fedlocal.experiments.runner.methods import composite_method
from fedlocal.experiments.runner.store import Store, StudyOutcome
from fedlocal.experiments.studies.curse.settings import CurseSettings
from fedlocal.problems import LeastSquares
from fedlocal.regularizers import L1
from fedlocal.report.figures import COLORS, panels
from fedlocal.simulation.clients import client_round
from fedlocal.simulation.plan import Plan, Sampling
from fedlocal.simulation.single_run import simulate

METHODS = ("FedMiD", "FedDualAvg")


def run_study(settings: CurseSettings, store: Store) -> StudyOutcome:
    """Measure the densities of clients, their average and the server in the last round of FedMiD and of FedDualAvg."""
    frames = [
        store.frame(f"{name}-{seed}", lambda _, name=name, seed=seed: models(settings, name, seed)).assign(seed=seed)
        for seed in settings.seeds
        for name in METHODS
    ]
    history = pd.concat(frames, ignore_index=True)
    density: Any = history.groupby(["method", "who"])["weight"].agg(lambda w: float(np.mean(w != 0)))
    table = pd.DataFrame(
        {
            "method": name,
            "truth": float(np.mean(history["truth"] != 0)),
            "client_mean": density[name].filter(like="client").mean(),
            "client_densest": density[name].filter(like="client").max(),
            "average_of_clients": density[name]["average"],
            "server": density[name]["server"],
        }
        for name in METHODS
    )
    return StudyOutcome(history, table, verdicts(table), {"figure": partial(draw_models, settings, history)})


def models(settings: CurseSettings, name: str, seed: int) -> pd.DataFrame:
    """Return the models at the end of the last round: of every client, their average, and the server's."""
    data = getattr(generators, settings.data.generator)(settings.data.config, seed=seed)
    problem, psi = LeastSquares(data), L1(settings.strength)
    method = composite_method(name, psi, settings.client_step_size, 1.0)
    sampling = Sampling(settings.local_steps, None, settings.batch_size, settings.clients_per_round, seed=seed)
    last = settings.rounds - 1
    before = simulate(problem, method, rounds=last, eval_every=settings.rounds, **vars(sampling))
    plan = Plan.make(problem, sampling)
    cohort = jnp.asarray(plan.cohort(last))
    p = plan.normalized_weights(cohort)
    server = jax.tree.map(jnp.asarray, before.server)
    each = jax.jit(jax.vmap(client_round, (None, None, None, None, None, 0, None)))
    messages = each(problem, method, plan, server, (), cohort, last).message
    weights = {}
    for i, client in enumerate(cohort):
        message = jax.tree.map(lambda a, i=i: a[i], messages)
        state = jax.tree.map(jnp.add, server, message if name == "FedDualAvg" else message.x)
        weights[f"client {int(client)}"] = method.solution(state)["weights"]
    mean_message = jax.tree.map(lambda a: jnp.tensordot(p, a, 1), messages)
    weights["average"] = jnp.tensordot(p, jnp.stack(list(weights.values())), 1)
    here = Round(last, len(cohort) / plan.num_clients)
    weights["server"] = method.solution(method.update(server, mean_message, here))["weights"]
    truth = np.asarray(data.truth["weights"])
    same = {"method": name, "feature": np.arange(len(truth)), "truth": truth}
    frames = [pd.DataFrame({**same, "who": who, "weight": w}) for who, w in weights.items()]
    found: Any = pd.concat(frames, ignore_index=True)
    return found[["method", "who", "feature", "weight", "truth"]]


def verdicts(table: pd.DataFrame) -> list[Verdict]:
    """Judge the claims by the densities in the table."""
    mid, dual = (table.set_index("method").loc[name] for name in METHODS)
    off = abs(dual["server"] - dual["truth"])
    return [
        Verdict.of(
            "each client of FedMiD can locate a sparse solution",
            f"at most {mid['client_densest']:.1%} of the weights of a client are not zero",
            bool(mid["client_densest"] < 0.5),
        ),
        Verdict.of(
            "simply averaging them yields a much denser solution",
            f"{mid['average_of_clients']:.1%} of the average against {mid['client_mean']:.1%} of a client",
            bool(mid["average_of_clients"] > 2 * mid["client_mean"]),
        ),
        Verdict.of(
            "FedDualAvg, which averages in the dual space, keeps the sparsity",
            f"{dual['server']:.1%} of its server's weights are not zero, {dual['truth']:.1%} of the truth; of FedMiD's average "
            f"{mid['average_of_clients']:.1%}, and {mid['server']:.1%} after the server's proximal step",
            bool(off < min(abs(mid[k] - dual["truth"]) for k in ("average_of_clients", "server"))),
        ),
    ]


def draw_models(settings: CurseSettings, history: Any, target: Path) -> None:
    """Draw which weights are not zero: one row per client, one for their average or the server, one for the truth."""
    history = history[history["seed"] == settings.seeds[0]]
    shown = min(settings.shown_features, history["feature"].max() + 1)
    truth = history[history["who"] == "average"].drop_duplicates("feature")["truth"].to_numpy()
    with panels(2, target, settings.title, size=(6.4, 4.2)) as axes:
        for axis, (name, part) in zip(axes, history.groupby("method", sort=False), strict=True):
            weights = {str(who): rows["weight"].to_numpy() for who, rows in part.groupby("who", sort=False)}
            below = "average" if name == "FedMiD" else "server"
            clients = [(who, w) for who, w in weights.items() if who.startswith("client")]
            lines = [*clients, ("", None), (below, weights[below]), ("truth", truth)]
            blank = np.full(shown, np.nan)
            picture = [blank if w is None else (w[:shown] != 0).astype(float) for _, w in lines]
            labels = ["" if w is None else f"{who}  {(w != 0).mean():.1%}" for who, w in lines]
            colors = ListedColormap(["#f1f1ee", COLORS[str(name)]])
            axis.imshow(picture, aspect="auto", interpolation="nearest", cmap=colors, vmin=0, vmax=1)
            axis.set_yticks(range(len(lines)), labels)
            axis.set(title=f"{name}: weights that are not zero", xlabel=f"features 1 to {shown}")
            axis.grid(False)
