"""The app of the coordinator: the run's configuration says which methods, over which sites."""

import os
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedlocal.flower import Outcome, Strategy, start

from .methods import METHODS
from .together import Together

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """One method as it is; several of them together. Their outcomes go to folders of their names."""
    names = str(context.run_config["methods"]).split(",")
    if len(names) == 1:
        run(grid, names[0], context.run_config)
        return
    together = Together(grid, len(names))
    raised = together.run({name: lambda g, name=name: run(g, name, context.run_config) for name in names})
    if raised:
        raise ExceptionGroup("some methods failed", list(raised.values()))  # pyright: ignore


def run(grid: Grid, name: str, config: dict[str, Any]) -> None:
    """Run a method and keep its outcome."""
    out = Path(config["out"]) / name
    out.mkdir(parents=True, exist_ok=True)
    (out / "pid").write_text(str(os.getpid()))
    strategy = Strategy(
        METHODS[name],
        rounds=config["rounds"],
        sites=config["sites"].split(","),
        local_steps=[int(k) for k in config["local-steps"].split(",")],
        batch_size=config["batch-size"] or None,
        weights="examples",
        seed=config["seed"],
        min_clients=config["min-clients"] or None,
        patience=float(config["patience"]),
        checkpoint=str(out / "checkpoint.npz"),
    )
    start(strategy, grid, timeout=float(config["timeout"]))
    Outcome.of(strategy).save(out)
