"""fedlocal deploy: what it writes, and what it refuses."""

import ast
import re
import shlex
import tomllib
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from fedlocal.cli import app as cli
from fedlocal.deploy.app import write_app
from fedlocal.deploy.experiments import experiment_app, supported
from fedlocal.deploy.files import files_app
from fedlocal.deploy.options import DeployOptions

TWO = DeployOptions(sites=("north", "south"), target="ill")
OPTIONS = {
    "usual": DeployOptions(sites=("north", "south"), target="ill", l1=0.01),
    "other": DeployOptions(
        sites=("a", "b", "c"), task="least-squares", method="FedAvg", l2=0.1, local_epochs=2, batch_size=8
    ),
    "raw": DeployOptions(sites=("a", "b"), method="FedMiD", client_step_size=0.3, standardize=False, min_clients=1),
}


def deploy(*words: object):
    return CliRunner().invoke(cli, ["deploy", *map(str, words)])


def config_of(folder: Path) -> dict:
    return tomllib.loads((folder / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]


def write(folder: Path, which: str) -> Path:
    if which == "a9a":
        app = experiment_app("a9a-1e-3", DeployOptions(sites=("4",), local_steps=8, client_step_size=0.1))
    elif which == "lasso":
        app = experiment_app("lasso-1", DeployOptions(l1=0.2))
    else:
        app = files_app(OPTIONS[which])
    write_app(folder, app)
    return folder


@pytest.mark.parametrize("which", [*OPTIONS, "a9a", "lasso"])
def test_apps_are_short_and_read_every_number_of_a_run(tmp_path: Path, which: str):
    from flwr.common.config import get_project_config

    folder = write(tmp_path / "heart study", which)
    components = get_project_config(folder)["tool"]["flwr"]["app"]["components"]  # as Flower checks it
    assert components["clientapp"] == "heart_study_app.client_app:app"
    programs = [
        (folder / "heart_study_app" / f"{name}.py").read_text() for name in ("method", "server_app", "client_app")
    ]
    assert max(len(program.splitlines()) for program in programs) < 64
    for program in programs:
        imported = [n for n in ast.walk(ast.parse(program)) if isinstance(n, (ast.Import, ast.ImportFrom))]
        for name in [alias.asname or alias.name for node in imported for alias in node.names]:
            assert len(re.findall(rf"\b{name}\b", program)) > 1, name  # what is imported is used
    used = {
        node.slice.value
        for program in programs
        for node in ast.walk(ast.parse(program))
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant)
    }
    assert used - {"FedDualAvg", "FedAc", "data", "partition-id"} == set(config_of(folder))


def test_what_is_asked_for_is_what_is_written(tmp_path: Path):
    folder = tmp_path / "study"
    options = ["--sites", "north, south", "--target", "ill", "--l1", 0.05, "--rounds", 7, "--min-clients", 1]
    said = deploy(folder, *options, "--local-steps", 3, "--client-step-size", 0.5, "--weights", "uniform", "--seed", 9)
    assert said.exit_code == 0, said.output
    asked = {"sites": "north,south", "l1": 0.05, "rounds": 7, "min-clients": 1, "local-steps": 3}
    asked |= {"client-step-size": 0.5, "weights": "uniform", "seed": 9, "standardize": True}
    assert asked.items() <= config_of(folder).items()
    assert 'TARGET = "ill"' in (folder / "study_app" / "client_app.py").read_text()


@pytest.mark.parametrize(
    ("words", "method", "numbers"),
    [
        ([], "AcceleratedProximalGradient", {"rounds": 500, "local-steps": 1}),
        (["--local-steps", 4], "FedDualAvg", {"rounds": 100, "local-steps": 4, "server-step-size": 1.0}),
        (["--method", "FedMiD"], "FedMiD", {"rounds": 100, "local-steps": 10}),
    ],
)
def test_what_is_not_asked_for_is_chosen(tmp_path: Path, words: list, method: str, numbers: dict):
    """Without options: the method that converges, a step size from the sites' curvature, and no site that can stop a run."""
    said = deploy(tmp_path / "study", "--sites", "a,b,c,d", *words)
    assert said.exit_code == 0, said.output
    numbers |= {"client-step-size": 0.0, "min-clients": 3, "tol": 1e-6, "aggregate": "mean", "standardize": True}
    assert numbers.items() <= config_of(tmp_path / "study").items()
    assert f"fl.methods.{method}(" in (tmp_path / "study" / "study_app" / "method.py").read_text()
    assert "A round counts with 3 of 4 sites" in said.output


def test_a_target_with_quotation_marks_stays_what_it_is(tmp_path: Path):
    folder = tmp_path / "study"
    write_app(folder, files_app(DeployOptions(sites=("a", "b"), target='the "ill"\\x')))
    module = ast.parse((folder / "study_app" / "client_app.py").read_text())
    values = {ast.unparse(n.targets[0]): n.value for n in module.body if isinstance(n, ast.Assign)}
    assert ast.literal_eval(values["TARGET"]) == 'the "ill"\\x'


