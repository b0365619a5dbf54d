"""The catalogue: what is fetched is what is known, a wrong file leaves nothing, and a missing network says what to do."""

import bz2
import hashlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedlocal as fl
import paths
from fedlocal.data import catalogue
from fedlocal.data.registry import CATALOGUE
from fedlocal.data.splits import TrainOrTest

over = pytest.mark.parametrize
SHARED = paths.SHARED / "data"
needs_shared = pytest.mark.skipif(not (SHARED / "libsvm").is_dir(), reason=f"no real data in {SHARED}")
TEXT = b"+1 1:0.5 300:2\n-1 7:1\n"
OTHER = b"+1 1:0.5 300:3\n-1 7:1\n"


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@dataclass
class Site:
    """A server that stands for the internet."""

    address: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    missing: int = 0  # bytes that are promised but not sent
    asked: list[str] = field(default_factory=list)


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            site.asked.append(self.path)
            content = site.files.get(self.path)
            if content is None:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(content) + site.missing))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    site.address = f"http://127.0.0.1:{server.server_port}"
    yield site
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEDLOCAL_DATA", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    return tmp_path / "cache"


def offer(site: Site, monkeypatch: pytest.MonkeyPatch, name: str, content: bytes, sha256: str | None) -> None:
    """Make a data set of the catalogue come from the site."""
    path = f"/{CATALOGUE[name].file}"
    site.files[path] = content
    monkeypatch.setitem(CATALOGUE, name, replace(CATALOGUE[name], address=site.address + path, sha256=sha256))


