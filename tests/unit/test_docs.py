"""The pages of documentation: their Python runs, their links lead somewhere, the files that they name exist."""

import re
from pathlib import Path

import numpy as np
import pytest

import fedlocal as fl
from paths import ROOT
from programs import Told, run_programs

DOCS = ROOT / "docs"
TEXTS = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
FOLDERS = (ROOT, ROOT / "src/fedlocal", ROOT / "tests", DOCS)
PAGES = ["simulate", "cookbook", "theory", "estimators", "deploy", "what-is-sent", "failures"]
BLOCKS = {page: re.findall(r"```python\n(.*?)```", (DOCS / f"{page}.md").read_text(), re.DOTALL) for page in PAGES}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Told]:
    """What came of the Python of each page."""
    return run_programs({page: "\n".join(BLOCKS[page]) for page in PAGES}, tmp_path_factory.mktemp("pages"))


@pytest.mark.parametrize("page", PAGES)
def test_python_on_a_page_runs(page: str, told: dict[str, Told]):
    assert told[page].error == ""
    assert not BLOCKS[page] or told[page].output.strip()


@pytest.mark.parametrize("page", PAGES)
def test_links_on_a_page_lead_somewhere(page: str):
    text = (DOCS / f"{page}.md").read_text()
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert target.startswith("https://") or (DOCS / target).exists(), target


@pytest.mark.parametrize("text", [text for text in TEXTS if text.name != "CHANGELOG.md"], ids=lambda path: path.name)
def test_files_and_tests_named_in_a_text_exist(text: Path):
    """Names of files with a folder, such as `unit/data/test_libsvm.py::test_name, perhaps with another `::test_name`."""
    tests = ""
    for name, test in re.findall(r"`([a-z_]+/[\w/.-]+\.(?:py|toml|md))?(?:::(\w+))?`", text.read_text()):
        if name:
            places = [folder / name for folder in FOLDERS if (folder / name).is_file()]
            assert places, f"{text.name} names {name}"
            tests = places[0].read_text()
        assert f"def {test}" in tests or not test, f"{text.name} names {test}"


def test_the_page_on_theory_says_which_distances_are_squares():
    """`distance` of a shadow is a square, that of constants is not."""
    solution = np.array([3.0, 4.0])
    problem = fl.problems.quadratics([np.eye(2)], [solution])
    shadow = fl.Shadow(solution=solution, optimum=0.0)
    work = {"rounds": 1, "local_steps": 1, "x0": np.zeros(2), "progress": False}
    looked = fl.simulate(problem, fl.methods.FedAvg(0.1), shadow=shadow, **work).shadow
    assert looked is not None
    assert looked["distance"].iloc[0] == pytest.approx(25, rel=1e-12)
    assert fl.theory.estimate(problem, x0=np.zeros(2)).constants.distance == pytest.approx(5, rel=1e-9)
    text = " ".join((DOCS / "theory.md").read_text().split())
    assert "`distance`, the square of its distance from x*" in text
    assert "`distance` of `Constants` is no square" in text
