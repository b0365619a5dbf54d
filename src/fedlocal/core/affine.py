"""Affine: a method whose rounds are affine recurrences, written as matrices for the fused kernels."""

from typing import Any, NamedTuple

from fedlocal.core.regularizer import Separable
from fedlocal.core.types import Scalar


class Proximal(NamedTuple):
    """Where a regulariser enters an otherwise affine recurrence of one vector.

    Dual (averaging): the gradient is taken at prox(query'S, walked), where walked, the last part of the server's state, grows
    by `step` in each local step and by server_step times the clients' mean in a round. Otherwise (mirror descent): prox(., step)
    after each local step, and prox(., server_step times the mean length walked) after the server's.
    """

    psi: Separable
    step: Scalar
    server_step: Scalar
    dual: bool
    on_clients: bool


class Affine(NamedTuple):
    """A method whose rounds are affine recurrences of vectors of the shape of x, so that an engine may fuse them.

    With V the server's vectors (its state, in order) and S a client's:
        S = start V;   K times: g = gradient at query'S, S <- transition S - gain g;   V <- keep V + take mean(S).
    """

    query: Any  # (s,)
    transition: Any  # (s, s)
    gain: Any  # (s,)
    start: Any  # (s, v)
    keep: Any  # (v, v)
    take: Any  # (v, s)
    proximal: Proximal | None = None
