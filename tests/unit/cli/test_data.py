"""`fedlocal data`: list, fetch, verify."""

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from fedlocal.cli import app, output
from fedlocal.data.catalogue import CATALOGUE, KNOWN

TEXT = b"+1 1:1\n-1 2:1\n"


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines that do not break, however long the temporary folder's name is."""
    monkeypatch.setattr(output.console, "width", 1000)


def data(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["data", *arguments], env={"COLUMNS": "400"})


def words(result: Result) -> str:
    """The output as one line, and no traceback."""
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return " ".join(result.output.split())


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEDLOCAL_DATA", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that stands for w8a at its address."""
    path = tmp_path / "w8a"
    path.write_bytes(TEXT)
    entry = replace(CATALOGUE["w8a"], address=path.as_uri(), sha256=hashlib.sha256(TEXT).hexdigest())
    monkeypatch.setitem(CATALOGUE, "w8a", entry)
    return path


def test_list_says_what_there_is_and_where(tmp_path: Path):
    (tmp_path / "libsvm").mkdir()
    (tmp_path / "libsvm" / "w8a").write_bytes(TEXT)
    lines = {line.split()[0]: line for line in data("list", "--folder", str(tmp_path)).output.splitlines()}
    assert list(lines) == ["name", *KNOWN]
    assert "16,281" in lines["a9a.t"]
    assert "CC BY 4.0" in lines["a9a.t"]
    assert lines["a9a.t"].rstrip().endswith("in the package")
    assert lines["news20"].rstrip().endswith("not here")
    assert "62,061" in lines["news20"]
    assert "2.4 MB" in lines["news20"]
    assert "libsvm" in lines["w8a"]
    assert "not here" not in lines["w8a"]
    assert "UCI Heart Disease, CC BY 4.0" in lines["heart-va"]
    assert "6.7 kB" in lines["heart-va"]


def test_fetch_keeps_the_file_and_says_where(source: Path, cache: Path):
    result = data("fetch", "w8a")
    assert result.exit_code == 0
    assert words(result) == f"w8a is in {cache / 'w8a'}"
    assert (cache / "w8a").read_bytes() == TEXT
    elsewhere = cache.parent / "mine"
    assert words(data("fetch", "w8a", "--folder", str(elsewhere))) == f"w8a is in {elsewhere / 'w8a'}"


def test_fetch_of_something_else_fails_with_a_sentence(source: Path, cache: Path):
    source.write_bytes(b"-" + TEXT)
    result = data("fetch", "w8a")
    assert result.exit_code == 2
    assert words(result).startswith(f"fetch: {source.as_uri()} has SHA-256")
    assert list(cache.iterdir()) == []


def test_fetch_without_a_source_says_what_to_do(source: Path, cache: Path):
    source.unlink()
    result = data("fetch", "w8a")
    assert result.exit_code == 2
    assert f"put the file w8a from {source.as_uri()} into {cache}" in words(result)


def test_fetch_that_is_stopped_says_so(source: Path, monkeypatch: pytest.MonkeyPatch):
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fedlocal.data.fetch", stop)
    result = data("fetch", "w8a")
    assert result.exit_code == 130
    assert "stopped; nothing was kept" in words(result)


def test_verify_tells_right_from_changed_files(source: Path, cache: Path):
    assert "no file of a data set is here" in words(data("verify"))
    data("fetch", "w8a")
    for command in (["verify"], ["verify", "w8a"]):
        assert words(data(*command)) == f"w8a is right: {cache / 'w8a'}"
    (cache / "w8a").write_bytes(b"-" + TEXT)
    (cache / "mushrooms").write_bytes(TEXT)
    result = data("verify")
    assert result.exit_code == 2
    assert words(result).count("was changed or damaged") == 2
    assert str(cache / "w8a") in words(result)


@pytest.mark.parametrize("command", ["fetch", "verify"])
def test_an_unknown_name_lists_the_known(command: str):
    result = data(command, "iris")
    assert result.exit_code == 2
    assert words(result).startswith(f"{command}: name must be one of 'a9a', ")
    assert words(result).endswith("got 'iris'")


@pytest.mark.parametrize("command", [[], ["list"], ["fetch"], ["verify"]])
def test_help_shows_an_example(command: list[str]):
    assert " ".join(["Examples: fedlocal data", *command]).rstrip("s") in words(data(*command, "--help")).replace(
        "Example:", "Examples:"
    )
