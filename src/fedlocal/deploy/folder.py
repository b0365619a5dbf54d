"""An app's folder, read: its settings, and the two apps in it. Only a folder of one's own is loaded, for loading runs it."""

import tomllib
from pathlib import Path
from typing import Any

from flwr.common.config import get_fused_config_from_dir, get_project_config
from flwr.supercore.object_ref import load_app

PORT = 8000


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


def site_names_of(folder: Path) -> tuple[str, ...]:
    """What the sites of the app are called; those of an experiment's app have numbers."""
    sites = run_config(folder).get("sites")
    if isinstance(sites, str):
        return tuple(sites.split(","))
    if isinstance(sites, int):
        return tuple(map(str, range(sites)))
    raise ValueError(f"{folder}/pyproject.toml: sites must be names or a number, got {sites!r}")


def app_port(folder: Path) -> int:
    """The port at which the app's sites look for the coordinator."""
    _settings(folder)
    address = get_project_config(folder)["tool"].get("fedlocal", {}).get("address", "")
    return int(address.rpartition(":")[2] or PORT)


def _settings(folder: Path) -> dict[str, Any]:
    try:
        return get_project_config(folder)["tool"]["flwr"]["app"]
    except FileNotFoundError:
        raise ValueError(f"{folder} is not the folder of an app: it has no pyproject.toml") from None
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{folder}/pyproject.toml: {error}") from None
