"""Finds, fetches and verifies the data sets of the registry: their sources, the cache, and their checksums."""

import hashlib
import http.client
import os
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import scipy.sparse

from fedlocal.data.libsvm import read_libsvm
from fedlocal.data.registry import CATALOGUE, KNOWN, Dataset
from fedlocal.data.sets.adult import a9a
from fedlocal.data.splits import TrainOrTest
from fedlocal.util import checks
from fedlocal.util.files import replacing
from fedlocal.util.progress import ProgressBar

Folder = str | os.PathLike[str] | None
EMBEDDED: dict[str, TrainOrTest] = {"a9a": "train", "a9a.t": "test"}  # splits of `a9a`
BLOCK = 1 << 20  # bytes
PATIENCE = 30  # seconds without an answer


def load(name: str, folder: Folder = None) -> tuple[scipy.sparse.csr_array | np.ndarray, np.ndarray]:
    """Features and labels of a data set: read from `folder` or the cache, else fetched into the cache.

    Features are sparse; those of epsilon are a memory map (see `epsilon`). Labels are as in the file: -1/+1, but 1/2 for
    mushrooms and 1 to 20 for news20. A file that is not the collection's is refused.

    Args:
        name: "a9a", "a9a.t" (in the package, never fetched), "w8a", "mushrooms", "ijcnn1", "news20" or "epsilon".
        folder: where to look first; None: only in the cache, which is `$FEDLOCAL_DATA`, else `~/.cache/fedlocal`.

    >>> X, y = load("a9a")
    >>> X.shape
    (32561, 123)
    """
    entry = CATALOGUE[checks.choice("load", "name", name, CATALOGUE)]
    if name == "epsilon":
        from fedlocal.data.sets.pascal_epsilon import epsilon  # which needs this file

        return epsilon(folder)
    if name in EMBEDDED and find(name, folder) is None:
        return a9a(EMBEDDED[name])
    return read_libsvm(obtain(name, folder), entry.features)


def fetch(name: str, folder: Folder = None) -> Path:
    """The file of a data set, fetched unless it is there; a wrong one is an error.

    The SHA-256 of epsilon and of Haxby's images is not known to us: what is fetched first is recorded beside it and holds from
    then on.

    Args:
        name: of the data set, as `fedlocal data list` shows it.
        folder: where the file is kept; None: in the cache of `load`.

    >>> fetch("news20")  # doctest: +SKIP
    PosixPath('/home/me/.cache/fedlocal/news20.bz2')
    """
    entry = _entry("fetch", name)
    target = (cache() if folder is None else Path(folder)) / entry.file
    expected, digest = _expected(entry, target), hashlib.sha256()
    if target.exists():
        _compare("fetch", entry, target)
        return target
    if not entry.address:
        instead = f"put it into {target.parent}, or {entry.instead}"
        raise FileNotFoundError(f"fetch: {entry.file} cannot be fetched, for there is no address of it; {instead}")
    with replacing(target) as part:
        with part.open("wb") as file:
            for block in _download(entry, target):
                digest.update(block)
                file.write(block)
            file.flush()
            os.fsync(file.fileno())
        got = digest.hexdigest()
        if expected is None:
            with replacing(_record(target)) as note:
                note.write_text(f"{got}  {entry.file}\n")
        elif got != expected:
            why = "it was damaged on the way or changed at its source, and is not kept; try again"
            raise ValueError(f"fetch: {entry.address} has SHA-256 {got}, not {expected}: {why}")
    return target


def verify(name: str, folder: Folder = None) -> Path:
    """Where a data set's file is, if its SHA-256 is right (where we know none: that of the first fetch); else an error.

    Args:
        name, folder: as for `load`, with all names of `fetch`.

    >>> verify("news20")  # doctest: +SKIP
    PosixPath('/home/me/.cache/fedlocal/news20.bz2')
    """
    entry = _entry("verify", name)
    path = find(name, folder)
    if path is None:
        by_hand = f"put the file {entry.file}"
        got = f"`fedlocal data fetch {name}` gets it, or {by_hand} from {entry.address}" if entry.address else by_hand
        raise FileNotFoundError(f"verify: {name} is not here; {got} into {cache() if folder is None else folder}")
    if _expected(entry, path) is None:
        raise ValueError(f"verify: no checksum of {path} is known; only {entry.file} as fetched by fedlocal has one")
    _compare("verify", entry, path)
    return path


