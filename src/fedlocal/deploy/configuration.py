"""own_config: what this copy of an app says of a run, whatever a coordinator says."""

import tomllib
from pathlib import Path
from typing import Any


def own_config(module_file: str) -> dict[str, Any]:
    """The run's configuration in the pyproject.toml of the app that holds this module, one folder above its package."""
    path = Path(module_file).resolve().parents[1] / "pyproject.toml"
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))["tool"]["flwr"]["app"]["config"]
    except (OSError, KeyError, tomllib.TOMLDecodeError) as error:
        raise ValueError(f"{path} does not hold the configuration of an app: {error}") from None
