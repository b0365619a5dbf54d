"""on_device: a NumPy array as a JAX array; Rounding: what JAX rounded on the way."""

import warnings
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import scipy.sparse


def on_device(a: Any) -> jax.Array:
    """Return a copy of an array or number on the device; `jnp.asarray` would compile a program for every new shape.

    >>> on_device([1.0, 2.0]).tolist()
    [1.0, 2.0]
    """
    return jax.device_put(np.array(a))


class PrecisionWarning(UserWarning):
    """Numbers that were rounded to 32 bits are computed with in 64 bits."""


class Rounding:
    """Which arrays JAX rounded when data were made, and whether the user was told. Programs read nothing of it.

    Any two are equal to JAX, which then shares programs between them. It is no part of a fingerprint of the data.

    Args:
        arrays: the numbers of the arrays that were rounded, from 0.
    """

    def __init__(self, arrays: Sequence[int] = ()):
        self.arrays, self.told = tuple(arrays), False

    @classmethod
    def of(cls, given: Sequence[Any], made: Sequence[Any]) -> "Rounding":
        """Compare arrays that the user gave with what JAX made of them; arrays of JAX itself are what they are.

        Args:
            given: whatever NumPy makes an array of, and SciPy's sparse matrices.
            made: for each of them something with its dtype.
        """
        return cls([i for i, pair in enumerate(zip(given, made, strict=True)) if _differ(*pair)])

    def check(self, owner: str, stacklevel: int = 3) -> None:
        """Warn, once for these data, if JAX computes in 64 bits now.

        Args:
            owner: who calls; the warning begins with it.
            stacklevel: of `warnings.warn`; 3 shows the line that calls the owner, if that calls this.
        """
        if not self.arrays or self.told or jax.dtypes.canonicalize_dtype(float) != np.float64:
            return
        self.told = True
        which = ", ".join(map(str, self.arrays))
        what = f"JAX rounded the data (array {which}) to 32 bits, since jax_enable_x64 was off when they were made"
        advice = 'it is on now; call jax.config.update("jax_enable_x64", True) before the data are made'
        warnings.warn(f"{owner}: {what}; {advice}", PrecisionWarning, stacklevel=stacklevel)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rounding)

    def __hash__(self) -> int:
        return hash(Rounding)


def _differ(given: Any, made: Any) -> bool:
    if given is made or isinstance(given, jax.Array):
        return False
    source = scipy.sparse.csr_array(given).data if scipy.sparse.issparse(given) else np.asarray(given)
    kept = np.dtype(made.dtype)
    with np.errstate(over="ignore"):  # what becomes infinite is refused elsewhere
        return source.dtype.itemsize > kept.itemsize and bool((source.astype(kept) != source).any())
