"""The data sets that can be fetched: where they come from, where they are kept, and whether they are what they were."""

import hashlib
import http.client
import os
import urllib.parse
import urllib.request
from collections import ChainMap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse

from fedlocal import checks
from fedlocal.data.adult import a9a
from fedlocal.data.libsvm import read_libsvm
from fedlocal.progress import ProgressBar

Folder = str | os.PathLike[str] | None
COLLECTION = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/"
UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases/"
TFF = "https://storage.googleapis.com/tff-datasets-public/"
PYMVPA = "http://data.pymvpa.org/datasets/haxby2001/"
BLOCK = 1 << 20  # bytes
PATIENCE = 30  # seconds without an answer


@dataclass(frozen=True)
class Dataset:
    """A data set that is one file, of the LIBSVM collection unless it says otherwise."""

    rows: int
    features: int
    address: str  # empty where there is none
    size: int | None  # of the file, in bytes, where we know it
    sha256: str | None  # of the file; None: what was fetched first is taken as right
    source: str  # and licence
    converted: str = ""  # the stem of the files in the cache that replace it
    shelf: str = "libsvm"  # the subfolder in which it may be
    reader: str = "read_libsvm"  # what of fl.data reads it without asking whether it was changed
    kept_as: str = ""  # the name of the file, where there is no address
    instead: str = ""  # what to do without the file, where there is no address

    @property
    def file(self) -> str:
        return self.kept_as or self.address.rpartition("/")[2]


CATALOGUE = {
    "a9a": Dataset(
        rows=32_561,
        features=123,
        address=COLLECTION + "binary/a9a",
        size=2_329_875,
        sha256="f5d5ffd8d865ff41328e7ee043e4b020816914ff6843ff15b98905ddbedce906",
        source="UCI Adult, CC BY 4.0",
    ),
    "a9a.t": Dataset(
        rows=16_281,
        features=123,
        address=COLLECTION + "binary/a9a.t",
        size=1_164_628,
        sha256="1f448a153f0320399a7e40836eb207655b0bde0f21fc941cc472193daa9f5de9",
        source="UCI Adult, CC BY 4.0",
    ),
    "w8a": Dataset(
        rows=49_749,
        features=300,
        address=COLLECTION + "binary/w8a",
        size=3_478_238,
        sha256="6a9fa8fd5f524303240a5db07d4b3d4a51e8b7b4b20a914105d8e3e8c81640f2",
        source="Platt 1998, web pages; no licence stated",
    ),
    "mushrooms": Dataset(
        rows=8_124,
        features=112,
        address=COLLECTION + "binary/mushrooms",
        size=879_712,
        sha256="f39a4eb628dc61a7d43760815b061c9e497aa728ce1ad8bde57a09ef6043b538",
        source="UCI Mushroom, CC BY 4.0",
    ),
    "ijcnn1": Dataset(
        rows=49_990,
        features=22,
        address=COLLECTION + "binary/ijcnn1.bz2",
        size=1_395_175,
        sha256="b38a4198ce142d43e96fb86d17b87211feec1f909ac344fa057455c69de29de3",
        source="IJCNN 2001 challenge; no licence stated",
    ),
    "news20": Dataset(
        rows=15_935,
        features=62_061,
        address=COLLECTION + "multiclass/news20.bz2",
        size=2_376_572,
        sha256="8c79851f6f5fdc5540a0d04a5ab728353c42d26b84e73f93bda301c06c15ffe9",
        source="20 Newsgroups; no licence stated",
    ),
    "epsilon": Dataset(
        rows=400_000,
        features=2_000,
        address=COLLECTION + "binary/epsilon_normalized.bz2",
        size=None,
        sha256=None,
        source="PASCAL challenge 2008; no licence stated",
        converted="epsilon",
    ),
}
HEART = {  # the files of `fl.data.hospital`
    f"heart-{hospital}": Dataset(
        rows=rows,
        features=13,
        address=f"{UCI}heart-disease/processed.{hospital}.data",
        size=size,
        sha256=sha256,
        source="UCI Heart Disease, CC BY 4.0",
        shelf="heart",
        reader="heart.read_hospital",
    )
    for hospital, rows, size, sha256 in (
        ("cleveland", 303, 18_461, "a74b7efa387bc9d108d7d0115d831fe9b414b29ae7124f331b622b4efa0427c8"),
        ("hungarian", 294, 10_263, "d1ad108f785768cd3d7e82dc522e6f5a61eea93cccfb3a46ee8076f73fc3d796"),
        ("switzerland", 123, 4_109, "834a405ccf5b66ab4056bb77794adc8df0b7125186454c0a1d002d33c6c3b314"),
        ("va", 200, 6_737, "e7c93d8d0d2acdadfa4c5e8de768e2191e7f618b952e29623f1f0d5949ff6b8f"),
    )
}
HAXBY = {  # the files of `fl.data.haxby`
    "haxby-vt": Dataset(
        rows=864,
        features=577,
        address="",
        size=636_874,
        sha256="7debf0136c23a1e0901148e8d9599150d8b2fccfb9a3dea3688f9b5d9389b0dd",
        source="Haxby et al. 2001, one subject, CC BY-SA 3.0",
        shelf="haxby2001",
        reader="read_haxby_array",
        kept_as="haxby2001_subj1_vt.npz",
        instead="read the scans themselves, which can be fetched, with the source 'images' of fl.data.haxby",
    ),
    **{
        f"haxby-{subject}": Dataset(
            rows=1_452,
            features=39_912,
            address=f"{PYMVPA}subj{subject}-2010.01.14.tar.gz",
            size=None,
            sha256=None,
            source="Haxby et al. 2001, CC BY-SA 3.0",
            shelf="haxby2001",
            reader="read_haxby_images",
        )
        for subject in range(1, 7)
    },
    "haxby-mask": Dataset(
        rows=1,
        features=39_912,
        address="https://www.nitrc.org/frs/download.php/7868/mask.nii.gz",
        size=None,
        sha256=None,
        source="nilearn, mask of the whole brain for Haxby's scans",
        shelf="haxby2001",
        reader="read_haxby_images",
    ),
}
HANDWRITING = {  # the files of `fl.data.mnist_by_writer` and `fl.data.femnist`
    "mnist-by-writer": Dataset(
        rows=70_000,
        features=784,
        address="",
        size=11_552_101,
        sha256="405534e7bcd8461d67cdbeda4527471eaa4b30837782a6071877f8f687f8369d",
        source="MNIST, with writers from QMNIST (BSD-style)",
        reader="read_mnist_by_writer",
        kept_as="mnist_by_writer.npz",
        instead="use fl.data.digits, which needs no file",
    ),
    **{
        name: Dataset(
            rows=rows,
            features=784,
            address=f"{TFF}{file}",
            size=None,
            sha256=sha256,  # as in TensorFlow Federated's own loader
            source="LEAF from EMNIST, as in TensorFlow Federated; no licence stated",
            shelf="femnist",
            reader="read_femnist, unpacked",
        )
        for name, rows, file, sha256 in (
            (
                "femnist-digits",
                382_705,
                "fed_emnist_digitsonly.tar.bz2",
                "55333deb8546765427c385710ca5e7301e16f4ed8b60c1dc5ae224b42bd5b14b",
            ),
            (
                "femnist",
                749_068,
                "fed_emnist.tar.bz2",
                "fe1ed5a502cea3a952eb105920bff8cffb32836b5173cb18a57a32c3606f3ea0",
            ),
        )
    },
}
KNOWN = ChainMap(HANDWRITING, HAXBY, HEART, CATALOGUE)  # all that can be fetched; `load` reads those of CATALOGUE
EMBEDDED = {"a9a": "train", "a9a.t": "test"}  # splits of `a9a`


