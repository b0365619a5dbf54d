"""Clients of a round over two devices, and over two processes: the same results as on one device.

As a program (`python test_mesh.py KIND NUMBER PORT FOLDER`) this file is one of the processes that the tests start.
"""

import os
import signal
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from jax.sharding import AxisType, Mesh

import fedlocal as fl
from conformance.federation import federation, start
from fedlocal.core import AbstractProblem, Batch, GradFn, Params, static
from fedlocal.simulation import driver
from fedlocal.simulation import rounds as rounds_module
from fedlocal.simulation.checkpoint import Checkpoint

SEEN: list[int] = []  # clients whose gradient was taken in this process


class Watched(AbstractProblem):
    """F_m(x) = (x - m)^2 / 2, and SEEN gets m whenever a gradient is taken."""

    num_clients: int = static()

    def init(self, key: jax.Array) -> Params:
        return jnp.zeros(())

    def gradient(self, x: Params, batch: Batch) -> Params:
        return self.full_gradient(x, batch.client)

    def full_gradient(self, x: Params, client: jax.Array) -> Params:
        jax.debug.callback(lambda m: SEEN.append(int(m)), client)
        return x - client

    def sizes(self) -> None:
        return None

    def starts(self) -> None:
        return None

    def loss_weights(self, client_weights: np.ndarray) -> np.ndarray:
        return client_weights

    def loss(self, x: Params, loss_weights: jax.Array | np.ndarray) -> jax.Array:
        return jnp.sum(loss_weights * (x - jnp.arange(self.num_clients)) ** 2) / 2


class Corrected(fl.LocalMethod):
    """FedAvg whose clients also step along the sum of the gradients that they saw before: it needs their memory."""

    step_size: float

    def init(self, x0: Params) -> Params:
        return x0

    def init_memory(self, x0: Params) -> Params:
        return jax.tree.map(jnp.zeros_like, x0)

    def start(self, server: Params, memory: Params) -> tuple[Params, Params]:
        return server, memory

    def step(self, client: tuple[Params, Params], grad_fn: GradFn) -> tuple[Params, Params]:
        x, seen = client
        seen = jax.tree.map(lambda s, g: 0.5 * s + g, seen, grad_fn(x))
        return jax.tree.map(lambda x, s: x - self.step_size * s, x, seen), seen

    def finish(self, server: Params, client: tuple[Params, Params]) -> tuple[Params, Params]:
        return client

    def update(self, server: Params, mean_message: Params, round: Any) -> Params:
        return mean_message

    def solution(self, server: Params) -> Params:
        return server

    def primal(self, client: tuple[Params, Params]) -> Params:
        return client[0]


def sparse_logistic() -> fl.problems.Logistic:
    rng = np.random.default_rng(1)
    clients = []
    for n in (3, 9, 6, 2, 5, 8, 4):
        rows = scipy.sparse.random(n, 12, density=0.4, random_state=rng, format="csr")  # pyright: ignore[reportCallIssue]
        clients.append((rows, rng.choice([-1, 1], n)))
    return fl.problems.Logistic(fl.FederatedData.from_clients(clients), l2=0.05)


def noisy() -> fl.problems.Oracle:
    rng = np.random.default_rng(2)
    return fl.problems.quadratics(
        matrices=[np.diag(rng.uniform(0.5, 2, 3)) for _ in range(5)], optima=rng.standard_normal((5, 3)), noise_std=0.3
    )


