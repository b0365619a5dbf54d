"""Honest answers are inside the limits, whatever the data are; what is a little beyond them is refused.

Clients are walked here with gradients in plain NumPy, so that nothing of the bounds comes from the code that is tested.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from scipy.special import expit

import fedlocal as fl
from fedlocal.data.moments import Moments
from fedlocal.flower.checks.limits import Limits
from fedlocal.flower.checks.site_moments import LossBounds, SiteMoments
from fedlocal.flower.coordinator.schedule import Schedule
from fedlocal.flower.coordinator.server_state import Coordinator
from fedlocal.flower.messages.serialization import Payload
from fedlocal.simulation.plan import Sampling

ROWS, WIDTH, ETA, MU = 24, 4, 0.3, 0.2
L1, BOX = fl.regularizers.L1(0.4), fl.regularizers.Box(-0.1, 0.2)
METHODS: dict[str, fl.LocalMethod] = {
    "fed_avg": fl.methods.FedAvg(ETA, 1.3),
    "fed_ac_one": fl.methods.FedAc.one(step_size=ETA, strong_convexity=MU, local_steps=3),
    "fed_ac_vanilla": fl.methods.FedAc.vanilla(step_size=ETA, strong_convexity=MU),
    "fed_mid": fl.methods.FedMiD(ETA, 1.3, L1),
    "fed_mid_osp": fl.methods.FedMiD(ETA, 1.0, L1, prox_on_clients=False),
    "fed_mid_squared_l2": fl.methods.FedMiD(ETA, 1.0, fl.regularizers.SquaredL2(2.0)),
    "fed_mid_box": fl.methods.FedMiD(ETA, 1.0, BOX),
    "fed_mid_l2_ball": fl.methods.FedMiD(ETA, 1.0, fl.regularizers.L2Ball(0.1)),
    "fed_dual_avg": fl.methods.FedDualAvg(ETA, 1.3, L1),
    "fed_dual_avg_osp": fl.methods.FedDualAvg(ETA, 1.0, L1, prox_on_clients=False),
    "fed_dual_avg_box": fl.methods.FedDualAvg(ETA, 1.0, BOX),
    "subgradient": fl.methods.SubgradientFedAvg(ETA, L1),
    "minibatch_sgd": fl.methods.MinibatchSGD(ETA),
    "minibatch_ac_sgd": fl.methods.MinibatchAcSGD(ETA, MU),
    "agd": fl.methods.AGD(smoothness=1 / ETA, strong_convexity=MU),
    "proximal_gradient": fl.methods.ProximalGradient(ETA, L1),
    "accelerated": fl.methods.AcceleratedProximalGradient(ETA, L1),
}
BOUNDED = [
    name for name in METHODS if name not in ("fed_mid_box", "fed_mid_l2_ball", "subgradient", "fed_dual_avg_box")
]


def columns(kind: str, rng: np.random.Generator) -> Any:
    """The file of a site: nan where a value is missing."""
    X = rng.standard_normal((ROWS, WIDTH)) * [1, 30, 0.01, 1] + [0, 120, 0, 5]
    if kind == "heavy":
        return rng.standard_cauchy((ROWS, WIDTH)) ** 3
    if kind == "missing":
        X[rng.random(X.shape) < 0.4] = np.nan
        X[5:, 3] = np.nan
    elif kind == "rare":
        X[:, :2] = 0
        X[0, 0], X[:3, 1] = 50.0, 1.0
    elif kind == "equal":  # the bound of Cauchy and Schwarz is attained
        X = rng.choice([-1.0, 1.0], size=(ROWS, 1)) * [1, 20, 0.1, 3]
    elif kind == "sparse":
        X[rng.random(X.shape) < 0.8] = 0
        return scipy.sparse.csr_array(X)
    return X


KINDS = ("usual", "heavy", "missing", "rare", "equal", "sparse")


class Data:
    """A site's scaled rows and labels, and what the coordinator knows of them from the moments of two sites."""

    def __init__(self, kind: str, seed: int):
        self.rng = np.random.default_rng(seed)
        features = columns(kind, self.rng)
        other = columns("sparse" if kind == "sparse" else "usual", self.rng)
        moments = SiteMoments()
        moments.of = {"a": Moments.of(features), "b": Moments.of(other)}
        moments.add_up(2)
        total = moments.total
        assert total is not None
        X = total.scaling().apply(features)
        self.X = X.toarray() if scipy.sparse.issparse(X) else X
        self.X = np.where(moments.of["a"].present > 0, self.X, 0.0)  # a column with a few values is left out
        self.second_moments = moments.second_moments("a", ROWS)
        self.b = self.rng.choice([-1.0, 1.0], ROWS)

    def gradient(self, x: Any, rows: np.ndarray, l2: float) -> Any:
        """The gradient of mean log(1 + exp(-b (a'x + x0))) + l2/2 ||weights||^2 over these rows."""
        w, X, b = np.asarray(x["weights"], np.float64), self.X[rows], self.b[rows]
        u = -b * expit(-b * (X @ w + float(x["intercept"])))
        return {"intercept": jnp.asarray(u.mean()), "weights": jnp.asarray(X.T @ u / len(rows) + l2 * w)}


