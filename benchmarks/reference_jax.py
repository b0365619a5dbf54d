"""W1, W2 and W3 as hand-written JAX programs, each specialised to its workload: the whole run is one compiled scan.

Each make_* returns run(rounds) -> parameters. A run starts anew from the starting point with the same random key and
blocks until the result is there. The number of rounds is static: call once with the same number before timing.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax, random

from workloads import Lasso, Logistic, Network

Layers = list[tuple[jax.Array, jax.Array]]
State = tuple[jax.Array, jax.Array, jax.Array]  # W3: dual point, intercept, step length walked


def make_w1(workload: Logistic, clients: int, block: int = 2048) -> Callable[[int], jax.Array]:
    """FedAvg on the shared logistic regression; returns run(rounds) -> weights (123,).

    Clients are vmapped in blocks that stay in the cache (block >= clients: one plain vmap).
    """
    signed = jnp.asarray(workload.labels[:, None] * workload.features)  # the loss of a row a is log(1 + exp(-a'w))
    examples, dimension = signed.shape
    steps, eta, decay = workload.local_steps, workload.client_step_size, 1 - workload.client_step_size * workload.l2
    block = min(block, clients)
    if clients % block:
        raise ValueError(f"make_w1: clients must be a multiple of block = {block}, got {clients}")

    @partial(jax.jit, static_argnums=1)
    def program(signed: jax.Array, rounds: int) -> jax.Array:
        def one_round(w: jax.Array, key: jax.Array) -> tuple[jax.Array, None]:
            # 32 random bits modulo 32,561: uniform up to 1e-5, cheaper than randint
            drawn = random.bits(key, (clients // block, block, steps)) % examples

            def step(w: jax.Array, i: jax.Array) -> tuple[jax.Array, None]:
                a = signed[i]
                return decay * w + eta * jax.nn.sigmoid(-(a @ w)) * a, None

            def add_block(total: jax.Array, drawn: jax.Array) -> tuple[jax.Array, None]:
                return total + jax.vmap(lambda i: lax.scan(step, w, i)[0])(drawn).sum(0), None

            return lax.scan(add_block, jnp.zeros(dimension), drawn)[0] / clients, None

        return lax.scan(one_round, jnp.zeros(dimension), random.split(random.key(0), rounds))[0]

    return lambda rounds: program(signed, rounds).block_until_ready()


def make_w2(workload: Network, vmap: bool = False) -> Callable[[int], Layers]:
    """FedAvg on the network; returns run(rounds) -> [(weight, bias) of each layer].

    Default: clients one after another, unrolled, their sum kept as we go. On a CPU this is about twice as fast as
    vmap=True: the weights of a client stay in the cache, products are plain matrix products instead of batched ones,
    and XLA runs independent clients of the unrolled program at the same time.
    """
    x, labels = jnp.asarray(workload.features), jnp.asarray(workload.labels)
    start = [(jnp.asarray(w), jnp.asarray(b)) for w, b in zip(workload.weights, workload.biases, strict=True)]
    clients, examples, _ = x.shape
    drawn, batch = workload.clients_per_round, workload.batch_size
    eta, eta_s = workload.client_step_size, workload.server_step_size

    def loss(layers: Layers, x: jax.Array, labels: jax.Array) -> jax.Array:
        for w, b in layers[:-1]:
            x = jax.nn.relu(x @ w + b)
        w, b = layers[-1]
        return -jnp.take_along_axis(jax.nn.log_softmax(x @ w + b), labels[:, None], axis=1).mean()

    @partial(jax.jit, static_argnums=3)
    def program(x: jax.Array, labels: jax.Array, start: Layers, rounds: int) -> Layers:
        def one_round(server: Layers, key: jax.Array) -> tuple[Layers, None]:
            choice_key, shuffle_key = random.split(key)
            who = random.choice(choice_key, clients, (drawn,), replace=False)

            def client(m: jax.Array, key: jax.Array) -> Layers:
                def step(layers: Layers, i: jax.Array) -> tuple[Layers, None]:
                    g = jax.grad(loss)(layers, x[m, i], labels[m, i])
                    return jax.tree.map(lambda p, g: p - eta * g, layers, g), None

                batches = random.permutation(key, examples).reshape(-1, batch)
                return lax.scan(step, server, batches, unroll=1 if vmap else True)[0]

            def add_client(total: Layers, m_and_key: tuple[jax.Array, jax.Array]) -> tuple[Layers, None]:
                return jax.tree.map(jnp.add, total, client(*m_and_key)), None

            keys = random.split(shuffle_key, drawn)
            if vmap:
                total = jax.tree.map(lambda p: p.sum(0), jax.vmap(client)(who, keys))
            else:
                total = lax.scan(add_client, jax.tree.map(jnp.zeros_like, server), (who, keys), unroll=5)[0]
            return jax.tree.map(lambda p, t: p + eta_s * (t / drawn - p), server, total), None

        return lax.scan(one_round, start, random.split(random.key(0), rounds))[0]

    return lambda rounds: jax.block_until_ready(program(x, labels, start, rounds))


def make_w3(workload: Lasso) -> Callable[[int], tuple[jax.Array, jax.Array]]:
    """FedDualAvg on the LASSO; returns run(rounds) -> (x (1024,), intercept ())."""
    a, b = jnp.asarray(workload.features), jnp.asarray(workload.targets)
    clients, examples, dimension = a.shape
    drawn, batch = workload.clients_per_round, workload.batch_size
    eta, eta_s = workload.client_step_size, workload.server_step_size
    full = examples // batch * batch  # examples in full batches; the rest is the short last batch

    def primal(y: jax.Array, walked: jax.Array) -> jax.Array:
        return jnp.sign(y) * jnp.maximum(jnp.abs(y) - workload.l1 * walked, 0)

    @partial(jax.jit, static_argnums=2)
    def program(a: jax.Array, b: jax.Array, rounds: int) -> tuple[jax.Array, jax.Array]:
        def one_round(server: State, key: jax.Array) -> tuple[State, None]:
            choice_key, shuffle_key = random.split(key)
            who = random.choice(choice_key, clients, (drawn,), replace=False)

            def client(m: jax.Array, key: jax.Array) -> State:
                def step(state: State, i: jax.Array) -> tuple[State, None]:
                    y, intercept, walked = state
                    rows = a[m, i]
                    r = (2 / len(i)) * (rows @ primal(y, walked) + intercept - b[m, i])
                    return (y - eta * (r @ rows), intercept - eta * r.sum(), walked + eta), None

                order = random.permutation(key, examples)
                state = lax.scan(step, server, order[:full].reshape(-1, batch))[0]
                return step(state, order[full:])[0] if full < examples else state

            ends = jax.vmap(client)(who, random.split(shuffle_key, drawn))
            return jax.tree.map(lambda s, e: s + eta_s * (e.mean(0) - s), server, ends), None

        start = (jnp.zeros(dimension), jnp.zeros(()), jnp.zeros(()))
        y, intercept, walked = lax.scan(one_round, start, random.split(random.key(0), rounds))[0]
        return primal(y, walked), intercept

    return lambda rounds: jax.block_until_ready(program(a, b, rounds))
