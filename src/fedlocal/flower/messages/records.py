"""Flower's records: arrays and plain values, checked before they are used."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MessageType, RecordDict

from fedlocal.flower._flwr.messages import ErrorCode

ARRAYS, METRICS, CONFIG = "arrays", "metrics", "config"
EXAMPLES, WEIGHT = "num-examples", "weight"
HEADER_BYTES = 1024  # an array of n bytes may take so many more
TYPES = ("float16", "float32", "float64", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)))
LARGEST_BYTES = 1 << 32  # of an array from another machine


def query(node: int, values: dict[str, Any], ttl: float) -> Message:
    """Return a question of plain values to a node."""
    return Message(RecordDict({CONFIG: ConfigRecord(values)}), node, MessageType.QUERY, ttl=ttl)


def error_reply(message: Message, error: Exception | str) -> Message:
    """Return the reply that a message was not answered. The text of an exception stays in the site's log: it may quote data."""
    reason = error if isinstance(error, str) else f"{type(error).__name__}; the log of the site says more"
    return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason), reply_to=message)


def to_record(arrays: Mapping[str, Any]) -> ArrayRecord:
    """Return named arrays as a record."""
    return ArrayRecord({name: Array(np.asarray(a)) for name, a in arrays.items()})


def overwrite(record: ArrayRecord, new: ArrayRecord) -> None:
    """Replace the arrays of a record in place, so that a wrapper or a result that holds the record sees them."""
    record.clear()
    record.update(new)


def from_record(record: ArrayRecord) -> dict[str, np.ndarray]:
    """Return the arrays of a record. Type and shape are checked before the bytes of an array are read, and again after."""
    arrays = {}
    for name, array in record.items():
        if array.dtype not in TYPES:
            raise ValueError(f"{name} has the type {array.dtype[:40]!r}")
        dtype = np.dtype(array.dtype)
        size = dtype.itemsize * int(np.prod(array.shape, dtype=object))
        if size > LARGEST_BYTES or len(array.data) > size + HEADER_BYTES:
            raise ValueError(f"{name} says {dtype}{tuple(array.shape)} and has {len(array.data)} bytes")
        try:
            read = array.numpy()
        except Exception as error:  # whatever NumPy has against bytes from another machine
            raise ValueError(f"{name} cannot be read: {type(error).__name__}") from None
        if not isinstance(read, np.ndarray):
            raise ValueError(f"{name} is no array")
        if read.dtype != dtype or read.shape != tuple(array.shape):
            raise ValueError(f"{name} says {dtype}{tuple(array.shape)} and is {read.dtype}{read.shape}")
        arrays[name] = read
    return arrays


def only_arrays(content: RecordDict) -> dict[str, np.ndarray]:
    """Return the arrays of a message that must hold one record of them."""
    return from_record(_only(content.array_records, "arrays"))


def only_config(content: RecordDict) -> dict[str, Any]:
    """Return the plain values of a message that must hold one record of them."""
    return dict(_only(content.config_records, "plain values").items())


def only_metrics(content: RecordDict) -> dict[str, float]:
    """Return the numbers of a message that must hold one record of them."""
    numbers = dict(_only(content.metric_records, "numbers").items())
    lists = [name for name, value in numbers.items() if isinstance(value, list)]
    if lists:
        raise ValueError(f"{lists[0]} is a list, not a number")
    return numbers


def _only(records: Mapping[str, Any], what: str) -> Any:
    if len(records) != 1:
        raise ValueError(f"{len(records)} records of {what}, not one")
    return next(iter(records.values()))
