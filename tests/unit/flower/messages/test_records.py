"""Records from other machines: nothing is read before its size and type are known to be right."""

import io
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from fedlocal.flower.messages import records


@pytest.mark.parametrize(
    "array", [np.array(2.5), np.zeros(0), np.arange(6.0).reshape(2, 3), np.arange(3, dtype=np.float32), np.arange(4)]
)
def test_arrays_survive(array: np.ndarray):
    (read,) = records.from_record(records.to_record({"a": array})).values()
    assert (read.shape, read.dtype) == (array.shape, array.dtype)
    np.testing.assert_array_equal(read, array)


def _npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=array.dtype == object)
    return buffer.getvalue()


def _npz(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, array)
    return buffer.getvalue()


def _header(shape: tuple[int, ...]) -> bytes:
    """An array that says it is enormous, and has no content."""
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": "<f8", "fortran_order": False, "shape": shape})
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("dtype", "shape", "content", "words"),
    [
        ("float64", (3,), _npy(np.zeros(4)), r"a says float64\(3,\) and is float64\(4,\)"),
        ("float64", (3,), _npy(np.zeros(3, np.float32)), "and is float32"),
        ("float64", (3,), _npy(np.zeros(500)), "has 4128 bytes"),
        ("float64", (2**30, 2**30), b"", "has 0 bytes"),
        ("float64", (2**62, 2**62, 2**62), b"", "has 0 bytes"),
        ("object", (1,), _npy(np.array([print])), "a has the type 'object'"),
        ("<U5", (1,), _npy(np.array(["abcde"])), "a has the type '<U5'"),
        ("complex128", (1,), _npy(np.zeros(1, complex)), "a has the type 'complex128'"),
        ("bool", (1,), _npy(np.zeros(1, bool)), "a has the type 'bool'"),
        ("nonsense", (1,), b"", "a has the type 'nonsense'"),
        ("(1,2", (1,), b"", "a has the type"),
    ],
)
def test_a_record_that_lies_is_refused(dtype: str, shape: Any, content: bytes, words: str):
    with pytest.raises(ValueError, match=words):
        records.from_record(ArrayRecord({"a": Array(dtype, shape, "numpy.ndarray", content)}))


@pytest.mark.parametrize(
    ("content", "dtype"),
    [
        (b"", "float64"),
        (b"\x93NUMPY", "float64"),
        (_npy(np.zeros(3))[:-1], "float64"),
        (_header((2**45,)), "float64"),
        (_npy(np.array([print], dtype=object)), "float64"),
        (b"PK\x03\x04" + b"0" * 80, "float64"),
        (_npz(np.zeros(3)), "float64"),
    ],
)
def test_bytes_that_are_no_array_are_refused(content: bytes, dtype: str):
    """Pickles among them: NumPy is not allowed to read one."""
    with pytest.raises(ValueError, match=r"a cannot be read|a is no array"):
        records.from_record(ArrayRecord({"a": Array(dtype, (3,), "numpy.ndarray", content)}))


def test_another_serialisation_is_refused():
    with pytest.raises(ValueError, match="a cannot be read: TypeError"):
        records.from_record(ArrayRecord({"a": Array("float64", (3,), "pickle", b"0" * 20)}))


@pytest.mark.parametrize("read", [records.only_arrays, records.only_config, records.only_metrics])
def test_one_record_of_each_kind(read: Any):
    kinds = {
        records.only_arrays: lambda: ArrayRecord({"a": Array(np.zeros(1))}),
        records.only_config: lambda: ConfigRecord({"a": 1}),
        records.only_metrics: lambda: MetricRecord({"a": 1}),
    }
    make = kinds[read]
    assert list(read(RecordDict({"any name": make()}))) == ["a"]
    with pytest.raises(ValueError, match=r"^0 records of"):
        read(RecordDict())
    with pytest.raises(ValueError, match=r"^2 records of"):
        read(RecordDict({"one": make(), "two": make()}))


def test_a_list_is_no_number():
    with pytest.raises(ValueError, match="b is a list, not a number"):
        records.only_metrics(RecordDict({"m": MetricRecord({"a": 1, "b": [1.0, 2.0]})}))
