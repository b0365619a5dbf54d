"""Shadow: what the proofs look at. The clients' mean trajectory and how far they are from it, at every local step.

A run is a function of its seed, so the rounds that are looked at are walked a second time, beside the run, which stays as it
is. What is measured is computed in float64.
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

from fedlocal import checks
from fedlocal.core import AbstractProblem, Client, LocalMethod, Params
from fedlocal.engines.plan import Plan
from fedlocal.engines.rounds import RunState, client_step, first_client, vector_fields
from fedlocal.means import SmoothPart, check_shapes, smooth_part
from fedlocal.methods import FedAc

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
    Columns that need x*, F* or mu are there when these are given. `points` also keeps the shadow points, (rounds, K + 1, ...)
    numbers of 8 bytes for each parameter, as `result.shadow_points`. Looking at a round costs as much as running it, and one
    loss for every step; for FedAc a loss and a gradient over all data for every client and step. The states of all its
    clients at all its steps are held at once.
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

    solution: Params | None = None  # x*
    optimum: float | None = None  # F* = F(x*)
    strong_convexity: float | None = None  # mu
    every: int = 1  # rounds from one that is looked at to the next
    points: bool = False

    def __post_init__(self) -> None:
        checks.whole("Shadow", "every", self.every)
        if self.optimum is not None:
            checks.number("Shadow", "optimum", self.optimum)
        if self.strong_convexity is not None:
            checks.number("Shadow", "strong_convexity", self.strong_convexity, above=0)


@dataclass
class Watcher:
    """Looks at the rounds of one run."""

    owner: str
    shadow: Shadow
    problem: AbstractProblem
    method: LocalMethod
    plan: Plan
    rounds: dict[int, dict[str, np.ndarray]] = field(default_factory=dict)  # columns of each round
    points: dict[int, Params] = field(default_factory=dict)

    def __post_init__(self) -> None:
        checks.instance(self.owner, "shadow", self.shadow, Shadow)
        if not self.plan.equal_steps:
            raise ValueError(
                f"{self.owner}: shadow needs the same number of local steps on every client; give local_steps=K"
            )
        with jax.enable_x64(True):
            weights = self.plan.client_weights()
            self.mean_loss = MeanLoss(
                self.problem, jnp.asarray(self.problem.loss_weights(weights)), smooth_part(self.problem, weights)
            )
        known = {name: getattr(self.shadow, name) for name in ("solution", "optimum", "strong_convexity")}
        self.known = {
            name: jax.tree.map(partial(np.asarray, dtype=np.float64), value)
            for name, value in known.items()
            if value is not None
        }
        if "solution" in self.known:
            check_shapes(self.owner, "shadow.solution", self.problem, self.known["solution"])

    def due(self, r: int) -> bool:
        """Whether round r is one of those to look at."""
        return r % self.shadow.every == 0

    def watch(self, r: int, state: RunState) -> None:
        """Look at round r, which is about to begin from this state, if it is due."""
        if self.due(r):
            self._walk(r, state, self.plan.most_steps)

    def watch_end(self, r: int, state: RunState) -> None:
        """Look at what there is after all r rounds."""
        self._walk(r, state, 0)

    def record(self, r: int, trail: Client, weights: Any) -> None:
        """Measure round r from the states (steps + 1, clients, ...) that its clients went through; weights of any sum."""
        trail, weights = jax.tree.map(partial(np.asarray, dtype=np.float64), (trail, weights))
        weights = weights / weights.sum()  # those of a mean in single precision add up to 1 + 3e-8
        with jax.enable_x64(True):
            columns, points = jax.device_get(_measure(self.method, self.mean_loss, self.known, trail, weights))
        steps = len(columns["loss"])
        self.rounds[r] = {"round": np.full(steps, r), "step": np.arange(steps), **columns}
        if self.shadow.points and steps > 1:
            self.points[r] = points

    def frame(self) -> pd.DataFrame:
        """All rows, in the order of the run."""
        return pd.concat([pd.DataFrame(self.rounds[r]) for r in sorted(self.rounds)], ignore_index=True)

    def trajectory(self) -> Params | None:
        """The shadow points (rounds, K + 1, ...) where they were asked for."""
        if not self.points:
            return None
        return jax.tree.map(lambda *a: np.stack(a), *(self.points[r] for r in sorted(self.points)))

    def to_json(self) -> dict[str, dict[str, list[float]]]:
        """For a checkpoint."""
        return {str(r): {name: a.tolist() for name, a in columns.items()} for r, columns in self.rounds.items()}

    def resume(self, saved: Mapping[str, Mapping[str, list[float]]]) -> None:
        """Continue from a checkpoint."""
        self.rounds = {int(r): {name: np.asarray(a) for name, a in columns.items()} for r, columns in saved.items()}

    def _walk(self, r: int, state: RunState, steps: int) -> None:
        cohort = jnp.asarray(self.plan.cohort(r))
        trail = _trail(self.problem, self.method, self.plan, state.server, state.memory, cohort, r, steps)
        self.record(r, trail, self.plan.mean_weights[cohort])


class MeanLoss(eqx.Module):
    """F at many points, which are stacked along the first axis of every array."""

    problem: AbstractProblem
    loss_weights: jax.Array
    smooth: SmoothPart

    def values(self, points: Params) -> jax.Array:
        return jax.lax.map(lambda x: self.problem.loss(x, self.loss_weights), points, batch_size=POINTS_AT_ONCE)

    def gradients(self, points: Params) -> Params:
        return jax.lax.map(lambda x: self.smooth.value_and_gradient(x)[1], points, batch_size=POINTS_AT_ONCE)


@partial(jax.jit, static_argnames="steps")
def _trail(
    problem: AbstractProblem,
    method: LocalMethod,
    plan: Plan,
    server: Any,
    memory: Any,
    cohort: jax.Array,
    r: jax.Array | int,
    steps: int,
) -> Client:
    """(steps + 1, clients, ...) states that the clients of round r go through."""
    sent, key = method.broadcast(server), plan.round_key(r)
    draws = jax.vmap(lambda m: plan.draws(key, m))(cohort)
    kept = jax.tree.map(lambda a: a[cohort], memory)
    clients = jax.vmap(lambda _, kept: method.start(sent, kept))(cohort, kept)

    def step(clients: Client, k: jax.Array) -> tuple[Client, Client]:
        moved = jax.vmap(partial(client_step, problem, method, plan, k))(clients, cohort, draws)
        return moved, moved

    _, after = jax.lax.scan(step, clients, jnp.arange(steps))
    return jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest]), clients, after)


@jax.jit
def _measure(
    method: LocalMethod, mean_loss: MeanLoss, known: dict[str, Any], trail: Client, weights: jax.Array
) -> tuple[dict[str, jax.Array], Params]:
    """The columns of a round, and its shadow points."""
    mean = partial(_mean, weights)
    points = jax.vmap(method.primal)(mean(trail))
    loss = mean_loss.values(points)
    psi = getattr(method, "regularizer", None)
    columns = {"loss": loss, "objective": loss if psi is None else loss + jax.vmap(psi.value)(points)}
    if "solution" in known:
        columns["distance"] = _squares(_minus(points, known["solution"]), 1)
    vectors = client_vectors(method, trail, points)
    for name, vector in vectors.items():
        behind = f"_{name}" if len(vectors) > 1 else ""
        squares = _squares(_minus_mean(vector, mean(vector)), 2)
        columns[f"discrepancy{behind}"] = squares @ weights
        columns[f"fourth_moment{behind}"] = squares**2 @ weights
        columns[f"largest_discrepancy{behind}"] = jnp.max(squares, axis=1)
    if isinstance(method, FedAc):
        columns |= _accelerated(method, mean_loss, known, vectors, weights)
    return columns, points


def client_vectors(method: LocalMethod, trail: Client, points: Params) -> dict[str, Params]:
    """What clients hold that has the shape of the parameters, and where they take gradients if that is none of it."""
    fields = vector_fields(partial(first_client, method), jax.tree.map(lambda a: a[0], points))
    vectors = {f or "state": trail if f is None else getattr(trail, f) for f in fields}
    own: list[bool] = []

    def query(client: Client) -> Params:
        asked: list[Params] = []
        method.step(client, lambda x: asked.append(x) or optax.tree.zeros_like(x))
        held = {id(a) for a in jax.tree.leaves(client)}
        own.append(all(id(a) in held for a in jax.tree.leaves(asked[0])))
        return asked[0]

    queried = jax.vmap(jax.vmap(query))(trail)
    return vectors if all(own) else vectors | {"md" if isinstance(method, FedAc) else "query": queried}


def _accelerated(
    method: FedAc, mean_loss: MeanLoss, known: dict[str, Any], vectors: dict[str, Params], weights: jax.Array
) -> dict[str, jax.Array]:
    """What the analyses of FedAc need besides."""
    mean = partial(_mean, weights)
    middle = {name: mean(vector) for name, vector in vectors.items()}
    away = {name: _minus_mean(vector, middle[name]) for name, vector in vectors.items()}
    apart = _minus(mean_loss.gradients(middle["md"]), mean(_flat_map(mean_loss.gradients, vectors["md"])))
    columns = {"gradient_discrepancy": _squares(apart, 1)}
    mu = known.get("strong_convexity")
    if mu is not None:
        c = method.gamma * mu
        mixed = jax.tree.map(lambda x, ag: (x + c * ag) / (1 + c), away["x"], away["ag"])
        columns["cross_term"] = jnp.sqrt(_squares(away["md"], 2) * _squares(mixed, 2)) @ weights
    if mu is not None and {"solution", "optimum"} <= known.keys():
        distance = _squares(_minus(middle["x"], known["solution"]), 1)
        own = _flat_map(mean_loss.values, vectors["ag"]) @ weights
        columns["psi"] = own - known["optimum"] + mu / 2 * distance
        columns["phi"] = mean_loss.values(middle["ag"]) - known["optimum"] + mu / 6 * distance
    return columns


def _mean(weights: jax.Array, tree: Any) -> Any:
    """The mean over the clients, which are the second axis."""
    return jax.tree.map(lambda a: jnp.einsum("m,km...->k...", weights, a, precision="highest"), tree)


def _minus(vectors: Params, others: Params) -> Params:
    return jax.tree.map(jnp.subtract, vectors, others)


def _minus_mean(vectors: Params, middle: Params) -> Params:
    return jax.tree.map(lambda a, c: a - c[:, None], vectors, middle)


def _squares(vectors: Params, axes: int) -> jax.Array:
    """Squared norms over all but the first axes, of all arrays together."""
    return sum(jnp.sum(a**2, axis=tuple(range(axes, a.ndim))) for a in jax.tree.leaves(vectors))  # pyright: ignore


def _flat_map(fn: Any, vectors: Params) -> Any:
    """A function of stacked points, for points that are stacked along two axes."""
    steps, clients = jax.tree.leaves(vectors)[0].shape[:2]
    flat = jax.tree.map(lambda a: a.reshape(steps * clients, *a.shape[2:]), vectors)
    return jax.tree.map(lambda a: a.reshape(steps, clients, *a.shape[1:]), fn(flat))
