"""The curse of primal averaging, from inside a round: every client's model is sparse, their average is not."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from matplotlib.colors import ListedColormap

from fedlocal import data as generators
from fedlocal.core import LocalMethod
from fedlocal.engines import simulate
from fedlocal.engines.plan import Plan
from fedlocal.engines.rounds import local_steps
from fedlocal.experiments.claims import Verdict
from fedlocal.experiments.outcome import Outcome
from fedlocal.experiments.settings.curse import Curse
from fedlocal.experiments.store import Store
from fedlocal.methods import FedDualAvg, FedMiD
from fedlocal.problems import LeastSquares
from fedlocal.regularizers import L1
from fedlocal.report.figures import COLORS, panels


def study(settings: Curse, store: Store, elsewhere: Any) -> Outcome:
    """Densities of clients, their average and the server, in the last round of FedMiD and of FedDualAvg."""
    frames = [
        store.frame(f"{name}-{seed}", lambda _, name=name, seed=seed: models(settings, name, seed)).assign(seed=seed)
        for seed in settings.seeds
        for name in ("FedMiD", "FedDualAvg")
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
        for name in ("FedMiD", "FedDualAvg")
    )
    mid, dual = table.set_index("method").loc["FedMiD"], table.set_index("method").loc["FedDualAvg"]
    verdicts = [
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
            bool(
                abs(dual["server"] - dual["truth"])
                < min(abs(mid[k] - dual["truth"]) for k in ("average_of_clients", "server"))
            ),
        ),
    ]
    return Outcome(history, table, verdicts, {"figure": lambda target: _draw(settings, history, target)})


def models(settings: Curse, name: str, seed: int) -> pd.DataFrame:
    """The models that are there at the end of the last round: of every client, their average, and the server's."""
    data = getattr(generators, settings.data.generator)(settings.data.config, seed=seed)
    problem, psi = LeastSquares(data), L1(settings.strength)
    kind = {"FedMiD": FedMiD, "FedDualAvg": FedDualAvg}[name]
    method: LocalMethod = kind(settings.client_step_size, 1.0, psi)
    sampling: dict[str, Any] = {
        "local_steps": settings.local_steps,
        "batch_size": settings.batch_size,
        "clients_per_round": settings.clients_per_round,
        "seed": seed,
    }
    last = settings.rounds - 1
    before = simulate(problem, method, rounds=last, eval_every=settings.rounds, **sampling)
    plan = Plan.make(problem, local_epochs=None, weights="uniform", **sampling)
    cohort = jnp.asarray(plan.cohort(last))
    p = plan.normalized_weights(cohort)
    server = jax.tree.map(jnp.asarray, before.server)
    walk = jax.jit(local_steps, static_argnums=3)
    messages, _, _ = walk(
        problem, method, plan, None, 1.0, server, plan.round_key(last), last, None, None, cohort, p, ()
    )
    rows, clients = [], []
    for i in range(len(cohort)):
        message = jax.tree.map(lambda a, i=i: a[i], messages)
        state = jax.tree.map(jnp.add, server, message if name == "FedDualAvg" else message.x)
        clients.append(method.solution(state)["weights"])
        rows.append((f"client {int(cohort[i])}", clients[-1]))
    mean_message = jax.tree.map(lambda a: jnp.tensordot(p, a, 1), messages)
    rows.append(("average", jnp.tensordot(p, jnp.stack(clients), 1)))
    rows.append(("server", method.solution(method.update(server, mean_message))["weights"]))
    truth = np.asarray(data.truth["weights"])
    return pd.concat(
        [
            pd.DataFrame({"method": name, "who": who, "feature": np.arange(len(truth)), "weight": w, "truth": truth})
            for who, w in rows
        ],
        ignore_index=True,
    )


def _draw(settings: Curse, history: Any, target: Path) -> None:
    """Which weights are not zero, one line per model."""
    history = history[history["seed"] == settings.seeds[0]]
    shown = min(settings.shown_features, history["feature"].max() + 1)
    truth = history[history["who"] == "average"].drop_duplicates("feature")["truth"].to_numpy()
    with panels(2, target, settings.title, width=6.4, height=4.2) as axes:
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
