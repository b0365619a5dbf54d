"""An app's folder."""

# ruff: noqa: F401  (other modules use these names from here)
from flwr.common.config import get_fused_config_from_dir, get_project_config
from flwr.supercore.object_ref import load_app