def test_experiments_take_method_and_step_sizes_of_the_text(tmp_path: Path):
    config = config_of(write(tmp_path / "x", "lasso"))
    text = (tmp_path / "x" / "README.md").read_text()
    assert (config["client-step-size"], config["server-step-size"]) == (
        0.001,
        1.0,
    )  # (0.01, 1) diverges: docs/errata.md
    assert "The step sizes are not the text's (0.01, 1.0), with which FedDualAvg diverges here." in text
    for options in (DeployOptions(l1=0.2, method="FedMiD"), DeployOptions(l1=0.2, client_step_size=0.002)):
        app = experiment_app("lasso-1", options)
        assert (app.config["client-step-size"], app.note) == (options.client_step_size or 0.001, "")
    assert (config["sites"], config["clients-per-round"], config["batch-size"], config["local-epochs"]) == (
        64,
        10,
        10,
        1,
    )
    kinds = {re.split("-", name)[0] for name in supported()}
    assert kinds == {"lasso", "nuclear", "a9a", "epsilon"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "say with --sites what the sites are called"),
        (["--sites", "a,a"], "must be different names, got 'a,a'"),
        (["--sites", "a,b c"], "letters, digits, . _ and -, got 'b c'"),
        (["--sites", "a,b", "--task", "trees"], "--task must be one of 'logistic', 'least-squares', got 'trees'"),
        (["--sites", "a,b", "--method", "FedAvg", "--l1", "1"], "FedAvg has no --l1"),
        (["--sites", "a,b", "--method", "Adam"], "'FedDualAvg', 'FedMiD', 'FedAvg', got 'Adam'"),
        (
            ["--sites", "a,b", "--method", "AcceleratedProximalGradient", "--local-steps", "2"],
            "--local-steps is for local methods, not for AcceleratedProximalGradient",
        ),
        (
            ["--sites", "a,b", "--aggregate", "sum"],
            "--aggregate must be one of 'mean', 'median', 'trimmed', 'norm-bounded'",
        ),
        (["--sites", "a,b", "--tol", "0"], "--tol must be > 0, got 0"),
        (["--experiment", "lasso-1", "--tol", "1"], "--tol is set by the experiment lasso-1"),
        (["--sites", "a,b", "--client-step-size", "0"], "--client-step-size must be > 0, got 0"),
        (["--sites", "a,b", "--local-steps", "1", "--local-epochs", "1"], "not both"),
        (["--sites", "a,b", "--min-clients", "3"], "--min-clients must be a whole number >= 1 and <= 2, got 3"),
        (["--sites", "a,b", "--weights", "votes"], "--weights must be one of"),
        (["--sites", "a,b", "--address", "nowhere"], "--address must be HOST:PORT, got 'nowhere'"),
        (["--experiment", "curse"], "--experiment must be one of 'a9a-1e-2'"),
        (["--experiment", "lasso-1", "--target", "ill"], "--target is set by the experiment lasso-1"),
        (["--experiment", "lasso-1", "--no-standardize"], "--no-standardize is for files"),
        (["--experiment", "a9a-1e-3"], "say which with --sites NUMBER, --local-steps and --client-step-size"),
        (
            ["--experiment", "a9a-1e-3", "--sites", "a", "--local-steps", "1", "--client-step-size", "1"],
            "--sites must be a number for a9a-1e-3, got 'a'",
        ),
    ],
)
def test_wrong_wishes_are_refused_in_one_sentence(tmp_path: Path, words: list[str], message: str):
    said = deploy(tmp_path / "x", *words)
    assert said.exit_code == 2
    assert message in " ".join(said.output.split())
    assert not (tmp_path / "x").exists()


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path):
    (tmp_path / "precious.txt").write_text("mine")
    said = deploy(tmp_path, "--sites", "a,b")
    assert said.exit_code == 2
    assert "is not empty" in said.output
    assert [path.name for path in tmp_path.iterdir()] == ["precious.txt"]


@pytest.mark.parametrize("which", ["usual", "a9a"])
def test_commands_of_the_readme_exist(tmp_path: Path, which: str):
    """Every option of every `fedlocal` command in it is one that the command has."""
    text = (write(tmp_path / "study", which) / "README.md").read_text()
    group = typer.main.get_command(cli)
    found = set()
    for line in re.findall(r"^    (fedlocal .+)$", text.replace("\\\n", ""), re.MULTILINE):
        _, name, *words = line.split("#")[0].split()
        known = {option for parameter in group.commands[name].params for option in parameter.opts}  # type: ignore
        assert {word for word in words if word.startswith("--")} <= known, line
        found.add(name)
    assert found == {"keys", "rehearse", "coordinator", "site", "start"}
    assert "$" not in text


def test_commands_of_the_readme_name_the_folder_as_it_is(tmp_path: Path):
    text = (write(tmp_path / "Heart study's", "usual") / "README.md").read_text()
    lines = text.replace("\\\n", "").splitlines()
    commands = [shlex.split(line, comments=True) for line in lines if line.startswith("    fedlocal ")]
    folders = [words[2] for words in commands if words[1] != "keys"]
    assert folders == ["Heart study's"] * 7


def test_the_rehearsal_of_the_readme_names_every_file(tmp_path: Path):
    sites = tuple("abcde")
    write_app(tmp_path / "study", files_app(DeployOptions(sites=sites, target="ill")))
    text = (tmp_path / "study" / "README.md").read_text()
    assert f"    fedlocal rehearse study{''.join(f' --data {site}.csv' for site in sites)}\n" in text


@pytest.mark.parametrize(
    ("which", "true", "untrue"),
    [
        (
            "usual",
            ["what the columns are called", "count, mean and sum of squares", "coefficients.csv", "scaling/"],
            [],
        ),
        ("raw", ["what the columns are called", "coefficients.csv", "x/intercept"], ["sum of squares", "scaling/"]),
        (
            "a9a",
            ["models, losses, gradients and numbers of rows, never"],
            ["columns", "coefficients.csv", "scaling/", "intercept"],
        ),
    ],
)
def test_the_readme_says_what_is_true_of_this_app(tmp_path: Path, which: str, true: list[str], untrue: list[str]):
    text = " ".join((write(tmp_path / "study", which) / "README.md").read_text().split())
    assert [words for words in true if words not in text] == []
    assert [words for words in untrue if words in text] == []
