"""Plan: the clients, local steps and minibatches of every round, which depend on seed, round and client alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from fedlocal.core import AbstractProblem, Batch, static
from fedlocal.core.types import Weights
from fedlocal.problems.smooth_part import client_weights
from fedlocal.samplers import SAMPLERS, AnySampler, Listed, Sampler, WithoutReplacement, sampler_of
from fedlocal.util import checks
from fedlocal.util.placement import on_device

COHORT_BLOCK = 64  # rounds whose clients are drawn together
SMALL_CLIENT = 2**16  # examples
OWN_KEY = 1 << 20  # is folded into a client's key for the draws of random losses


@dataclass(frozen=True)
class Sampling:
    """The arguments of `simulate` that say which clients and examples a run takes; `Plan.make` checks them."""

    local_steps: int | Sequence[int] | None = None
    local_epochs: int | None = None
    batch_size: int | None = None
    clients_per_round: int | None = None
    weights: Weights = "uniform"
    seed: int = 0
    sampler: AnySampler = "uniform"


def local_work(owner: str, local_steps: Any, local_epochs: Any, clients: int) -> tuple[list[int] | None, int | None]:
    """Return the local steps of each client, or the epochs of all of them; exactly one of the two must be given."""
    if (local_steps is None) == (local_epochs is None):
        got = "neither" if local_steps is None else f"local_steps={local_steps} and local_epochs={local_epochs}"
        raise ValueError(f"{owner}: give either local_steps or local_epochs, got {got}")
    if local_steps is None:
        return None, checks.whole(owner, "local_epochs", local_epochs)
    if np.ndim(local_steps) == 0:
        return [checks.whole(owner, "local_steps", local_steps)] * clients, None
    if (got := len(local_steps)) != clients:
        raise ValueError(f"{owner}: local_steps must be one number or one per client ({clients}), got {got}")
    return [checks.whole(owner, "local_steps", k) for k in local_steps], None


class Draws(NamedTuple):
    """The minibatches of a client's round."""

    rows: jax.Array  # (K, B) rows of the data
    weights: jax.Array | None  # (K, B); None where all minibatches are full
    key: jax.Array | None  # for losses that are random themselves