def answer(server: Coordinator, data: Data, steps: int, l2: float, batch: int | None) -> Payload:
    """What an honest client replies, in plain steps."""
    method, payload = server.method, server.payload
    sent = jax.tree.map(jnp.asarray, server.serializer.read_down(payload))
    client = method.start(sent, method.init_memory(server.x0))
    for _ in range(steps):
        rows = np.arange(ROWS) if batch is None else data.rng.integers(0, ROWS, batch)
        if batch == 1:
            rows = np.argmax(np.abs(data.X), axis=0)[:1]  # the worst row there is
        client = method.step(client, lambda x, rows=rows: data.gradient(x, rows, l2))
    return server.serializer.up(payload, jax.tree.map(np.asarray, method.finish(sent, client)[0]))


def begin(method: fl.LocalMethod, data: Data, size: float) -> Coordinator:
    """At the origin, at a random point, or far on the wrong side of all rows, where slopes are one."""
    w = np.zeros(WIDTH) if size == 0 else size * data.rng.standard_normal(WIDTH)
    if size > 10:
        w = -size * np.sign(data.X.T @ data.b)
    with jax.enable_x64(True):
        return Coordinator(method, {"intercept": np.zeros(()), "weights": w})


def check_honest_rounds(name: str, kind: str, size: float, l2: float, batch: int | None, seed: int = 0) -> None:
    """Three rounds of different lengths; every honest answer passes, with the numbers that are expected."""
    data = Data(kind, seed)
    server = begin(METHODS[name], data, size)
    limits = Limits(server, LossBounds(slope=1.0, curvature=0.25, l2=l2))
    moments = data.second_moments * (1 if batch is None else ROWS)
    with jax.enable_x64(True):
        for steps in (3, 1, 20):
            reply = answer(server, data, steps, l2, batch)
            limits.check(reply, steps, moments)
            numbers = limits.numbers(steps)
            assert numbers == pytest.approx({n: reply.numbers[n] for n in numbers}, rel=1e-12)
            assert set(numbers) == server.serializer.numbers
            server.step(reply)
            limits.check_gradient(data.gradient(server.solution(), np.arange(ROWS), l2), data.second_moments)


PAIRS = [(name, kind) for name in METHODS for kind in KINDS]


def _is_usual(name: str, kind: str) -> bool:
    """One kind of every method, and every kind with a sixth of the methods."""
    return (list(METHODS).index(name) + KINDS.index(kind)) % len(KINDS) == 0


@pytest.mark.parametrize(
    ("name", "kind"),
    [pytest.param(*pair, marks=() if _is_usual(*pair) else pytest.mark.thorough) for pair in PAIRS],
)
def test_honest_answers_pass(name: str, kind: str):
    for size, l2, batch in [(0.0, 0.0, None), (2.0, 0.5, None), (30.0, 0.0, None), (30.0, 1.5, 1)]:
        check_honest_rounds(name, kind, size, l2, batch)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", METHODS)
