"""W1 in vectorised NumPy, plain and tuned: all clients side by side as one matrix, one gather per local step."""

from collections.abc import Callable

import numpy as np

from workloads import Logistic


def make_plain(workload: Logistic, clients: int) -> Callable[[int], np.ndarray]:
    """Return run(rounds) -> weights (123,): the formulas, vectorised over clients, in the data's float32."""
    features, labels = workload.features, workload.labels
    eta, l2 = np.float32(workload.client_step_size), np.float32(workload.l2)

    def run(rounds: int) -> np.ndarray:
        rng = np.random.default_rng(0)
        w = np.zeros(features.shape[1], np.float32)
        for _ in range(rounds):
            W = np.repeat(w[None], clients, axis=0)
            for _ in range(workload.local_steps):
                drawn = rng.integers(len(labels), size=clients)
                a, b = features[drawn], labels[drawn]
                slope = -b / (1 + np.exp(b * np.einsum("md,md->m", a, W)))
                W -= eta * (slope[:, None] * a + l2 * W)
            w = W.mean(axis=0)
        return w

    return run


def make(workload: Logistic, clients: int) -> Callable[[int], np.ndarray]:
    """Return run(rounds) -> weights (123,), which starts anew from zero at each call.

    Three things make it about twice as fast as the plain transcription: labels are multiplied into the rows once;
    client weights are kept as scale * q with one scalar `scale` for all clients, so that the l2 decay costs nothing;
    and the two large buffers are used again. Walking through the clients in blocks of cache size gained nothing more.
    """
    signed = workload.labels[:, None] * workload.features  # rows b a: the loss is log(1 + exp(-(b a)'w))
    examples, dimension = signed.shape
    steps, eta = workload.local_steps, workload.client_step_size
    decay = 1.0 - eta * workload.l2
    q = np.empty((clients, dimension), np.float32)
    rows = np.empty_like(q)

    def run(rounds: int) -> np.ndarray:
        rng = np.random.default_rng(0)
        w = np.zeros(dimension, np.float32)
        for _ in range(rounds):
            drawn = rng.integers(examples, size=(steps, clients), dtype=np.int32).astype(np.intp)
            q[:] = w
            scale = 1.0
            for k in range(steps):
                np.take(signed, drawn[k], axis=0, out=rows, mode="clip")
                c = np.vecdot(rows, q)
                c *= np.float32(scale)
                np.exp(c, out=c)
                c += 1
                scale *= decay
                np.divide(np.float32(eta / scale), c, out=c)
                np.multiply(rows, c[:, None], out=rows)
                np.add(q, rows, out=q)
            # no matrix product here: BLAS threads keep spinning afterwards and halve whatever is timed next
            w = q.mean(axis=0) * np.float32(scale)
        return w

    return run


def make_fed_ac(workload: Logistic, clients: int) -> Callable[[int], np.ndarray]:
    """Return run(rounds) -> weights (123,): FedAc-I by its formulas, vectorised over clients, in the data's float32."""
    features, labels = workload.features, workload.labels
    eta, l2 = np.float32(workload.client_step_size), np.float32(workload.l2)
    gamma = max(np.sqrt(eta / (l2 * np.float32(workload.local_steps))), eta)
    alpha = np.float32(1) / (gamma * l2)
    beta = alpha + np.float32(1)

    def run(rounds: int) -> np.ndarray:
        rng = np.random.default_rng(0)
        w = ag = np.zeros(features.shape[1], np.float32)
        for _ in range(rounds):
            W, AG = np.repeat(w[None], clients, axis=0), np.repeat(ag[None], clients, axis=0)
            for _ in range(workload.local_steps):
                drawn = rng.integers(len(labels), size=clients)
                a, b = features[drawn], labels[drawn]
                MD = W / beta + (1 - 1 / beta) * AG
                slope = -b / (1 + np.exp(b * np.einsum("md,md->m", a, MD)))
                gradient = slope[:, None] * a + l2 * MD
                AG = MD - eta * gradient
                W = (1 - 1 / alpha) * W + MD / alpha - gamma * gradient
            w, ag = W.mean(axis=0), AG.mean(axis=0)
        return ag

    return run