class Cohorts:
    """The clients of every round, which are drawn on the host and are arguments of compiled programs.

    Programs read nothing of it, so that any two are equal to JAX, which then shares programs between them.
    """

    def __init__(self, sampler: Sampler, seed: int, most: int, weights: np.ndarray, rounds: int):
        self.sampler, self.seed, self.most, self.weights, self.rounds = sampler, seed, most, weights, rounds
        self.table = lru_cache(maxsize=8)(self._table)
        self.counts = [0]  # of clients that took part before each block
        self.first = np.full(len(weights), np.inf)  # (M,) the first round of each client, as far as it is known
        self.known = 0  # rounds whose clients are in `first`

    def block(self, number: int) -> np.ndarray:
        """(COHORT_BLOCK, S) the clients of the rounds number * COHORT_BLOCK, ..., each row sorted; -1 stands for nobody."""
        if type(self.sampler) is WithoutReplacement:
            return cohort_table(self.seed, len(self.weights), self.most, number)
        return self.table(number)

    def plain(self) -> dict[str, Any]:
        """Return values and arrays of which `from_plain` makes the same: the sampler's name, or the clients of all rounds."""
        name = next((name for name, kind in SAMPLERS.items() if type(self.sampler) is kind), None)
        parts: dict[str, Any] = {"sampler": name, "seed": self.seed, "most": self.most, "weights": self.weights}
        if name is None:
            blocks = [self.block(number) for number in range(-(-self.rounds // COHORT_BLOCK))]
            parts["table"] = np.concatenate([np.empty((0, self.most), np.int32), *blocks])[: self.rounds]
        return {**parts, "rounds": self.rounds}

    @classmethod
    def from_plain(cls, parts: dict[str, Any]) -> "Cohorts":
        """Return what `plain` was called of."""
        if parts["sampler"] is None:
            sampler: Sampler = Listed([row[row >= 0] for row in parts["table"]])
        else:
            sampler = SAMPLERS[parts["sampler"]]()
        return cls(sampler, parts["seed"], parts["most"], parts["weights"], parts["rounds"])

    def took_part(self, rounds: int) -> int:
        """Return how many clients took part in the first so many rounds, each counted once a round."""
        if type(self.sampler) is WithoutReplacement:
            return rounds * self.most
        number, rest = divmod(rounds, COHORT_BLOCK)
        while len(self.counts) <= number:
            self.counts.append(self.counts[-1] + _different(self.block(len(self.counts) - 1)))
        return self.counts[number] + _different(self.block(number)[:rest])

    def seen(self, rounds: int) -> np.ndarray:
        """(M,) True for each client that took part in one of the first so many rounds; each round is looked at once."""
        while self.known < rounds and np.isinf(self.first).any():
            number, i = divmod(self.known, COHORT_BLOCK)
            clients = self.block(number)[i]
            clients = clients[clients >= 0]
            self.first[clients] = np.minimum(self.first[clients], self.known)
            self.known += 1
        return self.first < rounds

    def _table(self, number: int) -> np.ndarray:
        rng = _generator(self.seed, number)
        table = np.full((COHORT_BLOCK, self.most), -1, np.int32)
        for i, row in enumerate(table):
            clients = self.sampler.choose(number * COHORT_BLOCK + i, self.most, self.weights, rng)
            row[: len(clients)] = np.sort(np.asarray(clients))
        table.setflags(write=False)
        return table

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cohorts)

    def __hash__(self) -> int:
        return hash(Cohorts)


class Plan(eqx.Module):
    """The checked `Sampling` of a run on one problem, and the functions that draw from its seed."""

    seed: int  # an argument of compiled programs, so that all seeds share one
    starts: jax.Array | None  # (M,) first row of each client
    sizes: jax.Array | None  # (M,) examples of each client
    steps: jax.Array  # (M,) local steps of each client in a round
    mean_weights: np.ndarray  # (M,) weight of each client in the mean, before normalising over a round's clients
    first: int  # number of the first client here among all clients: a site that runs alone draws the same as in a simulation
    num_clients: int = static()
    clients_per_round: int = static()
    batch_size: int | None = static()
    epochs: int | None = static()
    largest: int = static()
    most_steps: int = static()
    equal_steps: bool = static()
    ragged_batches: bool = static()
    random_losses: bool = static()  # True if minibatches have keys besides their rows
    full_participation: bool = static()  # True if every round has all clients
    may_miss: bool = static()  # True if a round may have fewer clients than `clients_per_round`
    equal_mean: bool = static()  # True if a round's mean is not weighted
    chosen: Cohorts = static()

    @classmethod
    def make(cls, problem: AbstractProblem, sampling: Sampling, owner: str = "simulate", rounds: int = 0) -> "Plan":
        """Check the sampling of a run of so many rounds against its problem."""
        batch_size, weights = sampling.batch_size, sampling.weights
        clients, sizes, starts = problem.num_clients, problem.sizes(), problem.starts()
        given, local_epochs = local_work(owner, sampling.local_steps, sampling.local_epochs, clients)
        if batch_size is not None:
            batch_size = checks.whole(owner, "batch_size", batch_size)
        if local_epochs is None:
            steps = np.array(given)
        elif sizes is None:
            raise ValueError(f"{owner}: {type(problem).__name__} has no examples to go through; give local_steps")
        else:
            steps = local_epochs * (np.ones_like(sizes) if batch_size is None else -(-sizes // batch_size))
        if problem.random_losses and batch_size is None:
            raise ValueError(f"{owner}: give batch_size, since the loss takes a key, and full gradients are not random")
        p = client_weights(owner, problem, weights)
        sampler, per_round = sampler_of(owner, sampling.sampler, rounds, clients), sampling.clients_per_round
        if per_round is not None:
            per_round = checks.whole(owner, "clients_per_round", per_round, at_most=clients)
        most, always = sampler.largest(rounds, clients, per_round)
        seed = checks.whole(owner, "seed", sampling.seed, at_least=0, at_most=2**31 - 1)
        epochs = local_epochs if batch_size is not None else None
        return cls(
            starts=None if starts is None else on_device(starts),
            sizes=None if sizes is None else on_device(sizes),
            steps=on_device(np.asarray(steps, np.int32)),
            mean_weights=_mean_weights(weights, p, sizes),
            first=0,
            seed=seed,
            num_clients=clients,
            clients_per_round=most,
            batch_size=batch_size,
            epochs=epochs,
            largest=1 if sizes is None else int(sizes.max()),
            most_steps=int(steps.max()),
            equal_steps=bool((steps == steps[0]).all()),
            ragged_batches=epochs is not None and bool((sizes % batch_size != 0).any()),  # pyright: ignore
            random_losses=problem.random_losses,
            full_participation=most == clients and always and not sampler.equal_mean,
            may_miss=not always,
            equal_mean=sampler.equal_mean,
            chosen=Cohorts(sampler, seed, most, p, rounds),
        )

    @property
    def fewest_steps(self) -> int:
        """The local steps of the client that takes the fewest."""
        return self.most_steps if self.equal_steps else int(np.asarray(self.steps).min())

    def client_weights(self) -> np.ndarray:
        """(M,) weights p of the objective F = sum_m p_m F_m, in float64."""
        weights = np.asarray(self.mean_weights, np.float64)
        return weights / weights.sum()

    def cohort(self, r: int) -> np.ndarray:
        """The clients of round r."""
        block, i = divmod(r, COHORT_BLOCK)
        clients = self.cohorts(block)[i]
        return clients[clients >= 0]

    def cohorts(self, block: int) -> np.ndarray:
        """The clients of COHORT_BLOCK rounds; -1 stands for nobody."""
        return self.chosen.block(block)

    def round_key(self, r: jax.Array | int) -> jax.Array:
        return jax.random.fold_in(jax.random.key(self.seed), r)

    def draws(self, round_key: jax.Array, client: jax.Array) -> Any:
        """Draw all minibatches of a client's round: rows and weights, or a key where the problem has no data."""
        key = jax.random.fold_in(round_key, self.first + client)
        if self.batch_size is None:
            return ()
        if self.sizes is None or self.starts is None:
            return key
        start, size = self.starts[client], self.sizes[client]
        own = jax.random.fold_in(key, OWN_KEY) if self.random_losses else None
        if self.epochs is None:
            return Draws(start + self._with_replacement(key, size), None, own)
        order = self._shuffles(key, size)
        per_epoch = -(-size // self.batch_size)
        epoch, batch = jnp.divmod(jnp.arange(self.most_steps), per_epoch)
        places = batch[:, None] * self.batch_size + jnp.arange(self.batch_size)
        inside = places < size
        rows = start + order[epoch[:, None], jnp.where(inside, places, 0)]
        if not self.ragged_batches:
            return Draws(rows, None, own)
        shares = inside.astype(float) / jnp.maximum(jnp.sum(inside, axis=1, keepdims=True), 1)
        return Draws(rows, shares, own)

    def batch(self, draws: Any, client: jax.Array, k: jax.Array | int) -> Batch:
        """The minibatch of a client's local step k."""
        assert self.batch_size is not None
        if not isinstance(draws, Draws):
            return Batch(client, None, None, jax.random.split(jax.random.fold_in(draws, k), self.batch_size))
        of_step = lambda a: jax.lax.dynamic_index_in_dim(a, k, 0, keepdims=False)  # noqa: E731
        rows, weights = jax.tree.map(of_step, (draws.rows, draws.weights))
        keys = None if draws.key is None else jax.random.split(jax.random.fold_in(draws.key, k), self.batch_size)
        return Batch(client, rows, weights, keys)

    def _shuffles(self, key: jax.Array, size: jax.Array) -> jax.Array:
        """(E, n) a random order of the client's rows for each epoch; entries after its last row have no meaning."""
        n = self.largest
        drawn = jax.random.bits(key, (self.epochs or 1, n), jnp.uint32)
        drawn = jnp.where(jnp.arange(n) < size, drawn, np.uint32(2**32 - 1))
        if n > 512:  # fewer are ranked by comparing all pairs, which processors do faster than they sort
            return jnp.argsort(drawn, axis=1).astype(jnp.int32)
        smaller = drawn[:, None, :] < drawn[:, :, None]
        earlier = (drawn[:, None, :] == drawn[:, :, None]) & np.tri(n, k=-1, dtype=bool)
        return jnp.sum(smaller | earlier, axis=2, dtype=jnp.int32)

    def _with_replacement(self, key: jax.Array, size: jax.Array) -> jax.Array:
        """(K, B) rows of a client. Small clients take 32 random bits modulo their size: uniform up to a factor 1 + 2^-16."""
        shape = (self.most_steps, self.batch_size or 1)
        if self.largest > SMALL_CLIENT:
            return jax.random.randint(key, shape, 0, size, jnp.int32)
        return (jax.random.bits(key, shape, jnp.uint32) % size.astype(jnp.uint32)).astype(jnp.int32)

    def cohort_weights(self, cohort: Any) -> Any:
        """(S,) weights of the mean over a round's clients, with any sum, in the precision that they were given in."""
        return np.ones(len(cohort)) if self.equal_mean else self.mean_weights[cohort]

    def normalized_weights(self, cohort: jax.Array) -> jax.Array:
        """(S,) weights of the mean over a round's clients; those of nobody, -1, are zero."""
        weights = jnp.asarray(self.cohort_weights(cohort), float)
        if not self.may_miss:
            return weights / jnp.sum(weights)
        weights = jnp.where(cohort >= 0, weights, 0)
        return weights / jnp.where(jnp.any(cohort >= 0), jnp.sum(weights), 1)


def _mean_weights(weights: Weights, p: np.ndarray, sizes: np.ndarray | None) -> np.ndarray:
    """Numbers that float32 holds exactly where there are such."""
    if isinstance(weights, str):
        return np.ones(len(p)) if weights == "uniform" else np.asarray(sizes, float)
    return p


def _different(cohorts: np.ndarray) -> int:
    """How many different clients there are in each of these sorted rows, added up."""
    if cohorts.size == 0:
        return 0
    new = np.diff(cohorts, axis=1, prepend=-1) != 0
    return int(np.sum(new & (cohorts >= 0)))


def _generator(seed: int, block: int) -> np.random.Generator:
    """What the clients of a block of rounds are drawn from."""
    return np.random.Generator(np.random.Philox(key=seed, counter=[0, 0, 0, block]))


@lru_cache(maxsize=8)
def cohort_table(seed: int, clients: int, per_round: int, block: int) -> np.ndarray:
    """What `Cohorts.block` returns for uniform draws, in time and memory of their number alone."""
    if per_round == clients:
        return np.broadcast_to(np.arange(clients, dtype=np.int32), (COHORT_BLOCK, clients))
    rng = _generator(seed, block)
    table = np.empty((COHORT_BLOCK, per_round), np.int32)
    for row in table:
        row[:] = rng.choice(clients, per_round, replace=False, shuffle=False)
    table.sort(axis=1)
    table.setflags(write=False)  # the cache hands out the same array again
    return table