def obtain(name: str, folder: Folder = None, owner: str = "load") -> Path:
    """The file that `owner` reads: found and right, or fetched into the cache."""
    path = find(name, folder)
    if path is None:
        return fetch(name)
    _compare(owner, _entry(owner, name), path)
    return path


def find(name: str, folder: Folder = None) -> Path | None:
    """A data set's file, packed or unpacked, in `folder` or the cache, or their subfolder for it; None where there is none."""
    entry = _entry("find", name)
    return first_file(folder, entry.shelf, entry.file, entry.file.removesuffix(".bz2"))


def first_file(folder: Folder, shelf: str, *names: str) -> Path | None:
    """The first file of one of these names in `folder`, its subfolder `shelf`, the cache and its subfolder; None without one."""
    tops = [Path(top) for top in (folder, cache()) if top is not None]
    paths = (place / name for top in tops for place in (top, top / shelf) for name in names)
    return next((path for path in paths if path.is_file()), None)


def whereabouts(name: str, folder: Folder = None) -> str:
    """Where `load` would read a data set from; empty where it would have to fetch it."""
    if path := find(name, folder):
        return str(path)
    if name in EMBEDDED:
        return "in the package"
    stem = _entry("whereabouts", name).converted
    return str(cache() / f"{stem}.features.npy") if stem and (cache() / f"{stem}.json").exists() else ""


def cache() -> Path:
    """Where fetched data is kept: `$FEDLOCAL_DATA`, else `~/.cache/fedlocal`."""
    return Path(os.environ.get("FEDLOCAL_DATA") or Path.home() / ".cache" / "fedlocal")


def _entry(owner: str, name: str) -> Dataset:
    return KNOWN[checks.choice(owner, "name", name, KNOWN)]


def _download(entry: Dataset, target: Path) -> Iterator[bytes]:
    """The file, block by block; what goes wrong on the way is told with what to do by hand."""
    done = 0
    try:
        with urllib.request.urlopen(entry.address, timeout=PATIENCE) as response:
            total = int(response.headers.get("Content-Length") or 0)
            with ProgressBar(f"fetching {entry.file}, MB", max(1, (total or entry.size or 0) >> 20)) as bar:
                bar.advance_to(0)
                while block := response.read(BLOCK):
                    yield block
                    done += len(block)
                    bar.advance_to(done >> 20)
        if done < total:
            raise ConnectionError(f"it ended after {done:,} of {total:,} bytes")
    except (OSError, http.client.HTTPException) as error:
        host = urllib.parse.urlsplit(entry.address).netloc
        failed = f"could not get {entry.file} from {host} ({getattr(error, 'reason', error)})"
        by_hand = f"put the file {entry.file} from {entry.address} into {target.parent}"
        raise ConnectionError(f"fetch: {failed}; without the internet, {by_hand}") from None


def _record(path: Path) -> Path:
    return path.with_name(path.name + ".sha256")


def _expected(entry: Dataset, path: Path) -> str | None:
    """The checksum that the file must have: the collection's, else what was recorded at the first fetch, if it was."""
    if path.name != entry.file:  # unpacked by hand
        return None
    record = _record(path)
    recorded = record.read_text().split() if record.exists() else []
    return entry.sha256 or (recorded[0] if recorded else None)


def _compare(owner: str, entry: Dataset, path: Path) -> None:
    expected = _expected(entry, path)
    if expected is None:
        return
    with path.open("rb") as file:
        got = hashlib.file_digest(file, "sha256").hexdigest()
    if got != expected:
        instead = f"delete it and fetch it again, or read it as it is with fl.data.{entry.reader}"
        raise ValueError(f"{owner}: {path} was changed or damaged: its SHA-256 is {got}, not {expected}; {instead}")