L1, METHODS = fl.regularizers.L1(0.1), fl.methods
DISCREPANCY = [fl.metrics.ClientDiscrepancy()]
Case = Callable[[], dict[str, Any]]
CASES: dict[str, Case] = {
    "epochs of minibatches, dual averaging": lambda: {
        "problem": federation(),
        "method": METHODS.FedDualAvg(0.02, 0.7, L1),
        "local_epochs": 1,
        "batch_size": 3,
        "weights": "examples",
    },
    "accelerated, averaged over local steps": lambda: {
        "problem": sparse_logistic(),
        "method": METHODS.FedAc.one(step_size=0.1, strong_convexity=0.05, local_steps=3),
        "local_steps": 3,
        "average": "third_order",
        "metrics": DISCREPANCY,
        "clients_per_round": 5,
    },
    "memory, one client at a time": lambda: {
        "problem": federation(),
        "method": Corrected(0.01),
        "local_steps": 2,
        "batch_size": 2,
        "clients_per_round": 4,
        "average": "rounds",
        "block": 1,
    },
}
THOROUGH_CASES: dict[str, Case] = {
    "unequal steps, a part of the clients, nuclear norm": lambda: {
        "problem": federation(),
        "method": METHODS.FedMiD(0.02, 0.8, fl.regularizers.Nuclear(0.2)),
        "local_steps": [1, 4, 2, 3, 2],
        "batch_size": 2,
        "clients_per_round": 3,
        "weights": "examples",
        "x0": start(False),
    },
    "memory, all clients at once, fewer than devices": lambda: {
        "problem": federation(),
        "method": Corrected(0.01),
        "local_steps": 2,
        "clients_per_round": 1,
        "metrics": DISCREPANCY,
    },
    "noise instead of data, looked at from inside": lambda: {
        "problem": noisy(),
        "method": METHODS.FedDualAvg(0.1, 1.0, L1),
        "local_steps": 2,
        "batch_size": 2,
        "average": "uniform",
        "shadow": fl.Shadow(every=3),
    },
    "total variation, two clients at a time, one number of steps each": lambda: {
        "problem": sparse_logistic(),
        "method": METHODS.FedDualAvg(0.1, 0.9, fl.regularizers.TotalVariation(0.05)),
        "local_steps": [1, 2, 3, 2, 1, 2, 3],
        "batch_size": 2,
        "weights": "examples",
        "block": 2,
    },
}
DEFAULTS = {"rounds": 7, "eval_every": 3, "seed": 3, "progress": False, "engine": "jax"}
DIVERGING: dict[str, Any] = {"rounds": 40, "local_steps": 1, "eval_every": 20, "progress": False}
FEW = ["epochs of minibatches, dual averaging"]


def run(name: str, bits: int, **changes: Any) -> fl.Result:
    """One of the cases; with 32 bits in JAX's own single precision."""
    with jax.enable_x64(bits == 64):
        arguments = DEFAULTS | (CASES | THOROUGH_CASES)[name]() | changes
        block, usual = arguments.pop("block", None), rounds_module.chunk_size
        if block is None:
            return fl.simulate(**arguments)
        rounds_module.chunk_size = lambda sent, clients: (
            block
        )  # the case is the only one with a program of these arguments
        try:
            return fl.simulate(**arguments)
        finally:
            rounds_module.chunk_size = usual


def numbers(result: fl.Result) -> dict[str, Any]:
    """All that a result says, without the clock."""
    leaves = jax.tree.leaves((result.x, result.server))
    frames = {"history": result.history.drop(columns="seconds").to_numpy()}
    if result.shadow is not None:
        frames["shadow"] = result.shadow.to_numpy()
    return {f"array {i}": np.asarray(leaf) for i, leaf in enumerate(leaves)} | frames


