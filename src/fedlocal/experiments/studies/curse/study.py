"""The curse of primal averaging, inside one round: every client's model is sparse, their average is not."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from fedlocal import data as generators
from fedlocal.core import Round
from fedlocal.experiments.runner.methods import composite_method
from fedlocal.experiments.runner.outcome import StudyOutcome
from fedlocal.experiments.runner.store import Store
from fedlocal.experiments.studies.curse.claims import verdicts
from fedlocal.experiments.studies.curse.figures import draw_models
from fedlocal.experiments.studies.curse.settings import CurseSettings
from fedlocal.problems import LeastSquares
from fedlocal.regularizers import L1
from fedlocal.simulation import simulate
from fedlocal.simulation.clients import client_round
from fedlocal.simulation.plan import Plan
from fedlocal.simulation.sampling import Sampling

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
    return StudyOutcome(
        history, table, verdicts(table), {"figure": lambda target: draw_models(settings, history, target)}
    )


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
    rows, clients = [], []
    for i in range(len(cohort)):
        message = jax.tree.map(lambda a, i=i: a[i], messages)
        state = jax.tree.map(jnp.add, server, message if name == "FedDualAvg" else message.x)
        clients.append(method.solution(state)["weights"])
        rows.append((f"client {int(cohort[i])}", clients[-1]))
    mean_message = jax.tree.map(lambda a: jnp.tensordot(p, a, 1), messages)
    rows.append(("average", jnp.tensordot(p, jnp.stack(clients), 1)))
    here = Round(last, len(cohort) / plan.num_clients)
    rows.append(("server", method.solution(method.update(server, mean_message, here))["weights"]))
    truth = np.asarray(data.truth["weights"])
    return pd.concat(
        [
            pd.DataFrame({"method": name, "who": who, "feature": np.arange(len(truth)), "weight": w, "truth": truth})
            for who, w in rows
        ],
        ignore_index=True,
    )
