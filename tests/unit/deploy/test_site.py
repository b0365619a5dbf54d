"""fedlocal site: what Flower's node is told, and what happens when it ends."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.common.config import parse_config_args
from typer.testing import CliRunner

from fedlocal.cli import app as cli
from fedlocal.deploy import site as sites
from fedlocal.deploy.app import write_app
from fedlocal.deploy.files import files_app
from fedlocal.deploy.options import DeployOptions
from fedlocal.deploy.site import Connection, node_config, node_values, question, run
from unit.deploy.logs_as_before import logs_as_before  # noqa: F401

ACTIVATE = "Exit Code: 305 ... [code: 2004] Failed to activate SuperNode."
HERE = Connection("127.0.0.1:1", insecure=True)


@pytest.mark.parametrize("path", ["/a/x.csv", "/a folder/x=1.csv", "/it's/ö.csv", 'C:\\new\\"x".csv', "/a.toml"])
def test_node_configuration_arrives_as_it_was_meant(path: str):
    values = {"site": "north", "data": path, "partition-id": 7}
    assert parse_config_args([node_config(values)]) == values


def test_what_cannot_be_quoted_is_refused():
    with pytest.raises(ValueError, match="may not have both kinds of quotation marks"):
        node_config({"data": 'it\'s "x".csv'})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.standard_normal((30, 2)), columns=["age", "chol"])
    frame.assign(ill=np.arange(30) % 2).to_csv(tmp_path / "a.csv", index=False)
    write_app(tmp_path / "study", files_app(DeployOptions(sites=("a", "b"), target="ill")))
    return tmp_path / "study"


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch):
    """Nodes that say something and end, one after the other; what the site said, and how long it slept."""

    def play(folder: Path, *nodes: tuple[int, str]) -> tuple[int, list[str], list[float]]:
        waiting, said, slept = list(nodes), [], []
        node = node_values("a", folder.with_name("a.csv"), None)

        def run_site(app: object, arguments: list[str], on_output: object) -> int:
            assert arguments == ["--superlink", "127.0.0.1:1", "--insecure", "--node-config", node_config(node)]
            code, words = waiting.pop(0)
            on_output(f"\x1b[92mINFO \x1b[0m: {words}\n")  # type: ignore
            return code

        monkeypatch.setattr(sites, "run_site", run_site)
        monkeypatch.setattr(sites.time, "sleep", slept.append)
        code = run(folder, node, HERE, said.append)
        assert not waiting
        return code, said, slept

    return play


def test_a_site_that_is_refused_tries_again(folder: Path, play):
    code, said, slept = play(folder, (1, ACTIVATE), (1, ACTIVATE), (130, "SuperNode ID: 5"))
    assert (code, slept) == (130, [sites.PAUSE, sites.PAUSE])
    assert sum(line.startswith("refused: the coordinator has not registered") for line in said) == 2
    assert said[-2:] == ["connected to 127.0.0.1:1; waiting for questions (Ctrl-C ends)", "stopped"]


@pytest.mark.parametrize(("rows", "warned"), [(15, True), (30, False)])
def test_a_site_with_few_rows_in_effect_is_warned_before_it_connects(folder: Path, play, rows: int, warned: bool):
    """With 15 rows of different sizes it passes fewest_rows = 10, and a later model may single out fewer than ten of them."""
    data = folder.with_name("a.csv")
    pd.read_csv(data).head(rows).to_csv(data, index=False)
    _, said, _ = play(folder, (130, "SuperNode ID: 5"))
    found = [line for line in said if "rows make up the gradient at the zero model" in line]
    assert len(found) == warned
    if warned:
        assert 10 <= float(found[0].split()[2]) < 15
        assert "fewer than 10 do (fewest_rows), so that this site may have to leave a run that it began" in found[0]


@pytest.mark.parametrize("ending", [0, 1])
def test_a_site_that_was_connected_comes_back(folder: Path, play, ending: int):
    """0: to a coordinator that started anew and does not know it, Flower's node says goodbye politely."""
    code, said, slept = play(folder, (ending, "SuperNode ID: 5"), (130, "SuperNode ID: 6"))
    assert (code, len(slept)) == (130, 1)
    assert any(line.startswith("the connection ended; trying again") for line in said)


@pytest.mark.parametrize(
    ("words", "meaning"),
    [
        ("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed", "certificate is not one of --root-certificates"),
        ("[code: 2001] SuperNode authentication is enabled.", "asks sites for a key; give --key"),
        ("something new", "something new"),
    ],
)
def test_what_trying_again_would_not_mend_ends(folder: Path, play, words: str, meaning: str):
    code, said, slept = play(folder, (1, words))
    assert (code, slept) == (1, [])
    assert meaning in said[-1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "say which one with --site NAME"),
        (["--site", "a", "--data", "none.csv", "--insecure"], "--data: there is no file none.csv"),
        (["--site", "a"], "give --root-certificates, or --insecure"),
        (["--site", "a", "--insecure", "--key", "a.key"], "give --insecure or certificates and a key, not both"),
        (["--site", "a", "--root-certificates", "none.pem"], "--root-certificates: there is no file none.pem"),
        (["--site", "a", "--insecure", "--superlink", "x"], "--superlink must be HOST:PORT, got 'x'"),
        (["--site", "z", "--insecure"], "--site must be one of a, b, got 'z'"),
        (["--site", "a", "--insecure"], "this app reads a file; give --data"),
    ],
)
def test_wrong_arguments_are_refused_in_one_sentence(folder: Path, words: list[str], message: str):
    said = CliRunner().invoke(cli, ["site", str(folder), "--superlink", "127.0.0.1:1", *words])
    assert said.exit_code == 2
    assert message in " ".join(said.output.split())


def test_a_folder_without_an_app_is_said_to_be_one(tmp_path: Path):
    said = CliRunner().invoke(cli, ["site", str(tmp_path), "--superlink", "h:1", "--site", "a", "--insecure"])
    assert said.exit_code == 2
    assert "is not the folder of an app" in " ".join(said.output.split())


@pytest.mark.parametrize(
    ("kind", "config", "words"),
    [
        (MessageType.TRAIN, {"settings.round": 4}, "local steps of round 5"),
        (MessageType.EVALUATE, {}, "loss and gradient of the model"),
        (MessageType.QUERY, {"curvature": True}, "curvature of the loss"),
        (MessageType.QUERY, {"moments": True}, "moments of the columns"),
        (MessageType.QUERY, {"x64": True}, "who is there, with how many rows and columns"),
    ],
)
def test_questions_in_words(kind: str, config: dict, words: str):
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 0, 1, 0
    assert question(Message(RecordDict({"config": ConfigRecord(config)}), 1, kind)) == words
