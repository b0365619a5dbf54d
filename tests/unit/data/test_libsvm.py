"""LIBSVM's format: read as scikit-learn reads it, in any packing and any pieces; what is wrong is told with its line."""

import bz2
import gzip
import io
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

from fedlocal.data import libsvm, read_libsvm

over = pytest.mark.parametrize
PACKERS: dict[str, Callable[[bytes], bytes]] = {"plain": bytes, "gz": gzip.compress, "bz2": bz2.compress}
TEXT = b"# made by hand\n+1 1:0.5 3:-2e-1\n\n-1\r\n  2.5\t2:1 # the third\n+1 4:+.25"
MATRIX = [[0.5, 0, -0.2, 0], [0, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0.25]]
LABELS = [1, -1, 2.5, 1]


def written(folder: Path, content: bytes) -> Path:
    path = folder / "examples"  # the packing is told by the content, not by the name
    path.write_bytes(content)
    return path


def random_text(rows: int = 200, features: int = 50) -> bytes:
    rng = np.random.default_rng(0)
    matrix = scipy.sparse.random_array((rows, features), density=0.1, rng=rng, data_sampler=rng.standard_normal)
    text = io.BytesIO()
    dump_svmlight_file(scipy.sparse.csr_matrix(matrix), rng.standard_normal(rows), text, zero_based=False)
    return text.getvalue()


@over("packing", PACKERS)
def test_text_comes_back_as_a_sparse_matrix(packing: str, tmp_path: Path):
    X, y = read_libsvm(written(tmp_path, PACKERS[packing](TEXT)))
    assert isinstance(X, scipy.sparse.csr_array)
    assert X.toarray().tolist() == MATRIX
    assert X.nnz == 4
    assert y.tolist() == LABELS
    assert (X.dtype, y.dtype) == (np.float64, np.float64)


@over("chunk", [1, 100, 1 << 22])
@over("packing", PACKERS)
def test_it_is_what_scikit_learn_reads_whatever_the_pieces(
    packing: str, chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(libsvm, "CHUNK", chunk)
    text = random_text()
    X, y = read_libsvm(written(tmp_path, PACKERS[packing](text)))
    expected_X, expected_y = load_svmlight_file(io.BytesIO(text), zero_based=False)  # pyright: ignore[reportArgumentType]
    for part in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(X, part), getattr(expected_X, part))
    assert X.shape == expected_X.shape
    np.testing.assert_array_equal(y, expected_y)


def test_the_slow_parser_reads_what_the_fast_one_does():
    fast, slow = libsvm._parse_plain(random_text(), None), libsvm._parse(random_text(), "file", 1, None)
    assert fast is not None
    for part in ("data", "indices", "indptr", "shape"):
        np.testing.assert_array_equal(getattr(fast[0], part), getattr(slow[0], part))
    np.testing.assert_array_equal(fast[1], slow[1])


def test_unsorted_indices_are_sorted(tmp_path: Path):
    X, _ = read_libsvm(written(tmp_path, b"1 3:3 1:1 2:2\n-1 2:5\n"))
    assert X.has_canonical_format
    assert X.indices.tolist() == [0, 1, 2, 1]
    assert X.toarray().tolist() == [[1, 2, 3], [0, 5, 0]]


def test_num_features_sets_the_width(tmp_path: Path):
    assert read_libsvm(written(tmp_path, TEXT), num_features=9)[0].shape == (4, 9)
    with pytest.raises(ValueError, match=r"line 6: an index must be from 1 to 3, got 4$"):
        read_libsvm(written(tmp_path, TEXT), num_features=3)
    with pytest.raises(ValueError, match=r"^read_libsvm: num_features must be a whole number >= 1 .*, got 0$"):
        read_libsvm(written(tmp_path, TEXT), num_features=0)


ERRORS = {
    "query id": (b"1 qid:3 1:1", r"query ids \(qid:\)"),
    "zero index": (b"1 0:1 2:1", "an index must be from 1 to 2147483647, got 0$"),
    "negative index": (b"1 -2:1", "got -2$"),
    "huge index": (b"1 99999999999:1", "got 99999999999$"),
    "twice": (b"1 2:1 2:1", "every index must be there once, got 2 twice$"),
    "twice, unsorted": (b"1 2:1 1:1 2:1", "got 2 twice$"),
    "no value": (b"1 2:", "the value of index 2 must be a number, got ''$"),
    "no colon": (b"1 2", "a feature must be index:value, got '2'$"),
    "two colons": (b"1 2:3:4", "the value of index 2 must be a number, got '3:4'$"),
    "space before the colon": (b"1 2 :3", "got '2'$"),
    "word as value": (b"1 2:many", "got 'many'$"),
    "word as label": (b"yes 2:1", "the label must be a number, got 'yes'$"),
    "no label": (b"2:1 3:1", "the label must be a number, got '2:1'$"),
    "two labels": (b"1,2 2:1", "the label must be a number, got '1,2'$"),
    "broken index": (b"1 1.5:1", "an index must be a whole number, got '1.5'$"),
    "digits of Python": (b"1 2:1_0", "got '1_0'$"),
    "index of Python": (b"1 1_0:1", "got '1_0'$"),
    "bytes": (b"\x00\xff" * 100, "the label must be a number, got .{40,200}[.]{3}'$"),
}


@over("chunk", [8, 1 << 22])
@over("name", ERRORS)
def test_what_is_wrong_is_told_with_file_and_line(
    name: str, chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(libsvm, "CHUNK", chunk)
    line, sentence = ERRORS[name]
    path = written(tmp_path, b"1 1:1\n# comment\n\n1 2:3\n" + line + b"\n1 1:1\n")
    with pytest.raises(ValueError, match=f"^read_libsvm: {path}, line 5: .*{sentence}"):
        read_libsvm(path)


@over("content", [b"", b"\n\n", b"# nothing\n"])
def test_a_file_without_examples_is_an_error(content: bytes, tmp_path: Path):
    with pytest.raises(ValueError, match=r"examples holds no examples$"):
        read_libsvm(written(tmp_path, content))


@over("packing", ["gz", "bz2"])
def test_a_packed_file_that_was_cut_or_damaged_is_told(packing: str, tmp_path: Path):
    whole = PACKERS[packing](random_text())
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 0xFF
    for content in (whole[:-20], bytes(damaged)):
        with pytest.raises(ValueError, match="examples is damaged or cut short"):
            read_libsvm(written(tmp_path, content))


def test_the_unpacked_text_is_never_whole_in_memory(tmp_path: Path):
    lines, line = 40, b"1 1:1 2:1 " + b" " * (1 << 20) + b"\n"  # 40 MB
    path = written(tmp_path, gzip.compress(lines * line, compresslevel=1))
    tracemalloc.start()
    X, _ = read_libsvm(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert X.shape == (lines, 2)
    assert peak < lines * len(line) / 2


def test_progress_reaches_the_size_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    seen: dict[str, list[int]] = {}

    class Bar(libsvm.ProgressBar):
        def __init__(self, label: str, total: int):
            super().__init__(label, total)
            seen["done"], seen["total"] = [], [total]

        def advance_to(self, done: int, note: str = "") -> None:
            seen["done"].append(done)

    monkeypatch.setattr(libsvm, "ProgressBar", Bar)
    monkeypatch.setattr(libsvm, "CHUNK", 1 << 20)
    read_libsvm(written(tmp_path, (b"1 1:1" + b" " * 1018 + b"\n") * (3 << 10)))
    assert seen == {"done": [0, 1, 2, 3], "total": [3]}
