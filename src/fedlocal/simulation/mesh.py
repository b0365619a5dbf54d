"""The clients of a round over several devices, of one process or of many that JAX has connected.

Every device holds the whole state and problem, runs its part of the clients, and computes the server's step itself.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from fedlocal.util import checks
from fedlocal.util.hashing import fingerprint


def mesh_of(owner: str, mesh: Mesh | int | None) -> Mesh | None:
    """Return the mesh that a user asks for, by a mesh of one axis or by a number of devices; None for no mesh."""
    if mesh is None:
        return None
    if isinstance(mesh, Mesh):
        if len(mesh.axis_names) != 1:
            raise ValueError(f"{owner}: mesh must have one axis, got the axes {', '.join(map(str, mesh.axis_names))}")
        if jax.process_index() not in processes(mesh):
            raise ValueError(f"{owner}: mesh must have a device of every process that calls, got none of this one")
        return Mesh(mesh.devices, mesh.axis_names)  # with JAX's automatic kind of axis, whichever kind it had
    if isinstance(mesh, bool) or not isinstance(mesh, (int, np.integer)):
        raise TypeError(f"{owner}: mesh must be a jax.sharding.Mesh of one axis or a number of devices, got {mesh!r}")
    devices = jax.local_devices()
    if mesh > len(devices):
        advice = f"jax.config.update('jax_num_cpu_devices', {mesh}) before anything else makes so many of a CPU"
        raise ValueError(f"{owner}: mesh must be <= {len(devices)}, the devices of this process, got {mesh}; {advice}")
    return Mesh(np.array(devices[: checks.whole(owner, "mesh", mesh)]), ("clients",))


def processes(mesh: Mesh | None) -> list[int]:
    """Return the processes that a mesh has devices of; this one if there is no mesh."""
    return [jax.process_index()] if mesh is None else sorted({device.process_index for device in mesh.devices.flat})


def leads(mesh: Mesh | None) -> bool:
    """Return True if this process is the one that writes files and shows progress."""
    return jax.process_index() == processes(mesh)[0]


def replicate(mesh: Mesh, tree: Any) -> Any:
    """Put the arrays of a tree on every device of a mesh; every process must have them."""
    tree = jax.tree.map(lambda a: np.asarray(a) if getattr(a, "committed", False) else a, tree)  # bound to no device
    return jax.jit(lambda tree: tree, out_shardings=NamedSharding(mesh, PartitionSpec()))(tree)


class OnMesh:
    """Runs rounds with the state on all devices; a process evaluates and saves its own copy of the state.

    Clocks differ between processes, so they agree on the smallest number of rounds that one of them wants.
    """

    def __init__(self, mesh: Mesh, advance: Callable[[Any, int, int], tuple[Any, int]]):
        self.mesh, self.advance, self.everywhere, self.here = mesh, advance, None, None

    def __call__(self, state: Any, done: int, wanted: int) -> tuple[Any, int]:
        state = self.everywhere if state is self.here else replicate(self.mesh, state)
        if len(processes(self.mesh)) > 1:
            wanted = int(smallest(self.mesh, np.array(wanted, np.int32)))
        self.everywhere, count = self.advance(state, done, wanted)
        self.here = jax.tree.map(lambda a: a.addressable_data(0), self.everywhere)
        return self.here, count


def spread_out(
    mesh: Mesh,
    run: Callable[..., Any],
    shared: tuple[Any, ...],
    cohort: jax.Array,
    places: jax.Array,
    weights: jax.Array,
    outside: int,
) -> Any:
    """Call `run(shared, clients, places, weights, axis)` on every device, each with an equal part of the cohort.

    Parts are padded with the last client, of weight zero, at the place `outside`. All devices must return the same.
    """
    (axis,) = mesh.axis_names
    missing = -len(cohort) % mesh.size
    clients = jnp.pad(cohort, (0, missing), mode="edge")
    places = jnp.pad(places, (0, missing), constant_values=outside)
    whole, part = PartitionSpec(), PartitionSpec(axis)
    specs: dict[str, Any] = {"in_specs": (whole, part, part, part), "out_specs": whole}
    # with check_vma, every method would have to say which of its constants differ between devices
    mapped = jax.shard_map(partial(run, axis=axis), mesh=mesh, **specs, check_vma=False)
    return mapped(shared, clients, places, jnp.pad(weights, (0, missing)))


def smallest(mesh: Mesh, values: np.ndarray) -> np.ndarray:
    """Return the smallest of the values that the processes of a mesh give, entry by entry; all processes must call it."""
    (axis,) = mesh.axis_names
    own = [device for device in mesh.devices.flat if device.process_index == jax.process_index()]
    rows = [jax.device_put(values[None], device) for device in own]
    shape, sharding = (mesh.size, *values.shape), NamedSharding(mesh, PartitionSpec(axis))
    return np.asarray(_smallest_row(mesh, jax.make_array_from_single_device_arrays(shape, sharding, rows)))


def check_same_call(owner: str, mesh: Mesh, call: dict[str, Any]) -> None:
    """Raise a ValueError on all processes if their calls differ."""
    digests = np.array([int(fingerprint(value)[:7], 16) for value in call.values()], np.int32)
    differs = smallest(mesh, digests) != -smallest(mesh, -digests)
    if differs.any():
        name = list(call)[int(np.argmax(differs))]
        text = f"all processes of a mesh must make the same call; {name} differs, here it is {call[name]}"
        raise ValueError(f"{owner}: {text}")


def everywhere(mesh: Mesh, tree: Any) -> Any:
    """Inside a compiled program: keep these numbers whole on every device."""
    return jax.lax.with_sharding_constraint(tree, NamedSharding(mesh, PartitionSpec()))


@partial(jax.jit, static_argnames="mesh")
def _smallest_row(mesh: Mesh, rows: jax.Array) -> jax.Array:
    return everywhere(mesh, jnp.min(rows, axis=0))
