"""W1 (256 clients), W2 and W3 in FedJAX 0.0.17, a script for another interpreter.

It reads lines such as {"workload": "w2", "rounds": 20} from stdin, runs that many rounds and answers {"seconds": ...}
on stdout, nothing else. Arguments: the workloads to build and to compile before the first line is read (default: all).

FedJAX calls jax.tree_map, which JAX has no more from 0.6.0 on. It runs unchanged, with the least cost per step, in
    pip install fedjax==0.0.17 jax==0.4.30 jaxlib==0.4.30 numpy==1.26.4 scipy==1.13.1 dm-haiku==0.0.12 optax==0.2.3
and, with that one name given back below, slower on W1 and W3 but faster on W2, in
    pip install fedjax==0.0.17 jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6 scipy==1.17.1 dm-haiku==0.0.17 optax==0.2.8
FedJAX's default backend, jit, is used: with JAX 0.4.30 pmap (one or two devices) is slower, with 0.5.3 it fails.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax

if not hasattr(jax, "tree_map"):  # JAX 0.6.0 and later
    jax.tree_map = jax.tree_util.tree_map  # pyright: ignore[reportAttributeAccessIssue]

import fedjax
import jax.numpy as jnp
import numpy as np

import workloads

Run = Callable[[int], Any]
W1_CLIENTS = 256


def make_w1() -> Run:
    """FedAvg with all clients, 16 steps on one example each.

    Differs from the workload: FedJAX has no drawing with replacement, so a client takes 16 examples of its own shuffle;
    and a client holds its own 127 examples, since FedJAX would otherwise shuffle all 32,561 for each client and round.
    """
    workload = workloads.w1()
    share = len(workload.labels) // W1_CLIENTS
    data = fedjax.InMemoryFederatedData(
        {
            f"{m:03d}": {
                "x": workload.features[m * share : (m + 1) * share],
                "y": workload.labels[m * share : (m + 1) * share],
            }
            for m in range(W1_CLIENTS)
        }
    )

    def loss(w: jax.Array, batch: dict[str, jax.Array], rng: jax.Array) -> jax.Array:
        return jnp.mean(jnp.logaddexp(0.0, -batch["y"] * (batch["x"] @ w))) + workload.l2 / 2 * jnp.sum(w * w)

    algorithm = fedjax.algorithms.fed_avg.federated_averaging(
        jax.jit(jax.grad(loss)),
        fedjax.optimizers.sgd(workload.client_step_size),
        fedjax.optimizers.sgd(1.0),
        fedjax.ShuffleRepeatBatchHParams(workload.batch_size, num_epochs=None, num_steps=workload.local_steps),
    )
    return runner(algorithm, jnp.zeros(workload.features.shape[1]), data, W1_CLIENTS)


def make_w2() -> Run:
    """FedAvg on the network: one epoch of shuffled batches on each drawn client."""
    workload = workloads.w2()
    data = fedjax.InMemoryFederatedData(
        {f"{m:04d}": {"x": x, "y": y} for m, (x, y) in enumerate(zip(workload.features, workload.labels, strict=True))}
    )

    def loss(layers: Any, batch: dict[str, jax.Array], rng: jax.Array) -> jax.Array:
        x = batch["x"]
        for w, b in layers[:-1]:
            x = jax.nn.relu(x @ w + b)
        w, b = layers[-1]
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(x @ w + b), batch["y"][:, None], axis=1))

    algorithm = fedjax.algorithms.fed_avg.federated_averaging(
        jax.jit(jax.grad(loss)),
        fedjax.optimizers.sgd(workload.client_step_size),
        fedjax.optimizers.sgd(workload.server_step_size),
        fedjax.ShuffleRepeatBatchHParams(workload.batch_size, num_epochs=1),
    )
    start = [(jnp.asarray(w), jnp.asarray(b)) for w, b in zip(workload.weights, workload.biases, strict=True)]
    return runner(algorithm, start, data, workload.clients_per_round)


def make_w3() -> Run:
    """FedDualAvg on the LASSO, written with for_each_client; state {y: dual point, intercept, walked: weight of l1}."""
    workload = workloads.w3()
    eta, eta_s = workload.client_step_size, workload.server_step_size
    data = fedjax.InMemoryFederatedData(
        {f"{m:02d}": {"x": x, "y": y} for m, (x, y) in enumerate(zip(workload.features, workload.targets, strict=True))}
    )
    shuffle = np.random.default_rng(0)

    def client_step(state: dict[str, jax.Array], batch: dict[str, jax.Array]) -> dict[str, jax.Array]:
        y = state["y"]
        x = jnp.sign(y) * jnp.maximum(jnp.abs(y) - workload.l1 * state["walked"], 0)
        r = 2 * (batch["x"] @ x + state["intercept"] - batch["y"])
        return {
            "y": y - eta * (r @ batch["x"]) / len(r),
            "intercept": state["intercept"] - eta * jnp.mean(r),
            "walked": state["walked"] + eta,
        }

    for_each_client = fedjax.for_each_client(
        lambda server, rng: server,
        client_step,
        lambda server, state: jax.tree_util.tree_map(jnp.subtract, state, server),
    )
    server_update = jax.jit(lambda server, mean: jax.tree_util.tree_map(lambda s, m: s + eta_s * m, server, mean))

    def batches(client: fedjax.ClientDataset) -> Iterator[dict[str, np.ndarray]]:
        # shuffle_repeat_batch would fill the short last batch up; shuffling first and batch() keep it short
        order = shuffle.permutation(len(client))
        shuffled = {k: v[order] for k, v in client.raw_examples.items()}
        return iter(fedjax.ClientDataset(shuffled).batch(batch_size=workload.batch_size))

    def apply(server: dict[str, jax.Array], clients: list[Any]) -> tuple[dict[str, jax.Array], dict[str, Any]]:
        work = [(name, batches(client), rng) for name, client, rng in clients]
        mean = fedjax.tree_util.tree_mean((change, 1.0) for _, change in for_each_client(server, work))
        return server_update(server, mean), {}

    algorithm = fedjax.FederatedAlgorithm(init=lambda server: server, apply=apply)
    start = {"y": jnp.zeros(workload.features.shape[2]), "intercept": jnp.zeros(()), "walked": jnp.zeros(())}
    return runner(algorithm, start, data, workload.clients_per_round)


def runner(algorithm: fedjax.FederatedAlgorithm, start: Any, data: fedjax.FederatedData, per_round: int) -> Run:
    """Return run(rounds) -> server state, as in FedJAX's own examples: sample clients, apply, repeat."""
    sampler = fedjax.client_samplers.UniformGetClientSampler(data, per_round, seed=0)

    def run(rounds: int) -> Any:
        state = algorithm.init(start)
        for _ in range(rounds):
            state, _ = algorithm.apply(state, sampler.sample())
        return jax.block_until_ready(state)

    return run


def main() -> None:
    """Build and compile the asked workloads, then answer line by line until stdin ends."""
    makers = {"w1": make_w1, "w2": make_w2, "w3": make_w3}
    runs = {name: makers[name]() for name in sys.argv[1:] or makers}
    for run in runs.values():
        run(2)
    for line in sys.stdin:
        request = json.loads(line)
        begin = time.perf_counter()
        runs[request["workload"]](request["rounds"])
        print(json.dumps({"seconds": time.perf_counter() - begin}), flush=True)


if __name__ == "__main__":
    main()
