"""The pages of documentation: their Python runs, their links lead somewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ["simulate", "deploy", "what-is-sent", "failures"]


@pytest.mark.parametrize("page", PAGES)
def test_python_on_a_page_runs(page: str, tmp_path: Path):
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / f"{page}.md").read_text(), re.DOTALL)
    program = "\n".join(blocks)
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert not blocks or result.stdout.strip()


@pytest.mark.parametrize("page", PAGES)
def test_links_on_a_page_lead_somewhere(page: str):
    text = (DOCS / f"{page}.md").read_text()
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert target.startswith("https://") or (DOCS / target).exists(), target
