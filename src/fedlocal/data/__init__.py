"""Data: the dissertation's generators, embedded sets, real sets to read or fetch, and ways to deal rows to clients."""

from fedlocal.data import partition
from fedlocal.data.adult import a9a
from fedlocal.data.catalogue import fetch, load, verify
from fedlocal.data.epsilon import epsilon, epsilon_like
from fedlocal.data.files import feature_columns, read_examples
from fedlocal.data.heart import heart_disease, hospital
from fedlocal.data.libsvm import read_libsvm
from fedlocal.data.moments import Moments, Scaling
from fedlocal.data.synthetic import synthetic_lasso, synthetic_low_rank

__all__ = [
    "Moments",
    "Scaling",
    "a9a",
    "epsilon",
    "epsilon_like",
    "feature_columns",
    "fetch",
    "heart_disease",
    "hospital",
    "load",
    "partition",
    "read_examples",
    "read_libsvm",
    "synthetic_lasso",
    "synthetic_low_rank",
    "verify",
]
