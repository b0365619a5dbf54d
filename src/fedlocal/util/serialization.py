"""Pytrees as named arrays and as bytes, for checkpoints and messages. Nothing in them can be executed."""

import io
from typing import IO, Any

import jax
import numpy as np


def to_arrays(tree: Any) -> dict[str, np.ndarray]:
    """Return the arrays of a pytree by their path, e.g. {"y/weights": ..., "walked": ...}.

    >>> to_arrays({"a": [1.0, 2.0]})
    {'a/0': array(1.), 'a/1': array(2.)}
    """
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {path_name(path): np.asarray(leaf) for path, leaf in leaves}


def from_arrays(arrays: dict[str, np.ndarray], like: Any) -> Any:
    """Return the pytree with the structure of `like`; names, shapes and types must be those of `like`."""
    leaves, treedef = jax.tree_util.tree_flatten_with_path(like)
    names = [path_name(path) for path, _ in leaves]
    if set(names) != set(arrays):
        missing, foreign = sorted(set(names) - set(arrays)), sorted(set(arrays) - set(names))
        raise ValueError(f"serialization: arrays do not match: missing {missing}, unknown {foreign}")
    for name, (_, leaf) in zip(names, leaves, strict=True):
        shape, dtype = np.shape(leaf), leaf.dtype if hasattr(leaf, "dtype") else np.asarray(leaf).dtype
        if arrays[name].shape != shape or arrays[name].dtype != dtype:
            got = f"{arrays[name].dtype}{arrays[name].shape}"
            raise ValueError(f"serialization: array {name!r} must be {dtype}{shape}, got {got}")
    return jax.tree.unflatten(treedef, [arrays[name] for name in names])


def to_bytes(tree: Any) -> bytes:
    """Return a pytree as bytes (NumPy's npz, without pickle)."""
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **to_arrays(tree))  # pyright: ignore[reportArgumentType]
    return buffer.getvalue()


def from_bytes(content: bytes, like: Any) -> Any:
    """Return the pytree that `to_bytes` wrote, checked against `like`."""
    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        return from_arrays({name: file[name] for name in file.files}, like)


def open_npz(file: IO[bytes]) -> np.lib.npyio.NpzFile:
    """Return an opened file, which may hold anything, as NumPy's npz, or raise a ValueError."""
    start = file.read(6)
    file.seek(0)
    if start == b"\x93NUMPY":
        raise ValueError("it holds a single array")
    if not start.startswith(b"PK"):  # of every zip file; NumPy takes all else for pickled objects
        raise ValueError("it is no npz file")
    opened: Any = np.load(file, allow_pickle=False)
    return opened


def array_of(file: np.lib.npyio.NpzFile, name: str) -> np.ndarray:
    """Return an array of an npz file, or raise a ValueError."""
    if name not in file.files:
        raise ValueError(f"it has no {name}")
    try:
        return file[name]
    except ValueError as error:
        if "pickle" in str(error):  # NumPy advises to load it unsafely
            raise ValueError(f"its array {name} holds objects of Python") from None
        raise


def path_name(path: tuple[Any, ...]) -> str:
    """Return the name of the array at this path of a pytree."""
    return jax.tree_util.keystr(path, simple=True, separator="/") or "value"
