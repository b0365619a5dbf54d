"""Data: the dissertation's generators, embedded sets, and ways to deal rows to clients."""

from fedlocal.data import partition
from fedlocal.data.adult import a9a
from fedlocal.data.synthetic import synthetic_lasso, synthetic_low_rank

__all__ = ["a9a", "partition", "synthetic_lasso", "synthetic_low_rank"]
