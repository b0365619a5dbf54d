"""LIBSVM's text format: one example per line, `label index:value index:value ...`, indices from one."""

import bz2
import gzip
import io
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import scipy.sparse

from fedlocal.util import checks
from fedlocal.util.files import AnyPath
from fedlocal.util.progress import ProgressBar

Piece = tuple[Any, np.ndarray]  # features (a csr_array) and labels of some examples
CHUNK = 1 << 22  # bytes of text that are parsed at a time
PLAIN = b"0123456789+-.eE: \t\r\n"  # all that most files are made of
MAX_INDEX = 2**31 - 1


def read_libsvm(path: AnyPath, num_features: int | None = None) -> tuple[scipy.sparse.csr_array, np.ndarray]:
    """Features (sparse, n x d) and labels of a file in LIBSVM's format, as text or packed by gzip or bzip2.

    Comments (`# ...`) and blank lines are passed over, indices in any order are sorted; an index that is zero or there
    twice, or anything that is no number, is an error with its line.

    Args:
        path: the file.
        num_features: d, which no index may exceed; None: the largest index of the file.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "two.svm"
    ...     _ = path.write_text("+1 1:0.5 3:2\\n-1 2:1\\n")
    ...     X, y = read_libsvm(path)
    >>> X.toarray().tolist(), y.tolist()
    ([[0.5, 0.0, 2.0], [0.0, 1.0, 0.0]], [1.0, -1.0])
    """
    if num_features is not None:
        num_features = checks.whole("read_libsvm", "num_features", num_features, at_most=MAX_INDEX)
    pieces = list(read_pieces(path, num_features))
    width = num_features or max(features.shape[1] for features, _ in pieces)
    for features, _ in pieces:
        features.resize(features.shape[0], width)
    matrix = scipy.sparse.vstack([features for features, _ in pieces], format="csr")
    return cast(scipy.sparse.csr_array, matrix), np.concatenate([labels for _, labels in pieces])


def read_pieces(path: AnyPath, num_features: int | None) -> Iterator[Piece]:
    """The file's examples in pieces that fit in memory; without `num_features` each is as wide as its largest index."""
    empty = True
    for first_line, chunk in _chunks(Path(path)):
        if b"#" in chunk:
            chunk = re.sub(rb"#[^\n]*", b"", chunk)
        if chunk.strip():
            empty = False
            yield _parse_plain(chunk, num_features) or _parse(chunk, path, first_line, num_features)
    if empty:
        raise ValueError(f"read_libsvm: {path} holds no examples")


def _chunks(path: Path) -> Iterator[tuple[int, bytes]]:
    """Whole lines of the unpacked file, about CHUNK bytes at a time, with the number of the first."""
    total = path.stat().st_size
    with path.open("rb") as file, ProgressBar(f"reading {path.name}, MB", max(1, total >> 20)) as bar:
        bar.advance_to(0)
        stream, line = _unpacked(file), 1
        try:
            while chunk := stream.read(CHUNK) + stream.readline():
                yield line, chunk
                line += chunk.count(b"\n")
                bar.advance_to(file.tell() >> 20)
        except (EOFError, zlib.error, OSError) as error:
            if isinstance(error, OSError) and error.errno:
                raise
            raise ValueError(f"read_libsvm: {path} is damaged or cut short ({error})") from None


def _unpacked(file: io.BufferedReader) -> io.BufferedIOBase:
    magic = file.peek(3)
    if magic.startswith(b"BZh"):
        return bz2.BZ2File(file)
    return gzip.GzipFile(fileobj=file) if magic.startswith(b"\x1f\x8b") else file


def _parse_plain(chunk: bytes, num_features: int | None) -> Piece | None:
    """By scikit-learn, where its parser is strict (it would take qid: or 1_0) and finds nothing wrong; else None."""
    from sklearn import datasets  # slow to import

    if chunk.translate(None, PLAIN):
        return None
    read: Any = datasets.load_svmlight_file
    try:
        rows, labels = read(io.BytesIO(chunk), n_features=num_features, zero_based=False)
    except (ValueError, OverflowError):
        return None
    parts = (rows.data, rows.indices.astype(np.int32), rows.indptr.astype(np.int32))
    return scipy.sparse.csr_array(parts, shape=rows.shape), labels


def _parse(chunk: bytes, path: AnyPath, first_line: int, num_features: int | None) -> Piece:
    """Slowly, for what `_parse_plain` leaves: unsorted indices, nan, and the line of what is wrong."""
    labels: list[float] = []
    rows: list[tuple[int, float]] = []  # (column, value), one row after the other
    starts = [0]
    for number, line in enumerate(chunk.split(b"\n"), first_line):
        tokens = line.split()
        if not tokens:
            continue
        try:
            labels.append(_number("the label", tokens[0]))
            rows += _parse_row(tokens[1:], num_features or MAX_INDEX)
        except ValueError as error:
            raise ValueError(f"read_libsvm: {path}, line {number}: {error}") from None
        starts.append(len(rows))
    columns, values = np.array([c for c, _ in rows], np.int32), np.array([v for _, v in rows], np.float64)
    width = num_features or int(columns.max(initial=0)) + 1
    return scipy.sparse.csr_array((values, columns, starts), shape=(len(labels), width)), np.array(labels)


def _parse_row(tokens: list[bytes], num_features: int) -> list[tuple[int, float]]:
    row: dict[int, float] = {}
    for token in tokens:
        index, colon, value = token.partition(b":")
        if index == b"qid":
            raise ValueError("query ids (qid:) belong to ranking and cannot be read; remove them")
        if not colon:
            raise ValueError(f"a feature must be index:value, got {_shown(token)}")
        column = _index(index) - 1
        if not 0 <= column < num_features:
            raise ValueError(f"an index must be from 1 to {num_features}, got {column + 1}")
        if column in row:
            raise ValueError(f"every index must be there once, got {column + 1} twice")
        row[column] = _number(f"the value of index {column + 1}", value)
    return sorted(row.items())


def _index(token: bytes) -> int:
    if not re.fullmatch(rb"[+-]?\d{1,18}", token):
        raise ValueError(f"an index must be a whole number, got {_shown(token)}")
    return int(token)


def _number(what: str, token: bytes) -> float:
    try:
        if b"_" not in token:  # which Python would take
            return float(token)
    except ValueError:
        pass
    raise ValueError(f"{what} must be a number, got {_shown(token)}")


def _shown(token: bytes) -> str:
    text = token.decode(errors="replace")
    return repr(text if len(text) <= 40 else text[:40] + "...")
