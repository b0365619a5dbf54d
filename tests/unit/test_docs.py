"""The pages of documentation: their Python runs, their links lead somewhere."""

import re
from pathlib import Path

import pytest

from programs import Told, run_programs

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ["simulate", "estimators", "deploy", "what-is-sent", "failures"]
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
