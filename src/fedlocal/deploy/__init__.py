"""deploy: from options on the command line to sites that train together: the app's folder, keys, rehearsal, processes."""

from typing import Any

from fedlocal.deploy.coordinator.nodes import site_nodes
from fedlocal.deploy.folder import own_config
from fedlocal.deploy.logging import configure_logging

__all__ = ["configure_logging", "own_config", "site_nodes"]


def __getattr__(name: str) -> Any:
    """Say what replaces a name that apps of earlier versions import."""
    if name == "talk_plainly":
        now = "configure_logging since version 0.3; `fedlocal deploy` writes the app anew"
        raise ImportError(f"fedlocal.deploy.talk_plainly is {now}")
    raise AttributeError(f"module 'fedlocal.deploy' has no attribute {name!r}")
