"""The coordinator: it averages what the hospitals answer, and never sees a patient."""

from pathlib import Path
from typing import Any

import jax
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedlocal.deploy import configure_logging, site_nodes
from fedlocal.flower import LossBounds, Outcome, Strategy, start

from .method import method_of

jax.config.update("jax_enable_x64", True)  # double precision; the hospitals follow
app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """All rounds that are left; then model.npz, history.csv, events.csv and report.json."""
    configure_logging()
    config: dict[str, Any] = context.run_config
    results = Path(config["results"]).resolve()
    strategy = Strategy(
        method_of(config),
        sites=config["sites"].split(","),
        nodes=site_nodes(),  # a hospital's name counts only with the hospital's key
        rounds=config["rounds"],
        tol=config["tol"],
        local_steps=config["local-steps"],
        weights=config["weights"],
        seed=config["seed"],
        min_clients=config["min-clients"],
        patience=config["patience"],
        eval_every=config["eval-every"],
        standardize=True,
        choose_step_size=True,
        loss_bounds=LossBounds(slope=1.0, curvature=0.25),  # with which answers are checked
        checkpoint=str(results / "checkpoint.npz"),
    )
    try:
        start(strategy, grid, timeout=config["timeout"])
    finally:  # also of a run that stops early
        Outcome.of(strategy).save(results)
