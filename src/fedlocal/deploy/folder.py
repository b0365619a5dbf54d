"""An app's folder, read: its settings, and the two apps in it. Only a folder of one's own is loaded, for loading runs it."""

import tomllib
from pathlib import Path
from typing import Any

from flwr.common.config import get_fused_config_from_dir, get_project_config
from flwr.supercore.object_ref import load_app


def component(folder: Path, kind: str) -> Any:
    """The ServerApp ("serverapp") or the ClientApp ("clientapp") that the folder's pyproject.toml names."""
    reference = str(_settings(folder)["components"][kind])
    try:
        return load_app(reference, ValueError, folder)
    except ModuleNotFoundError as error:
        raise ValueError(f"{folder}: pyproject.toml names {reference}, and there is no module {error.name}") from error


def run_config(folder: Path, **changes: Any) -> dict[str, Any]:
    """What a run of the app is told, with changes; a change of what there is not is refused."""
    _settings(folder)
    return get_fused_config_from_dir(folder, changes)


def _settings(folder: Path) -> dict[str, Any]:
    try:
        return get_project_config(folder)["tool"]["flwr"]["app"]
    except FileNotFoundError:
        raise ValueError(f"{folder} is not the folder of an app: it has no pyproject.toml") from None
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{folder}/pyproject.toml: {error}") from None
