"""Reading an app's folder: its settings, and the two apps in it. Loading runs code, so only one's own folder is loaded."""

import tomllib
from pathlib import Path
from typing import Any

from fedlocal.flower._flwr.app import get_fused_config_from_dir, get_project_config, load_app

PORT = 8000


def component(folder: Path, kind: str) -> Any:
    """Return the ServerApp ("serverapp") or the ClientApp ("clientapp") that the folder's pyproject.toml names."""
    reference = str(_settings(folder)["components"][kind])
    try:
        return load_app(reference, ValueError, folder)
    except ModuleNotFoundError as error:
        raise ValueError(f"{folder}: pyproject.toml names {reference}, and there is no module {error.name}") from error


def run_config(folder: Path, **changes: Any) -> dict[str, Any]:
    """Return the configuration of a run of the app, with changes; an unknown name is refused."""
    _settings(folder)
    return get_fused_config_from_dir(folder, changes)


def site_names_of(folder: Path) -> tuple[str, ...]:
    """Return the names of the app's sites; those of an experiment's app are numbers."""
    sites = run_config(folder).get("sites")
    if isinstance(sites, str):
        return tuple(sites.split(","))
    if isinstance(sites, int):
        return tuple(map(str, range(sites)))
    raise ValueError(f"{folder}/pyproject.toml: sites must be names or a number, got {sites!r}")


def app_port(folder: Path) -> int:
    """Return the port at which the app's sites look for the coordinator."""
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


def own_config(module_file: str) -> dict[str, Any]:
    """The run's configuration in the pyproject.toml of the app that holds this module, one folder above its package."""
    path = Path(module_file).resolve().parents[1] / "pyproject.toml"
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))["tool"]["flwr"]["app"]["config"]
    except (OSError, KeyError, tomllib.TOMLDecodeError) as error:
        raise ValueError(f"{path} does not hold the configuration of an app: {error}") from None
