"""A run is submitted."""

# ruff: noqa: F401  (other modules use these names from here)
from flwr.cli.build import build_fab_from_disk
from flwr.common.config import parse_config_args
from flwr.common.constant import Status, SubStatus  # a run has ended, and how
from flwr.common.serde import fab_to_proto, user_config_to_proto
from flwr.proto.control_pb2 import ListRunsRequest, StartRunRequest, StreamLogsRequest
from flwr.proto.run_pb2 import RunStatus
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.fab import Fab
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
