"""MLflow: the history of a run in an MLflow experiment."""

import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

from fedlocal.callbacks.base import Callback, Row
from fedlocal.core import Params
from fedlocal.util import checks
from fedlocal.util.optional import optional_import

MOST_METRICS = 1000  # that MLflow takes at once
MOST_PARAMETERS = 100
LONGEST_PARAMETER = 500  # characters
NOT_IN_NAMES = r"[^\w\-./ ]"


class MLflow(Callback):
    """Logs a run to MLflow: the configuration as parameters, every column of the history as a metric, rounds as steps.

    It needs MLflow: `pip install "fedlocal[mlflow]"`. Every call makes an MLflow run of its own, whose number is in `run_id`
    after the start; that of a resumed run has the rows of its checkpoint, too. A run that ends by Ctrl-C is marked as
    killed, one that ends by an error as failed. Values of the configuration are cut to 500 characters.

    Args:
        experiment: name of the MLflow experiment, which is made if there is none.
        tracking_uri: where MLflow keeps its data, e.g. "http://localhost:5000"; None takes MLflow's own setting.
    """

    def __init__(self, experiment: str = "fedlocal", tracking_uri: str | None = None):
        self.experiment = checks.instance("MLflow", "experiment", experiment, str)
        if tracking_uri is not None:
            checks.instance("MLflow", "tracking_uri", tracking_uri, str)
        self.tracking_uri, self.package = tracking_uri, optional_import("MLflow", "mlflow", "mlflow")
        self.client: Any = None
        self.run_id: str | None = None

    def start(self, configuration: Mapping[str, Any], rows: Sequence[Row]) -> None:
        self.client = self.package.MlflowClient(tracking_uri=self.tracking_uri)
        found = self.client.get_experiment_by_name(self.experiment)
        number = self.client.create_experiment(self.experiment) if found is None else found.experiment_id
        self.run_id = self.client.create_run(number).info.run_id
        make = self.package.entities.Param
        parameters = [make(name, str(value)[:LONGEST_PARAMETER]) for name, value in configuration.items()]
        for k in range(0, len(parameters), MOST_PARAMETERS):
            self.client.log_batch(self.run_id, params=parameters[k : k + MOST_PARAMETERS])
        self._log(rows)

    def evaluated(self, round: int, row: Row, x: Params) -> None:
        self._log([row])

    def end(self, error: BaseException | None) -> None:
        status = "FINISHED" if error is None else "KILLED" if isinstance(error, KeyboardInterrupt) else "FAILED"
        self.client.set_terminated(self.run_id, status=status)

    def _log(self, rows: Sequence[Row]) -> None:
        now, make = int(1000 * time.time()), self.package.entities.Metric
        metrics = [
            make(re.sub(NOT_IN_NAMES, "_", name), value, now, int(row["round"]))
            for row in rows
            for name, value in row.items()
            if name != "round"
        ]
        for k in range(0, len(metrics), MOST_METRICS):
            self.client.log_batch(self.run_id, metrics=metrics[k : k + MOST_METRICS])
