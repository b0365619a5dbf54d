"""The examples run, on small data in the same format."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
NEWS20 = Path(__file__).parents[3] / "shared" / "data"


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
    assert "by the linear engine" in output


@pytest.mark.thorough
@pytest.mark.skipif(not NEWS20.exists(), reason="news20 is in ../shared/data, which is not here")
def test_news20_itself():
    output = run("news20.py", "--folder", str(NEWS20), "--rounds", "5")
    assert "62,061 features, 20 sites" in output
    assert "by the linear engine" in output
