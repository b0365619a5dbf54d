"""WandB: the history of a run in Weights & Biases."""

from collections.abc import Mapping, Sequence
from typing import Any

from fedlocal.callbacks.base import Callback, Row
from fedlocal.core import Params
from fedlocal.util import checks
from fedlocal.util.optional import optional_import


class WandB(Callback):
    """Logs a run to Weights & Biases: the configuration, and the columns of the history with rounds as steps.

    It needs wandb: `pip install "fedlocal[wandb]"`. A resumed run logs the rows of its checkpoint, too; if it continues a run of
    W&B (`id=..., resume="allow"`), it logs the rounds that are not there yet. A run that ends by Ctrl-C or an error is
    marked as failed.

    Args:
        project: name of the project in W&B.
        settings: other arguments of `wandb.init`, e.g. `name=`, `mode="offline"`, `dir=`.
    """

    def __init__(self, project: str = "fedlocal", **settings: Any):
        self.project, self.settings = checks.instance("WandB", "project", project, str), settings
        self.package, self.run = optional_import("WandB", "wandb", "wandb"), None

    def start(self, configuration: Mapping[str, Any], rows: Sequence[Row]) -> None:
        run: Any = self.package.init(project=self.project, config=dict(configuration), **self.settings)
        self.run, first = run, run.step
        for row in rows:
            if row["round"] >= first:
                self._log(row)

    def evaluated(self, round: int, row: Row, x: Params) -> None:
        self._log(row)

    def end(self, error: BaseException | None) -> None:
        assert self.run is not None
        self.run.finish(exit_code=0 if error is None else 1)

    def _log(self, row: Row) -> None:
        assert self.run is not None
        self.run.log({name: value for name, value in row.items() if name != "round"}, step=int(row["round"]))
