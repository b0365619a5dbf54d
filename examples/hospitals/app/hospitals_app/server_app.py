"""The coordinator: it averages what the hospitals answer, and never sees a patient."""

from contextlib import suppress
from pathlib import Path

import jax
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

import fedlocal as fl
from fedlocal.deploy import talk_plainly
from fedlocal.engines.flower import Outcome, Strategy, start

jax.config.update("jax_enable_x64", True)  # double precision; the hospitals follow
app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """All rounds that are left; then model.npz, history.csv, events.csv and report.json."""
    talk_plainly()
    config = context.run_config
    results = Path(config["results"]).resolve()
    method = fl.methods.FedDualAvg(
        client_step_size=config["client-step-size"],
        server_step_size=config["server-step-size"],
        regularizer=fl.regularizers.L1(config["l1"]),  # of the weights, not of the intercept
    )
    strategy = Strategy(
        method,
        sites=config["sites"].split(","),
        rounds=config["rounds"],
        local_steps=config["local-steps"],
        weights="examples",
        min_clients=config["min-clients"],
        patience=config["patience"],
        eval_every=config["eval-every"],
        standardize=True,
        checkpoint=str(results / "checkpoint.npz"),
    )
    try:
        start(strategy, grid, timeout=config["timeout"])
    finally:  # also of a run that stops early
        with suppress(RuntimeError):  # there is nothing to save where no hospital was met
            Outcome.of(strategy).save(results)
