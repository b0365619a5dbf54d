"""Callbacks: what follows a run while it runs, for `callbacks=` of `fl.simulate` and `fl.loop`.

A callback is a function of (round, row, x), which is called after every evaluation, or an object of a class with the functions
of `Callback`. A class of a logging service imports the service's package when it is made.
"""

from fedlocal.callbacks.base import Callback
from fedlocal.callbacks.csv import CSV
from fedlocal.callbacks.mlflow import MLflow
from fedlocal.callbacks.tensorboard import TensorBoard
from fedlocal.callbacks.wandb import WandB

__all__ = ["CSV", "Callback", "MLflow", "TensorBoard", "WandB"]


def __dir__() -> list[str]:
    return sorted(__all__)