def test_honest_answers_pass_again_and_again(name: str, kind: str):
    for seed in range(1, 6):
        for size, l2, batch in [(0.0, 0.1, 5), (1.0, 3.0, None), (30.0, 0.0, None), (100.0, 0.5, 1)]:
            check_honest_rounds(name, kind, size, l2, batch, seed)


@pytest.mark.parametrize("name", BOUNDED)
@pytest.mark.parametrize("steps", [1, 5])
def test_answers_beyond_the_bound_are_refused(name: str, steps: int):
    """A client whose gradients are almost as large as they can be, and one whose are a little larger."""
    data = Data("usual", 3)
    with jax.enable_x64(True):  # so far from zero that no threshold is crossed
        server = Coordinator(METHODS[name], {"intercept": np.zeros(()), "weights": np.full(WIDTH, 9.0)})
    limits = Limits(server, LossBounds(slope=1.0, curvature=0.25))
    largest = {"intercept": np.ones(()), "weights": np.sqrt(data.second_moments)}
    with jax.enable_x64(True):
        for part in largest:
            for times, fine in ((0.99, True), (1.01, False)):
                pushed = {n: jnp.asarray(a * (times if n == part else 0.5)) for n, a in largest.items()}
                reply = constant(server, steps, pushed)
                if fine:
                    limits.check(reply, steps, data.second_moments)
                else:
                    with pytest.raises(
                        ValueError, match=rf"{part} moved 1.0\d* times as far as its moments and the step"
                    ):
                        limits.check(reply, steps, data.second_moments)


def constant(server: Coordinator, steps: int, g: Any) -> Payload:
    method, sent = server.method, jax.tree.map(jnp.asarray, server.serializer.read_down(server.payload))
    client = method.start(sent, method.init_memory(server.x0))
    for _ in range(steps):
        client = method.step(client, lambda x: g)
    return server.serializer.up(server.payload, jax.tree.map(np.asarray, method.finish(sent, client)[0]))


def test_a_gradient_beyond_the_bound_is_refused():
    data = Data("usual", 4)
    server = begin(METHODS["fed_avg"], data, 2.0)
    limits = Limits(server, LossBounds(slope=1.0, curvature=0.25, l2=0.3))
    w = np.abs(np.asarray(server.x0["weights"]))
    largest = {"intercept": np.ones(()), "weights": np.sqrt(data.second_moments) + 0.3 * w}
    limits.check_gradient({n: 0.999 * a for n, a in largest.items()}, data.second_moments)
    for part in largest:
        wrong = {n: a * (1.01 if n == part else 0.5) for n, a in largest.items()}
        with pytest.raises(ValueError, match=r"its gradient is 1.01 times as large as its moments allow"):
            limits.check_gradient(wrong, data.second_moments)


@pytest.mark.parametrize("name", ["fed_mid_box", "fed_mid_l2_ball", "subgradient"])
def test_methods_without_a_bound_are_not_held_against_one(name: str):
    server = begin(METHODS[name], Data("usual", 5), 0.0)
    assert not Limits(server, LossBounds(slope=1.0, curvature=0.25)).bounded


def test_losses_without_a_bound_of_the_slope_are_not_checked():
    server = begin(METHODS["fed_avg"], Data("usual", 5), 0.0)
    far = Payload({name: a + 1e9 for name, a in server.payload.arrays.items()}, {})
    Limits(server, LossBounds(slope=None, curvature=2.0)).check(far, 1, np.ones(WIDTH))
    Limits(server, None).check(far, 1, np.ones(WIDTH))


@pytest.mark.parametrize("rows", [1, 7, 8, 9, 16, 23])
def test_the_smallest_batch(rows: int):
    """An epoch cuts the rows into pieces; single steps draw with replacement, perhaps one row again and again."""
    pieces = [len(range(rows)[first : first + 8]) for first in range(0, rows, 8)]
    epochs = Schedule.make("test", 1, 1, Sampling(local_epochs=2, batch_size=8))
    assert epochs.smallest_batch(rows) == min(pieces)
    steps = Schedule.make("test", 1, 1, Sampling(local_steps=40, batch_size=8))
    assert steps.smallest_batch(rows) == 1
    assert Schedule.make("test", 1, 1, Sampling(local_steps=1)).smallest_batch(rows) == rows
