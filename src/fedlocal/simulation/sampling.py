"""Sampling: who takes part in a round, how much each client computes, and from which examples."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedlocal.core.types import Weights
from fedlocal.util import checks


@dataclass(frozen=True)
class Sampling:
    """The arguments of a run that say which clients and examples it takes, as the user gave them; `Plan.make` checks them.

    Args:
        local_steps: steps of a client in a round; one number, or one per client.
        local_epochs: instead of `local_steps`: passes over the client's shuffled examples.
        batch_size: examples per step; None takes the full local gradient.
        clients_per_round: how many clients take part in a round; None means all.
        weights: weights of the clients in the mean and in the loss.
        seed: everything random is a function of this integer.
    """

    local_steps: int | Sequence[int] | None = None
    local_epochs: int | None = None
    batch_size: int | None = None
    clients_per_round: int | None = None
    weights: Weights = "uniform"
    seed: int = 0


def local_work(owner: str, local_steps: Any, local_epochs: Any, clients: int) -> tuple[list[int] | None, int | None]:
    """Return the local steps of each client, or the epochs of all of them; exactly one of the two must be given."""
    if (local_steps is None) == (local_epochs is None):
        got = "neither" if local_steps is None else f"local_steps={local_steps} and local_epochs={local_epochs}"
        raise ValueError(f"{owner}: give either local_steps or local_epochs, got {got}")
    if local_steps is None:
        return None, checks.whole(owner, "local_epochs", local_epochs)
    if np.ndim(local_steps) == 0:
        return [checks.whole(owner, "local_steps", local_steps)] * clients, None
    if len(local_steps) != clients:
        raise ValueError(
            f"{owner}: local_steps must be one number or one per client ({clients}), got {len(local_steps)}"
        )
    return [checks.whole(owner, "local_steps", k) for k in local_steps], None