def largest_difference(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> float:
    """Relative to numbers above one."""
    assert set(one) == set(other)
    return max(float(np.max(np.abs(a - other[name]) / np.maximum(1, np.abs(a)))) for name, a in one.items())


def load(path: Path) -> dict[str, np.ndarray]:
    with np.load(path) as file:
        return dict(file)


# What the started processes do.


def compare(folder: Path, cases: list[str], mesh: Any, single: str | None = None) -> None:
    """Write the results of some cases, and of one in single precision."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in cases:
        np.savez(folder / f"{name} 64.npz", **numbers(run(name, 64, mesh=mesh)))
    if single is not None:
        np.savez(folder / f"{single} 32.npz", **numbers(run(single, 32, mesh=mesh)))


def watch(mesh: Mesh) -> fl.Result:
    result = fl.simulate(Watched(6), METHODS.FedAvg(0.5), rounds=2, local_steps=1, eval_every=2, mesh=mesh)
    jax.effects_barrier()
    return result


def in_devices(folder: Path) -> None:
    """What two devices of one process can show besides the cases."""
    result = watch(Mesh(np.array(jax.devices()[::-1]), ("anything",), axis_types=(AxisType.Explicit,)))
    devices = result.provenance["configuration"]["devices"]
    np.savez(folder / "watched.npz", seen=SEEN, x=result.x, devices=devices)


def in_processes(process: int, folder: Path, mesh: Mesh) -> None:
    """What two processes can show besides the cases."""
    saves: list[int] = []
    save: Any = Checkpoint.save

    def counted(self: Checkpoint, *arguments: Any) -> None:
        saves.append(1)
        save(self, *arguments)

    Checkpoint.save = counted  # pyright: ignore[reportAttributeAccessIssue]
    name, checkpoint = FEW[0], folder.parent / "checkpoint"
    run(name, 64, mesh=mesh, rounds=4, checkpoint=checkpoint)
    np.savez(folder / "resumed.npz", **numbers(run(name, 64, mesh=mesh, checkpoint=checkpoint)))
    result, seen = watch(mesh), list(SEEN)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fl.DivergenceWarning)
        left = fl.simulate(Watched(6), METHODS.FedAvg(1e60), mesh=mesh, **DIVERGING).diverged
    assert left is not None
    try:
        run(name, 64, mesh=mesh, seed=process)
        refused = ""
    except ValueError as error:
        refused = str(error)
    np.savez(folder / "watched.npz", seen=seen, x=result.x, saves=len(saves), left=left.round, refused=refused)


def killed(folder: Path, mesh: Mesh) -> None:
    """A run that takes some seconds and saves after each round."""
    name = "unequal steps, a part of the clients, nuclear norm"
    changes: dict[str, Any] = {"mesh": mesh, "rounds": 400, "eval_every": 1, "checkpoint": folder.parent / "checkpoint"}
    np.savez(folder / "killed.npz", **numbers(run(name, 64, **changes)))


def main(kind: str, process: int, port: int, folder: Path) -> None:
    warnings.simplefilter("error")
    jax.config.update("jax_enable_x64", True)
    if "devices" in kind:
        compare(folder, list(CASES if kind == "devices" else THOROUGH_CASES), 2, FEW[0])
        return in_devices(folder)
    jax.distributed.initialize(f"127.0.0.1:{port}", num_processes=2, process_id=process)
    mesh = Mesh(np.array(jax.devices()), ("sites",))
    driver.CALL_SECONDS = 0.0 if process == 1 else 10.0  # clocks that disagree
    driver.SAVE_SECONDS = 0.0
    folder.mkdir(parents=True, exist_ok=True)
    if kind == "killed":
        return killed(folder, mesh)
    if kind == "processes":
        compare(folder, FEW, mesh)
        return in_processes(process, folder, mesh)
    compare(folder, list(THOROUGH_CASES | CASES), mesh, FEW[0])
    alone = run(FEW[0], 64, mesh=1)  # of this process, and the other has no part in it
    return np.savez(folder / "alone.npz", **numbers(alone))


# The tests.


def started(kind: str, folder: Path, processes: int) -> list[subprocess.Popen[bytes]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "JAX_PLATFORMS": "cpu"}
    if "devices" in kind:
        environment["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=2"
    command = [sys.executable, __file__, kind]
    arguments = [[*command, str(i), str(port), str(folder / str(i))] for i in range(processes)]
    return [subprocess.Popen(a, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) for a in arguments]


def ended(processes: list[subprocess.Popen[bytes]], seconds: float = 240.0) -> None:
    """Wait for processes, all of which must succeed."""
    try:
        for process in processes:
            _, errors = process.communicate(timeout=seconds)
            assert process.returncode == 0, errors.decode()[-3000:]
    finally:
        for process in processes:
            process.kill()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two devices, and what two processes wrote; they run at the same time as the runs they are compared with."""
    folder = tmp_path_factory.mktemp("mesh")
    together = started("devices", folder / "devices", 1) + started("processes", folder / "processes", 2)
    try:
        compare(folder, list(CASES), None, FEW[0])
    finally:
        ended(together)
    return folder


@pytest.mark.parametrize("name", CASES)
def test_two_devices_agree_with_one(folder: Path, name: str):
    one, two = (load(folder / where / f"{name} 64.npz") for where in ("", "devices/0"))
    assert largest_difference(one, two) < 1e-12


def test_single_precision_agrees_too(folder: Path):
    one, two = (load(folder / where / f"{FEW[0]} 32.npz") for where in ("", "devices/0"))
    assert one["array 0"].dtype == two["array 0"].dtype == np.float32
    assert largest_difference(one, two) < 1e-6


@pytest.mark.parametrize("name", FEW)
def test_two_processes_agree_with_one_and_with_each_other(folder: Path, name: str):
    one, two, three = (load(folder / where / f"{name} 64.npz") for where in ("", "processes/0", "processes/1"))
    assert largest_difference(one, two) < 1e-12
    assert largest_difference(two, three) == 0


def test_every_client_is_walked_by_one_device_only(folder: Path):
    """From 0 the mean optimum 2.5 is approached by half of what is left: 1.25, 1.875."""
    watched = load(folder / "devices/0/watched.npz")
    assert sorted(watched["seen"].tolist()) == sorted(2 * list(range(6)))
    assert watched["x"] == 1.875
    assert watched["devices"] == 2
    for process, clients in enumerate([[0, 1, 2], [3, 4, 5]]):
        watched = load(folder / f"processes/{process}/watched.npz")
        assert sorted(watched["seen"].tolist()) == sorted(2 * clients)
        assert watched["x"] == 1.875


def test_the_first_process_alone_saves_and_all_resume_to_the_same_bits(folder: Path):
    for process in (0, 1):
        whole, resumed = (load(folder / f"processes/{process}/{f}.npz") for f in (f"{FEW[0]} 64", "resumed"))
        assert largest_difference(whole, resumed) == 0
        saves = load(folder / f"processes/{process}/watched.npz")["saves"]
        assert saves >= 4 if process == 0 else saves == 0


def test_one_device_continues_what_two_processes_saved(folder: Path):
    name = FEW[0]
    continued = run(name, 64, rounds=9, checkpoint=folder / "processes/checkpoint")
    whole = numbers(run(name, 64, rounds=9, eval_every=1))
    whole["history"] = whole["history"][[0, 3, 6, 9]]
    assert continued.history["round"].tolist() == [0, 3, 6, 9]
    assert largest_difference(whole, numbers(continued)) < 1e-12


def test_processes_diverge_together_and_refuse_different_calls(folder: Path):
    one, two = (load(folder / f"processes/{process}/watched.npz") for process in (0, 1))
    with pytest.warns(fl.DivergenceWarning):
        alone = fl.simulate(Watched(6), METHODS.FedAvg(1e60), **DIVERGING).diverged
    assert alone is not None
    assert one["left"] == two["left"] == alone.round
    for process, watched in enumerate((one, two)):
        assert str(watched["refused"]) == (
            f"simulate: all processes of a mesh must make the same call; seed differs, here it is {process}"
        )


@pytest.mark.parametrize(
    ("mesh", "error", "words"),
    [
        (1000, ValueError, r"mesh must be <= \d+, the devices of this process, got 1000; jax.config.update"),
        (0, ValueError, "mesh must be a whole number >= 1, got 0"),
        (True, TypeError, "mesh must be a jax.sharding.Mesh of one axis or a number of devices, got True"),
        ("two", TypeError, "got 'two'"),
    ],
)
def test_wrong_meshes_are_told(mesh: Any, error: type[Exception], words: str):
    with pytest.raises(error, match=f"simulate: .*{words}"):
        fl.simulate(federation(), METHODS.FedAvg(0.1), rounds=1, local_steps=1, mesh=mesh)


def test_a_mesh_of_two_axes_is_refused():
    mesh = Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("a", "b"))
    with pytest.raises(ValueError, match="simulate: mesh must have one axis, got the axes a, b"):
        fl.simulate(federation(), METHODS.FedAvg(0.1), rounds=1, local_steps=1, mesh=mesh)


