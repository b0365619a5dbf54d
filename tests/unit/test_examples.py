"""The examples run, on small data in the same format."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

import fedlocal as fl
from paths import ROOT, SHARED
from programs import Told, run_programs

EXAMPLES = ROOT / "examples"
PAGE = ROOT / "docs" / "estimators.md"
DATA = NEWS20 = SHARED / "data"
needs_hospitals = pytest.mark.skipif(
    not (DATA / "heart").is_dir(), reason="the hospitals' files are in ../shared/data, which is not here"
)
OFFLINE = """
import runpy, socket, sys

def refuse(*_):
    raise OSError("an example asked for the network")

socket.socket.connect = socket.getaddrinfo = refuse
sys.path.insert(0, {folder!r})
sys.argv = {argv!r}
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run(name: str, *arguments: str) -> str:
    command = [sys.executable, "-W", "error", str(EXAMPLES / name), *arguments]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


@pytest.mark.thorough
def test_news20_on_a_small_file(tmp_path: Path):
    """Words 1 to 5 mean the first class; the strongest l1 keeps fewest words, the weakest still tells the classes apart."""
    rng = np.random.default_rng(0)
    lines = []
    for _ in range(600):
        label = int(rng.integers(1, 4))
        telling = rng.choice(np.arange(1, 6) if label == 2 else np.arange(6, 11), 2, replace=False)
        words = np.unique([*telling, *rng.integers(11, 400, size=8)])
        lines.append(f"{label} " + " ".join(f"{word}:1" for word in words))
    path = tmp_path / "small.libsvm"
    path.write_text("\n".join(lines) + "\n")
    output = run("news20.py", "--file", str(path), "--positive", "2", "--sites", "4", "--rounds", "30")
    rows = [line.split() for line in output.splitlines() if re.match(r"\s+[\d.e-]+\s+[\d.]+\s", line)]
    words, accuracy = [int(row[-1]) for row in rows], [float(row[-2]) for row in rows]
    assert len(rows) == 5
    assert words == sorted(words, reverse=True)
    assert words[-1] < words[0]
    assert accuracy[0] > 0.95
    assert "local steps by the jax engine" in output  # too few for the kernels


@pytest.mark.thorough
@pytest.mark.skipif(not NEWS20.exists(), reason="news20 is in ../shared/data, which is not here")
def test_news20_itself():
    output = run("news20.py", "--folder", str(NEWS20), "--rounds", "5")
    assert "62,061 features, 20 sites" in output
    assert "by the linear engine" in output


def offline(name: str, *arguments: str) -> str:
    """A program that runs an example without a network."""
    return OFFLINE.format(folder=str(EXAMPLES), argv=[str(EXAMPLES / name), *arguments])


def rows(output: str, columns: int) -> list[list[str]]:
    """The rows of a table with that many columns; cells are separated by two spaces or more."""
    cells = [re.split(r"\s{2,}", line.strip()) for line in output.splitlines()]
    return [row for row in cells if len(row) == columns and re.search(r"\d", row[-1])]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[dict[str, Told], Path]]:
    """What the short examples said where nothing is at hand, neither files nor a network; and the folder they wrote to."""
    folder = tmp_path_factory.mktemp("examples")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDLOCAL_DATA", str(folder / "empty"))
        patch.setenv("OPENBLAS_NUM_THREADS", "1")
        programs = {
            "sparse_hospitals": offline("sparse_hospitals.py"),
            "choose_lambda": offline("choose_lambda.py", "--out", "path.png"),
            "compare_methods": offline("compare_methods.py", "--rounds", "40", "--out", "methods.png"),
        }
        yield run_programs(programs, folder, "-W", "error"), folder


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, Any, Any]]:
    monkeypatch.syspath_prepend(EXAMPLES)
    import compare_methods
    import leave_one_hospital_out
    import patients

    with threadpool_limits(1):  # small matrices, and other tests on the other cores
        yield patients, leave_one_hospital_out, compare_methods
    for name in ("patients", "leave_one_hospital_out", "compare_methods"):
        del sys.modules[name]


