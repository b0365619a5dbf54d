"""Where the project is, and the shared data beside it, which need not be there."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
SHARED = ROOT.parent / "shared"