def load(name: str, folder: Folder = None) -> tuple[scipy.sparse.csr_array | np.ndarray, np.ndarray]:
    """Features and labels of a data set: read from `folder` or the cache, else fetched into the cache.

    Features are sparse; those of epsilon are a memory map (see `epsilon`). Labels are as in the file: -1/+1, but 1/2 for
    mushrooms and 1 to 20 for news20. A file that is not the collection's is refused. a9a and a9a.t are in the package, so
    they are never fetched. The cache is `$FEDLOCAL_DATA`, else `~/.cache/fedlocal`.

    >>> X, y = load("a9a")
    >>> X.shape
    (32561, 123)
    """
    entry = CATALOGUE[checks.choice("load", "name", name, CATALOGUE)]
    if name == "epsilon":
        from fedlocal.data.epsilon import epsilon  # which needs this file

        return epsilon(folder)
    if name in EMBEDDED and find(name, folder) is None:
        return a9a(EMBEDDED[name])
    return read_libsvm(obtain(name, folder), entry.features)


def fetch(name: str, folder: Folder = None) -> Path:
    """The file of a data set in `folder` (the cache when left out), fetched unless it is there; a wrong one is an error.

    The SHA-256 of epsilon and of Haxby's images is not known to us: what is fetched first is recorded beside it and holds from
    then on.

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
        raise FileNotFoundError(
            f"fetch: {entry.file} cannot be fetched, for there is no address of it; put it into {target.parent}, or "
            f"{entry.instead}"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
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
            raise ValueError(
                f"fetch: {entry.address} has SHA-256 {got}, not {expected}: it was damaged on the way or changed at its "
                "source, and is not kept; try again"
            )
    return target


def verify(name: str, folder: Folder = None) -> Path:
    """Where a data set's file is, if its SHA-256 is right (where we know none: that of the first fetch); else an error.

    >>> verify("news20")  # doctest: +SKIP
    PosixPath('/home/me/.cache/fedlocal/news20.bz2')
    """
    entry = _entry("verify", name)
    path = find(name, folder)
    if path is None:
        got = f"`fedlocal data fetch {name}` gets it, or put the file {entry.file} from {entry.address}"
        raise FileNotFoundError(
            f"verify: {name} is not here; {got if entry.address else f'put the file {entry.file}'} into "
            f"{cache() if folder is None else folder}"
        )
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
    for top in (folder, cache()):
        for place in () if top is None else (Path(top), Path(top) / entry.shelf):
            for path in (place / entry.file, place / entry.file.removesuffix(".bz2")):
                if path.is_file():
                    return path
    return None


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


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary file beside `path` that takes its place at the end, or goes away when something goes wrong."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield part
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


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
        reason = getattr(error, "reason", error)
        raise ConnectionError(
            f"fetch: could not get {entry.file} from {host} ({reason}); without the internet, put the file {entry.file} "
            f"from {entry.address} into {target.parent}"
        ) from None


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
        raise ValueError(
            f"{owner}: {path} was changed or damaged: its SHA-256 is {got}, not {expected}; "
            f"delete it and fetch it again, or read it as it is with fl.data.{entry.reader}"
        )
