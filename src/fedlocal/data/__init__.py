"""Data: the dissertation's generators, embedded data sets, data sets to read or fetch, and partitioners."""

from fedlocal.data import partition
from fedlocal.data.catalogue import fetch, load, verify
from fedlocal.data.files import Examples, feature_columns, read_examples
from fedlocal.data.libsvm import read_libsvm
from fedlocal.data.moments import Moments, Scaling
from fedlocal.data.sets.adult import a9a
from fedlocal.data.sets.fmri_scans import haxby, haxby_scans, read_haxby_array, read_haxby_images
from fedlocal.data.sets.handwriting import digits, femnist, mnist_by_writer, read_femnist, read_mnist_by_writer
from fedlocal.data.sets.heart import heart_disease, hospital
from fedlocal.data.sets.pascal_epsilon import epsilon, epsilon_like
from fedlocal.data.synthetic import synthetic_lasso, synthetic_low_rank

__all__ = [
    "Examples",
    "Moments",
    "Scaling",
    "a9a",
    "digits",
    "epsilon",
    "epsilon_like",
    "feature_columns",
    "femnist",
    "fetch",
    "haxby",
    "haxby_scans",
    "heart_disease",
    "hospital",
    "load",
    "mnist_by_writer",
    "partition",
    "read_examples",
    "read_femnist",
    "read_haxby_array",
    "read_haxby_images",
    "read_libsvm",
    "read_mnist_by_writer",
    "synthetic_lasso",
    "synthetic_low_rank",
    "verify",
]


def __dir__() -> list[str]:
    return sorted(__all__)