def everything(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*"))


@over(("name", "content"), [("w8a", TEXT), ("ijcnn1", bz2.compress(b"+1 22:4\n"))])
def test_load_fetches_once(name: str, content: bytes, site: Site, cache: Path, monkeypatch: pytest.MonkeyPatch):
    offer(site, monkeypatch, name, content, sha256(content))
    X: Any
    X, y = fl.data.load(name)
    again, _ = fl.data.load(name)
    assert len(site.asked) == 1
    assert everything(cache) == [CATALOGUE[name].file]
    assert (cache / CATALOGUE[name].file).read_bytes() == content
    assert X.shape == (len(y), CATALOGUE[name].features)
    assert y[0] == 1
    assert abs(X - again).nnz == 0


def test_fetch_puts_the_file_where_it_is_told(site: Site, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    offer(site, monkeypatch, "w8a", TEXT, sha256(TEXT))
    assert fl.data.fetch("w8a", tmp_path / "mine") == tmp_path / "mine" / "w8a"
    assert (tmp_path / "mine" / "w8a").read_bytes() == TEXT
    assert not cache.exists()


def test_a_wrong_checksum_leaves_nothing(site: Site, cache: Path, monkeypatch: pytest.MonkeyPatch):
    offer(site, monkeypatch, "w8a", OTHER, sha256(TEXT))
    with pytest.raises(ValueError, match=f"^fetch: {site.address}/w8a has SHA-256 {sha256(OTHER)}, not {sha256(TEXT)}"):
        fl.data.load("w8a")
    assert everything(cache) == []


@pytest.fixture
def closed_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def test_without_a_network_it_says_what_to_put_where(closed_port: int, cache: Path, monkeypatch: pytest.MonkeyPatch):
    address = f"http://127.0.0.1:{closed_port}/news20.bz2"
    monkeypatch.setitem(CATALOGUE, "news20", replace(CATALOGUE["news20"], address=address))
    sentence = f"refused.*put the file news20.bz2 from {address} into {cache}$"
    with pytest.raises(ConnectionError, match=sentence):
        fl.data.load("news20")
    assert everything(cache) == []


def test_an_address_that_is_gone_is_told(site: Site, cache: Path, monkeypatch: pytest.MonkeyPatch):
    offer(site, monkeypatch, "w8a", TEXT, sha256(TEXT))
    site.files.clear()
    with pytest.raises(ConnectionError, match=r"^fetch: could not get w8a from 127.*Not Found.*put the file w8a"):
        fl.data.fetch("w8a")
    assert everything(cache) == []


def test_half_a_file_is_not_kept_even_where_no_checksum_is_known(
    site: Site, cache: Path, monkeypatch: pytest.MonkeyPatch
):
    offer(site, monkeypatch, "epsilon", TEXT, None)
    site.missing = 10
    with pytest.raises(ConnectionError, match="could not get epsilon_normalized"):
        fl.data.fetch("epsilon")
    assert everything(cache) == []


def test_a_stopped_fetch_leaves_nothing(site: Site, cache: Path, monkeypatch: pytest.MonkeyPatch):
    def stopped(*_: object) -> Iterator[bytes]:
        yield TEXT
        assert len(everything(cache)) == 1  # it was being written
        raise KeyboardInterrupt

    monkeypatch.setattr(catalogue, "_download", stopped)
    with pytest.raises(KeyboardInterrupt):
        fl.data.fetch("w8a")
    assert everything(cache) == []


def test_a_full_disk_is_not_told_as_a_missing_network(site: Site, monkeypatch: pytest.MonkeyPatch):
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    offer(site, monkeypatch, "w8a", TEXT, sha256(TEXT))
    monkeypatch.setattr(catalogue.os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as caught:
        fl.data.fetch("w8a")
    assert "internet" not in str(caught.value)


def test_epsilon_is_held_to_the_checksum_of_its_first_fetch(site: Site, cache: Path, monkeypatch: pytest.MonkeyPatch):
    offer(site, monkeypatch, "epsilon", TEXT, None)
    path = fl.data.fetch("epsilon")
    assert (cache / "epsilon_normalized.bz2.sha256").read_text() == f"{sha256(TEXT)}  epsilon_normalized.bz2\n"
    assert fl.data.verify("epsilon") == path
    path.write_bytes(OTHER)
    for call in (fl.data.verify, fl.data.fetch, fl.data.load):
        with pytest.raises(ValueError, match=f"{path} was changed or damaged: its SHA-256 is {sha256(OTHER)}"):
            call("epsilon")
    path.unlink()
    offer(site, monkeypatch, "epsilon", OTHER, None)
    with pytest.raises(ValueError, match=f"has SHA-256 {sha256(OTHER)}, not {sha256(TEXT)}"):
        fl.data.fetch("epsilon")
    assert not path.exists()


def test_a_changed_file_is_found_out(cache: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(CATALOGUE, "w8a", replace(CATALOGUE["w8a"], sha256=sha256(TEXT)))
    cache.mkdir()
    path = cache / "w8a"
    path.write_bytes(TEXT)
    assert fl.data.verify("w8a") == path
    path.write_bytes(OTHER)
    for call in (fl.data.verify, fl.data.load, fl.data.fetch):
        with pytest.raises(ValueError, match=f"{path} was changed or damaged: its SHA-256 is {sha256(OTHER)}"):
            call("w8a")


def test_verify_says_when_there_is_nothing_to_compare(cache: Path):
    with pytest.raises(FileNotFoundError, match="verify: w8a is not here; `fedlocal data fetch w8a` gets it"):
        fl.data.verify("w8a")
    cache.mkdir()
    for file, name in {"news20": "news20", "epsilon_normalized.bz2": "epsilon"}.items():
        (cache / file).write_bytes(TEXT)
        with pytest.raises(ValueError, match=f"no checksum of {cache / file} is known"):
            fl.data.verify(name)


def test_the_folder_comes_before_its_subfolder_before_the_cache(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = tmp_path / "mine"
    places = [folder, folder / "libsvm", cache]
    assert catalogue.whereabouts("ijcnn1", folder) == ""
    for place in reversed(places):
        place.mkdir(parents=True, exist_ok=True)
        (place / "ijcnn1").write_bytes(b"+1 2:%d\n" % places.index(place))  # unpacked by hand
        assert catalogue.whereabouts("ijcnn1", folder) == str(place / "ijcnn1")
        assert fl.data.load("ijcnn1", folder)[0][0, 1] == places.index(place)


@over(("name", "split"), [("a9a", "train"), ("a9a.t", "test")])
def test_a9a_is_never_fetched(name: str, split: TrainOrTest, cache: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(catalogue, "fetch", None)
    X, y = fl.data.load(name)
    expected_X, expected_y = fl.data.a9a(split)
    assert abs(X - expected_X).nnz == 0
    np.testing.assert_array_equal(y, expected_y)
    assert catalogue.whereabouts(name) == "in the package"
    cache.mkdir()
    (cache / name).write_bytes(TEXT)  # a file comes first, and is looked at
    with pytest.raises(ValueError, match="was changed or damaged"):
        fl.data.load(name)


def test_the_cache_is_in_the_home_folder_unless_told(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert catalogue.cache() == cache
    monkeypatch.delenv("FEDLOCAL_DATA")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert catalogue.cache() == tmp_path / ".cache" / "fedlocal"


@over(("owner", "last"), [("load", "epsilon"), ("fetch", "heart-va"), ("verify", "heart-va")])
def test_an_unknown_name_lists_the_known(owner: str, last: str):
    with pytest.raises(ValueError, match=f"^{owner}: name must be one of 'a9a', .*'{last}'.*, got '../w8a'$"):
        getattr(fl.data, owner)("../w8a")


@needs_shared
def test_checksums_are_those_of_the_real_files():
    lines = [line.split() for line in (SHARED / "SHA256SUMS").read_text().splitlines()]
    known = {Path(file).name: digest for digest, file in lines if "libsvm" in file}
    assert {entry.file: entry.sha256 for name, entry in CATALOGUE.items() if name != "epsilon"} == known


@needs_shared
@over("name", [name for name in CATALOGUE if name != "epsilon"])
def test_real_files_are_as_the_catalogue_says(name: str):
    entry, path = CATALOGUE[name], fl.data.verify(name, SHARED)
    X: Any
    X, y = fl.data.load(name, SHARED)
    assert path == SHARED / "libsvm" / entry.file
    assert path.stat().st_size == entry.size
    assert X.shape == (entry.rows, entry.features)
    assert X.indices.max() + 1 == (122 if name == "a9a.t" else entry.features)  # nobody has a9a's last in the test set
    assert y.shape == (entry.rows,)
    assert len(np.unique(y)) == (20 if name == "news20" else 2)
    assert name != "news20" or X.nnz == 1_272_569
