"""A short run for tests of callbacks: whole, interrupted and resumed."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedlocal as fl

PROBLEM = fl.problems.quadratics(matrices=[[[1.0]], [[3.0]]], optima=[[0.0], [1.0]])


def short_run(*callbacks: Any, run: Any = fl.simulate, **arguments: Any) -> fl.Result:
    """Six rounds, evaluated before and after every second of them."""
    common = {"rounds": 6, "eval_every": 2, "local_steps": 1, "x0": np.array([2.0]), **arguments}
    return run(PROBLEM, fl.methods.FedAvg(0.1), callbacks=callbacks, **common)


def interrupt(round: int, row: dict[str, float], x: np.ndarray) -> None:
    """What Ctrl-C does at the evaluation after round 2."""
    if round == 2:
        raise KeyboardInterrupt


def interrupted_run(callback: Any, checkpoint: Path) -> None:
    """A run that Ctrl-C ends after the callback has seen round 2; its checkpoint is that of round 2."""
    with pytest.raises(KeyboardInterrupt, match="stopped after round 2"):
        short_run(callback, interrupt, checkpoint=checkpoint)


def rows_of(result: fl.Result) -> list[dict[str, float]]:
    return result.history.to_dict("records")  # pyright: ignore[reportReturnType]
