"""The problem of a speed-up study: l2-regularised logistic regression, whose clients draw from all examples."""

from functools import cached_property
from typing import Any

import numpy as np

from fedlocal import data as sets
from fedlocal.core import AbstractProblem, Params
from fedlocal.data.federated_data import FederatedData
from fedlocal.experiments.studies.speedup.settings import SpeedupSettings
from fedlocal.problems import Logistic


def make_problem(settings: SpeedupSettings, *, seed: int, clients: int | None) -> AbstractProblem:
    """Return the problem of a number of clients; nothing is drawn."""
    if clients is None:
        raise ValueError(f"problem_of: {settings.name} has runs with many numbers of clients; say which with clients=")
    return SpeedupTask(settings).problem(clients)


def make_start(settings: SpeedupSettings) -> Params:
    """Return the point from which all runs start."""
    return {"weights": SpeedupTask(settings).start}


class SpeedupTask:
    """The data, stored once for all numbers of clients, and the starting point of all runs."""

    def __init__(self, settings: SpeedupSettings):
        self.settings = settings
        self._problems: dict[int, Logistic] = {}

    @cached_property
    def data(self) -> FederatedData:
        """All examples, as one client's."""
        wanted = self.settings.data
        if wanted.name == "a9a":
            examples = sets.a9a()
        elif wanted.name == "epsilon-like":
            examples = sets.epsilon_like(**wanted.generator)
        else:
            try:
                examples = sets.epsilon()
            except (ValueError, OSError) as error:
                raise ValueError(f"{error}; --set data.name=epsilon-like runs with generated data instead") from None
        return FederatedData.shared(*examples, num_clients=1)

    def problem(self, clients: int) -> Logistic:
        """Return the problem of this number of clients, each of whom draws from all examples."""
        if clients not in self._problems:
            data = FederatedData.shared(*self.data.arrays, num_clients=clients)
            self._problems[clients] = Logistic(data, l2=self.settings.l2, intercept=False)
        return self._problems[clients]

    @cached_property
    def start(self) -> np.ndarray:
        """A standard normal vector; with `start_seed` 1 it is that of the author's published runs."""
        features: Any = self.data.arrays[0]
        return np.random.RandomState(self.settings.start_seed).standard_normal(features.shape[1])
