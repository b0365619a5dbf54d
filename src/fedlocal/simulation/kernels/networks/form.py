"""NetworkForm: what the loops of the network engine know of a method."""

from typing import NamedTuple

import equinox as eqx
import numpy as np

from fedlocal.core import LocalMethod, Separable
from fedlocal.methods.table import fields_of
from fedlocal.regularizers import L1, L1Ball, L2Ball
from fedlocal.simulation.kernels.engine import STEPS, states_its_own
from fedlocal.simulation.kernels.networks.buffers import ELASTIC, FREE, L1_BALL, L2_BALL

BALLS = {L1Ball: L1_BALL, L2Ball: L2_BALL}
NOTHING = (FREE, 0.0, 0.0)


class NetworkForm(NamedTuple):
    """A method as the loops run it: x <- x - step g, a proximal map, and V <- keep V + take mean(S - V) on the server."""

    step: float
    keep: float
    take: float
    server_step: float
    dual: bool
    client_psi: tuple[int, float, float]  # kind and strengths
    server_psi: tuple[int, float, float]

    @classmethod
    def make(cls, method: LocalMethod, steps: int) -> "NetworkForm | str":
        """The form of a method, or why it has none."""
        name, psi = type(method).__name__, method.regularizer
        affine, ball = method.affine(steps), BALLS.get(type(psi))
        if affine is None and ball is not None and fields_of(method).get("regularizer") is psi:
            # of a separable psi the form says which part of it clients and server apply
            affine = eqx.tree_at(lambda m: m.regularizer, method, L1(1.0)).affine(steps)
        if affine is None or not states_its_own(method, "affine", STEPS):
            return f"{name} is not an affine recurrence"
        one = [np.asarray(part, float).tolist() for part in (affine.query, affine.transition, affine.start)]
        if one != [[1.0], [[1.0]], [[1.0]]] or np.shape(affine.gain) != (1,):
            return f"{name}: its clients hold more than their weights"
        step, keep, take = (float(np.ravel(part)[0]) for part in (affine.gain, affine.keep, affine.take))
        found = affine.proximal
        if found is None:
            return cls(step, keep + take, take, 0.0, False, NOTHING, NOTHING)
        parts = [found.psi, found.psi if found.server_psi is None else found.server_psi]
        if ball is not None:
            psis = [(ball, float(psi.radius), 0.0) if part.l1 > 0 else NOTHING for part in parts]  # pyright: ignore
        elif not states_its_own(psi, "separable", {"array_prox", "parts", "prox"}) or any(map(_bounded, parts)):
            return f"{type(psi).__name__} is none of Zero, L1, SquaredL2, ElasticNet, L1Ball, L2Ball"
        else:
            psis = [NOTHING if part == Separable() else (ELASTIC, float(part.l1), float(part.l2)) for part in parts]
        clients, server = psis[0] if found.on_clients else NOTHING, NOTHING if found.dual else psis[1]
        return cls(step, keep + take, take, float(found.server_step), found.dual, clients, server)

    @property
    def kind(self) -> tuple[int, bool, bool, bool]:
        """Kind of the regulariser, whether gradients are taken at its proximal map, and whether clients and server apply it."""
        clients, server = self.client_psi[0], self.server_psi[0]
        return max(clients, server), self.dual, clients != FREE, server != FREE


def _bounded(psi: Separable) -> bool:
    return float(psi.lower) != -np.inf or float(psi.upper) != np.inf