def tumours() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The embedded data that examples fall back on: columns with mean zero and variance one, 1 for malignant, sites."""
    known: Any = load_breast_cancer()
    X = (known["data"] - known["data"].mean(axis=0)) / known["data"].std(axis=0)
    sites = np.array(["north", "east", "south", "west"])[fl.data.partition.by_quantity(len(X), 4, 5.0, seed=0)]
    return X, (known["target"] == 0).astype(int), sites


def test_a_sparse_model_over_four_sites_is_that_of_the_pooled_rows(told: tuple[dict[str, Told], Path]):
    said = told[0]["sparse_hospitals"]
    assert said.error == ""
    assert "not at hand" in said.output
    assert "breast-cancer" in said.output
    X, y, _ = tumours()
    new = tuple(map(int, sklearn.__version__.split(".")[:2])) >= (1, 8)
    penalty: dict[str, Any] = {"l1_ratio": 1.0} if new else {"penalty": "l1"}
    pooled = LogisticRegression(C=0.1, solver="saga", tol=1e-9, max_iter=100_000, **penalty).fit(X, y).coef_[0]
    names = load_breast_cancer()["feature_names"]  # pyright: ignore
    found = {name: float(weight) for name, weight, _ in rows(said.output, 3)}
    assert found == pytest.approx({str(names[j]): pooled[j] for j in np.flatnonzero(pooled)}, abs=1e-3)
    assert f"{len(found)} of 30 columns" in said.output
    gap = re.search(r"certificate: .* duality gap ([\d.e+-]+)", said.output)
    assert gap is not None
    assert float(gap[1]) < 1e-10
    assert re.search(r"received [\d,]+ numbers and sent [\d,]+", said.output)


def test_lambda_is_chosen_at_sites_that_were_left_out(told: tuple[dict[str, Told], Path]):
    said, folder = told[0]["choose_lambda"], told[1]
    assert said.error == ""
    assert "not at hand" in said.output
    chosen = [row for row in rows(said.output.replace("chosen", "9"), 8) if row[-1] == "9"]
    table = np.array([row[:7] for row in rows(said.output, 7)] + [row[:7] for row in chosen], float)
    assert len(table) == 15
    assert len(chosen) == 1
    assert float(chosen[0][6]) == table[:, 6].max()
    np.testing.assert_allclose(table[:, 2:6].mean(axis=1), table[:, 6], atol=1e-3)
    # the largest lambda leaves no column, and so the class that most patients of the other sites have
    _, y, sites = tumours()
    strongest = table[np.argmax(table[:, 0])]
    usual = [np.mean(y[sites == site] == np.round(y[sites != site].mean())) for site in np.unique(sites)]
    assert strongest[1] == 0
    np.testing.assert_allclose(strongest[2:6], usual, atol=5e-4)
    assert (folder / "path.png").read_bytes().startswith(b"\x89PNG")


def test_methods_are_compared_with_the_optimum(told: tuple[dict[str, Told], Path]):
    said, folder = told[0]["compare_methods"], told[1]
    assert said.error == ""
    found = {row[1]: row for row in rows(said.output, 7)}
    above = {method: float(row[3]) for method, row in found.items()}
    assert set(found) == {"FedAvg", "FedAc-I", "FedMiD", "FedDualAvg"}
    assert all(0 < value < 0.1 for value in above.values())
    assert above["FedDualAvg"] < above["FedMiD"]
    assert (folder / "methods.png").read_bytes().startswith(b"\x89PNG")


def test_methods_are_compared_on_a_file_of_ones_own(modules: tuple[Any, Any, Any], tmp_path: Path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.normal(50, 10, 60), "ward": np.repeat(["a", "b", "c"], 20)})
    frame["ill"] = (frame["age"] > 50).astype(int)
    frame.to_csv(tmp_path / "mine.csv", index=False)
    X, y, sites = modules[2].read(str(tmp_path / "mine.csv"), "ill", "ward")
    np.testing.assert_allclose(X[:, 0], (frame["age"] - frame["age"].mean()) / frame["age"].std(ddof=0), atol=1e-12)
    assert y.tolist() == [1.0 if ill else -1.0 for ill in frame["ill"]]
    assert sites.tolist() == frame["ward"].tolist()


def test_without_files_of_hospitals_a_site_is_left_out_all_the_same(modules: tuple[Any, Any, Any]):
    """Federated and pooled fits are one; what is at the site that is left out changes neither C nor a fit."""
    patients, example, _ = modules
    dealt = patients.dealt()
    shown, apart = example.compare(dealt, "l2")
    assert shown["left_out"].tolist() == [*dict.fromkeys(dealt.sites), "mean"]
    assert apart < 1e-3
    np.testing.assert_allclose(shown["federated"], shown["pooled"], atol=0.5)
    assert shown["federated"].iloc[:-1].mean() == pytest.approx(shown["federated"].iloc[-1])
    west = dealt.sites == "west"
    features = dealt.features.mask(np.repeat(west[:, None], dealt.features.shape[1], axis=1), 1e3)
    wrong = dealt._replace(features=features, ill=np.where(west, 1 - dealt.ill, dealt.ill))
    other, _ = example.compare(wrong, "l2")
    row = shown["left_out"] == "west"
    assert other.loc[row, "C"].item() == shown.loc[row, "C"].item()
    # all of its patients look alike to a model of the three others: either all or none of them are right
    right = np.mean(wrong.ill[west])
    assert other.loc[row, "federated"].item() in (pytest.approx(100 * right), pytest.approx(100 * (1 - right)))


@needs_hospitals
@pytest.mark.parametrize("penalty", ["l1", "l2"])
def test_a_hospital_that_was_left_out_as_the_page_says(penalty: str, modules: tuple[Any, Any, Any]):
    """The federated fit is the pooled one, within half a point, and the table of docs/estimators.md is what comes out."""
    patients, example, _ = modules
    shown, apart = example.compare(patients.hospitals(DATA), penalty)
    assert apart < 1e-3
    np.testing.assert_allclose(shown["federated"], shown["pooled"], atol=0.5)
    told = [[cell.strip() for cell in line.split("|")[1:-1]] for line in PAGE.read_text().splitlines()]
    table = {row[1]: row[2:] for row in told if row[:1] == [penalty]}
    assert list(table) == shown["left_out"].tolist()
    for name, cells in table.items():
        row = shown.loc[shown["left_out"] == name].drop(columns="left_out").iloc[0]
        for cell, (column, value) in zip(cells, row.items(), strict=True):
            assert (cell == "") == np.isnan(value)
            assert cell == "" or float(cell) == pytest.approx(value, abs=1e-3 if column == "C" else 0.5)


@pytest.mark.thorough
@needs_hospitals
@pytest.mark.parametrize("example", ["sparse_hospitals.py", "choose_lambda.py"])
def test_examples_take_the_hospitals_where_their_files_are(example: str, tmp_path: Path):
    out = ["--out", str(tmp_path / "path.png")] if example == "choose_lambda.py" else []
    output = run(example, "--folder", str(DATA), *out)
    assert "UCI heart disease, four hospitals" in output
    assert "breast" not in output