def test_the_fused_kernels_know_no_mesh_and_auto_takes_jax():
    arguments: dict[str, Any] = {"rounds": 2, "local_steps": 1, "mesh": 1}
    with pytest.raises(
        ValueError, match=r"engine='linear' does not apply: .*not on a mesh; use engine='auto' or 'jax'"
    ):
        fl.simulate(sparse_logistic(), METHODS.FedAvg(0.1), engine="linear", **arguments)
    result = fl.simulate(sparse_logistic(), METHODS.FedAvg(0.1), **arguments)
    assert result.provenance["configuration"]["engine"] == "jax"
    assert result.provenance["configuration"]["devices"] == 1
    alone = fl.simulate(sparse_logistic(), METHODS.FedAvg(0.1), engine="jax", **{**arguments, "mesh": None})
    assert "devices" not in alone.provenance["configuration"]
    assert largest_difference(numbers(result), numbers(alone)) < 1e-12


@pytest.mark.thorough
def test_more_cases_in_devices_and_all_in_processes(folder: Path, tmp_path: Path):
    together = started("more devices", tmp_path / "devices", 1) + started("all processes", tmp_path / "processes", 2)
    compare(tmp_path, list(THOROUGH_CASES), None)
    ended(together)
    for name in CASES | THOROUGH_CASES:
        one = load((folder if name in CASES else tmp_path) / f"{name} 64.npz")
        two, three = (load(tmp_path / f"processes/{process}/{name} 64.npz") for process in (0, 1))
        assert largest_difference(one, two) < 1e-12
        assert largest_difference(two, three) == 0
        if name in THOROUGH_CASES:
            assert largest_difference(one, load(tmp_path / f"devices/0/{name} 64.npz")) < 1e-12
    for process in (0, 1):
        alone = load(tmp_path / f"processes/{process}/alone.npz")
        assert largest_difference(load(folder / f"{FEW[0]} 64.npz"), alone) < 1e-12
        single = load(tmp_path / f"processes/{process}/{FEW[0]} 32.npz")
        assert largest_difference(load(folder / f"{FEW[0]} 32.npz"), single) < 1e-6


@pytest.mark.thorough
def test_killed_processes_resume_to_the_same_bits(tmp_path: Path):
    ended(started("killed", tmp_path / "whole", 2))
    checkpoint = tmp_path / "killed/checkpoint"
    for attempt in range(3):
        processes = started("killed", tmp_path / "killed", 2)
        before = checkpoint.stat().st_mtime_ns if checkpoint.exists() else None
        while (checkpoint.stat().st_mtime_ns if checkpoint.exists() else None) == before:
            assert processes[0].poll() is None
            time.sleep(0.005)
        time.sleep(0.05 + 0.1 * attempt)  # at another moment each time
        for process in processes[:: 1 if attempt % 2 else -1]:
            assert process.poll() is None
            os.kill(process.pid, signal.SIGKILL)
            process.communicate()
    ended(started("killed", tmp_path / "killed", 2))
    whole = load(tmp_path / "whole/0/killed.npz")
    for process in (0, 1):
        assert largest_difference(whole, load(tmp_path / f"killed/{process}/killed.npz")) == 0


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
