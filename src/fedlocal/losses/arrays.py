"""The functions of arrays that a loss is written with: those of NumPy and SciPy, or those of JAX."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.special
import numpy as np
import scipy.special


def array_namespace(a: Any) -> Any:
    """Return `jax.numpy` if a is a JAX array (also a traced one), else `numpy`."""
    return jnp if isinstance(a, jax.Array) else np


def special_functions(a: Any) -> Any:
    """Return `jax.scipy.special` if a is a JAX array (also a traced one), else `scipy.special`."""
    return jax.scipy.special if isinstance(a, jax.Array) else scipy.special
