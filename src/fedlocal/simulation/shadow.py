"""Shadow: what the proofs look at. The clients' mean trajectory and how far they are from it, at every local step.

A run is a function of its seed, so the rounds that are looked at are run a second time, beside the run, which stays as it is.
What is measured is computed in float64.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd

from fedlocal.core import AbstractProblem, Acceleration, Client, LocalMethod, Params
from fedlocal.core.schedule import at_round
from fedlocal.problems.smooth_part import SmoothPart, check_shapes, smooth_part_of
from fedlocal.simulation.clients import Iterate, Step, all_states, client_round
from fedlocal.simulation.discrepancy import first_client, vector_fields
from fedlocal.simulation.plan import Plan
from fedlocal.simulation.rounds import RunState
from fedlocal.util import checks

POINTS_AT_ONCE = 64  # at which losses and gradients over all data are taken side by side


@dataclass(frozen=True)
class Shadow:
    r"""Look at a run from inside its rounds: `simulate(..., shadow=Shadow(...))` gives `result.shadow`.

    One row for every local step (round r, step k), k = 0..K, and a last one for what the server has in the end, (R, 0). Row
    (r, K) is before the server's mean. With means over the clients of the round, by the weights of the server's mean:
        loss, objective       F and F + psi at the shadow point: the primal point of the clients' mean state
        distance              ||shadow point - x*||^2
        discrepancy           mean_m ||v_m - mean v||^2 for the vector v that clients hold (x of FedAvg, y of FedDualAvg)
        fourth_moment         mean_m ||v_m - mean v||^4
        largest_discrepancy   max_m ||v_m - mean v||^2
    Where clients hold several vectors the last three have their names behind them (`discrepancy_x`, `discrepancy_ag`), and
    where gradients are taken elsewhere there are those of that point, too: `_md` for FedAc, `_query` for other methods.
    For FedAc also:
        cross_term            mean_m ||md_m - mean md|| ||((x_m - mean x) + c (ag_m - mean ag)) / (1 + c)||, c = gamma mu
        gradient_discrepancy  ||grad F(mean md) - mean_m grad F(md_m)||^2
        psi                   mean_m F(ag_m) - F* + mu/2 ||mean x - x*||^2
        phi                   F(mean ag) - F* + mu/6 ||mean x - x*||^2
    Looking at a round costs as much as running it, and one loss for every step; for FedAc a loss and a gradient over all data
    for every client and step. The states of all its clients at all its steps are held at once.

    Args:
        solution: x*; columns that need x*, F* or mu are there when these are given.
        optimum: F* = F(x*).
        strong_convexity: mu.
        every: look at every so many rounds, from round 0 on.
        points: also keep the shadow points, (rounds, K + 1, ...) numbers of 8 bytes for each parameter, as
            `result.shadow_points`.

    Reference: dissertation, lemmas lem:fedavg:2o:ub:1, lem:fedavg:2o:ub:2, fedavg:a2:stab:main, fedaci:conv:main,
    fedaci:stab:main, fedacii:conv:main, fedacii:stab:main, pia:general, quad:stability. Differs from it: without the
    expectation, which is a mean over seeds; discrepancies of dual points in the Euclidean norm.

    >>> from fedlocal import simulate
    >>> from fedlocal.methods import FedAvg
    >>> from fedlocal.problems import quadratics
    >>> problem = quadratics(matrices=[[[1.0]], [[1.0]]], optima=[[-1.0], [1.0]])
    >>> result = simulate(problem, FedAvg(0.5), rounds=1, local_steps=2, shadow=Shadow())
    >>> result.shadow[["round", "step", "discrepancy"]].to_numpy().tolist()
    [[0.0, 0.0, 0.0], [0.0, 1.0, 0.25], [0.0, 2.0, 0.5625], [1.0, 0.0, 0.0]]
    """

    solution: Params | None = None
    optimum: float | None = None
    strong_convexity: float | None = None
    every: int = 1
    points: bool = False

    def __post_init__(self) -> None:
        checks.whole("Shadow", "every", self.every)
        if self.optimum is not None:
            checks.number("Shadow", "optimum", self.optimum)
        if self.strong_convexity is not None:
            checks.number("Shadow", "strong_convexity", self.strong_convexity, above=0)


@dataclass(frozen=True)
class ShadowRecorder:
    """Measures the rounds of one run and collects the rows."""

    shadow: Shadow
    problem: AbstractProblem
    method: LocalMethod
    plan: Plan
    mean_loss: "MeanLoss"
    known: dict[str, Any]  # of x*, F* and mu, those that are given, in float64
    rounds: dict[int, dict[str, np.ndarray]] = field(default_factory=dict)  # columns of each round
    points: dict[int, Params] = field(default_factory=dict)

    @classmethod
    def make(
        cls, owner: str, problem: AbstractProblem, method: LocalMethod, plan: Plan, shadow: Shadow
    ) -> "ShadowRecorder":
        """Check that the shadow fits the run."""
        checks.instance(owner, "shadow", shadow, Shadow)
        if not plan.equal_steps:
            needed = "the same number of local steps on every client; give local_steps=K"
            raise ValueError(f"{owner}: shadow needs {needed}")
        with jax.enable_x64(True):
            weights = plan.client_weights()
            loss_weights = jnp.asarray(problem.loss_weights(weights))
            mean_loss = MeanLoss(problem, loss_weights, smooth_part_of(problem, weights))
        names = ("solution", "optimum", "strong_convexity")
        given = {name: getattr(shadow, name) for name in names if getattr(shadow, name) is not None}
        known = jax.tree.map(partial(np.asarray, dtype=np.float64), given)
        if "solution" in known:
            check_shapes(owner, "shadow.solution", problem, known["solution"])
        return cls(shadow, problem, method, plan, mean_loss, known)

    def due(self, r: int) -> bool:
        """Return True if round r is one of those to measure."""
        return r % self.shadow.every == 0

    def watch(self, r: int, state: RunState) -> None:
        """Measure round r, which is about to begin from this state, if it is due."""
        if self.due(r):
            self._watch(r, state, all_states)

    def watch_end(self, r: int, state: RunState) -> None:
        """Measure the states that clients would start from after all r rounds."""
        self._watch(r, state, _first_state_alone)

    def _watch(self, r: int, state: RunState, iterate: Iterate) -> None:
        cohort = jnp.asarray(self.plan.cohort(r))
        if len(cohort):
            states = _states(self.problem, at_round(self.method, r), self.plan, state, cohort, r, iterate)
            self.record(r, states, self.plan.cohort_weights(np.asarray(cohort)))

    def record(self, r: int, states: Client, weights: Any) -> None:
        """Measure round r from the states (steps + 1, clients, ...) of its clients; the weights may have any sum."""
        states, weights = jax.tree.map(partial(np.asarray, dtype=np.float64), (states, weights))
        weights = weights / weights.sum()  # those of a mean in single precision add up to 1 + 3e-8
        with jax.enable_x64(True):
            columns, points = jax.device_get(
                _measure(at_round(self.method, r), self.mean_loss, self.known, states, weights)
            )
        steps = len(columns["loss"])
        self.rounds[r] = {"round": np.full(steps, r), "step": np.arange(steps), **columns}
        if self.shadow.points and steps > 1:
            self.points[r] = points

    def frame(self) -> pd.DataFrame:
        """Return all rows, in the order of the run."""
        return pd.concat([pd.DataFrame(self.rounds[r]) for r in sorted(self.rounds)], ignore_index=True)

    def trajectory(self) -> Params | None:
        """Return the shadow points (rounds, K + 1, ...), or None if they were not asked for."""
        if not self.points:
            return None
        return jax.tree.map(lambda *a: np.stack(a), *(self.points[r] for r in sorted(self.points)))

    def to_json(self) -> dict[str, dict[str, list[float]]]:
        """Return the rows as values of JSON, for a checkpoint."""
        return {str(r): {name: a.tolist() for name, a in columns.items()} for r, columns in self.rounds.items()}

    def resume(self, saved: Mapping[str, Mapping[str, list[float]]]) -> None:
        """Take over the rows of a checkpoint."""
        for r, columns in saved.items():
            self.rounds[int(r)] = {name: np.asarray(a) for name, a in columns.items()}


class MeanLoss(eqx.Module):
    """F at many points, which are stacked along the first axis of every array."""

    problem: AbstractProblem
    loss_weights: jax.Array
    smooth: SmoothPart

    def values(self, points: Params) -> jax.Array:
        return jax.lax.map(lambda x: self.problem.loss(x, self.loss_weights), points, batch_size=POINTS_AT_ONCE)

    def gradients(self, points: Params) -> Params:
        return jax.lax.map(lambda x: self.smooth.value_and_gradient(x)[1], points, batch_size=POINTS_AT_ONCE)


@partial(jax.jit, static_argnames="iterate")
def _states(
    problem: AbstractProblem, method: LocalMethod, plan: Plan, state: RunState, cohort: Any, r: int, iterate: Iterate
) -> Client:
    """Return the states (steps + 1, clients, ...) that the clients of round r go through."""
    sent = method.broadcast(state.server)

    def states(client: jax.Array, kept: Any) -> Client:
        return client_round(problem, method, plan, sent, kept, client, r, iterate).states

    return jax.vmap(states, out_axes=1)(cohort, jax.tree.map(lambda a: a[cohort], state.memory))


def _first_state_alone(step: Step, state: Client, steps: int) -> tuple[Client, Client]:
    """Take no step; return the first state, and the same as a stack of one."""
    return state, jax.tree.map(lambda a: jnp.asarray(a)[None], state)


@jax.jit
def _measure(
    method: LocalMethod, mean_loss: MeanLoss, known: dict[str, Any], states: Client, weights: jax.Array
) -> tuple[dict[str, jax.Array], Params]:
    """Return the columns of a round, and its shadow points."""
    mean = partial(_mean, weights)
    points = jax.vmap(method.primal)(mean(states))
    loss = mean_loss.values(points)
    columns = {"loss": loss, "objective": loss + jax.vmap(method.regularizer.value)(points)}
    if "solution" in known:
        columns["distance"] = _squares(optax.tree.sub(points, known["solution"]), 1)
    vectors = client_vectors(method, states, points)
    for name, vector in vectors.items():
        behind = f"_{name}" if len(vectors) > 1 else ""
        squares = _squares(_minus_mean(vector, mean(vector)), 2)
        columns[f"discrepancy{behind}"] = squares @ weights
        columns[f"fourth_moment{behind}"] = squares**2 @ weights
        columns[f"largest_discrepancy{behind}"] = jnp.max(squares, axis=1)
    accelerated = method.acceleration()
    if accelerated is not None:
        columns |= _accelerated(accelerated, mean_loss, known, vectors, weights)
    return columns, points


def client_vectors(method: LocalMethod, states: Client, points: Params) -> dict[str, Params]:
    """Return the parts of client states that have the shape of the parameters, and the points of the gradients if other."""
    fields = vector_fields(partial(first_client, method), jax.tree.map(lambda a: a[0], points))
    vectors = {f or "state": states if f is None else getattr(states, f) for f in fields}
    own: list[bool] = []

    def query(client: Client) -> Params:
        asked: list[Params] = []
        method.step(client, lambda x: asked.append(x) or optax.tree.zeros_like(x))
        held = {id(a) for a in jax.tree.leaves(client)}
        own.append(all(id(a) in held for a in jax.tree.leaves(asked[0])))
        return asked[0]

    queried = jax.vmap(jax.vmap(query))(states)
    return vectors if all(own) else vectors | {"query" if method.acceleration() is None else "md": queried}


def _accelerated(
    accelerated: Acceleration, mean_loss: MeanLoss, known: dict[str, Any], vectors: dict[str, Any], weights: jax.Array
) -> dict[str, jax.Array]:
    """Return the columns that the analyses of FedAc need besides."""
    mean = partial(_mean, weights)
    middle = {name: mean(vector) for name, vector in vectors.items()}
    away = {name: _minus_mean(vector, middle[name]) for name, vector in vectors.items()}
    apart = optax.tree.sub(mean_loss.gradients(middle["md"]), mean(_flat_map(mean_loss.gradients, vectors["md"])))
    columns = {"gradient_discrepancy": _squares(apart, 1)}
    mu = known.get("strong_convexity")
    if mu is not None:
        c = accelerated.gamma * mu
        mixed = jax.tree.map(lambda x, ag: (x + c * ag) / (1 + c), away["x"], away["ag"])
        columns["cross_term"] = jnp.sqrt(_squares(away["md"], 2) * _squares(mixed, 2)) @ weights
    if mu is not None and {"solution", "optimum"} <= known.keys():
        distance = _squares(optax.tree.sub(middle["x"], known["solution"]), 1)
        own = _flat_map(mean_loss.values, vectors["ag"]) @ weights
        columns["psi"] = own - known["optimum"] + mu / 2 * distance
        columns["phi"] = mean_loss.values(middle["ag"]) - known["optimum"] + mu / 6 * distance
    return columns


def _mean(weights: jax.Array, tree: Any) -> Any:
    """Return the mean over the clients, which are the second axis."""
    return jax.tree.map(lambda a: jnp.einsum("m,km...->k...", weights, a, precision="highest"), tree)


def _minus_mean(vectors: Params, middle: Params) -> Params:
    return jax.tree.map(lambda a, c: a - c[:, None], vectors, middle)


def _squares(vectors: Params, axes: int) -> jax.Array:
    """Return the squared norms over all but the first axes, of all arrays together."""
    return sum(jnp.sum(a**2, axis=tuple(range(axes, a.ndim))) for a in jax.tree.leaves(vectors))  # pyright: ignore


def _flat_map(fn: Any, vectors: Params) -> Any:
    """Apply a function of stacked points to points that are stacked along two axes."""
    steps, clients = jax.tree.leaves(vectors)[0].shape[:2]
    flat = jax.tree.map(lambda a: a.reshape(steps * clients, *a.shape[2:]), vectors)
    return jax.tree.map(lambda a: a.reshape(steps, clients, *a.shape[1:]), fn(flat))
