"""Where a result comes from: versions, commit, machine, configuration."""

import importlib.metadata
import platform
import subprocess
from functools import lru_cache
from pathlib import Path
from typing import Any

LIBRARIES = ("jax", "jaxlib", "equinox", "optax", "numpy", "scipy", "pandas", "pyarrow", "pydantic", "numba")


def provenance_record(**configuration: Any) -> dict[str, Any]:
    """Return what is needed to reproduce a result, ready for JSON."""
    import jax  # imported here because `import fedlocal` needs only the version

    return {**_software(), "devices": [str(d) for d in jax.devices()], "configuration": configuration}


def version() -> str:
    """Return the installed version of fedlocal."""
    return importlib.metadata.version("fedlocal")


@lru_cache(maxsize=1)
def _software() -> dict[str, Any]:
    return {
        "fedlocal": version(),
        "commit": _commit(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "libraries": {name: importlib.metadata.version(name) for name in LIBRARIES},
    }


def _commit() -> str | None:
    """Return the commit of the checkout that contains this file, with + if files differ from it; None outside a checkout."""
    here = Path(__file__).resolve().parent
    try:
        run = {"cwd": here, "capture_output": True, "text": True, "timeout": 5, "check": True}
        tracked = subprocess.run(["git", "ls-files", "--error-unmatch", __file__], **run)
        head = subprocess.run(["git", "rev-parse", "HEAD"], **run).stdout.strip()
        dirty = subprocess.run(["git", "status", "--porcelain", "--untracked-files=no"], **run).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    return (head + ("+" if dirty else "")) if tracked.stdout else None
