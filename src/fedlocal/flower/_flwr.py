"""What is used of Flower beyond its public modules (flwr.app, flwr.clientapp, flwr.serverapp), all of it in this file.

Flower may change these names in any release: `flwr>=1.41,<2` is what they were tried with. Each is imported when it is first
used, for a site needs nothing of the SuperLink.
"""

# ruff: noqa: F401  (other modules import these names from here)
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flwr.cli.build import build_fab_from_disk
    from flwr.clientapp.typing import Mod
    from flwr.common.config import get_fused_config_from_dir, get_project_config, parse_config_args
    from flwr.common.constant import (
        FLWR_INTERNAL_GRPC_CONTROL_API,
        FLWR_INTERNAL_GRPC_FLEET_API,
        HEARTBEAT_DEFAULT_INTERVAL,
        ISOLATION_MODE_SUBPROCESS,
        NOOP_ACCOUNT_NAME,
        NOOP_FLWR_AID,
        SUPERLINK_NODE_ID,
        TRANSPORT_TYPE_GRPC_RERE,
        ErrorCode,
        Status,
        SubStatus,
    )
    from flwr.common.serde import fab_to_proto, user_config_to_proto
    from flwr.proto.control_pb2 import ListRunsRequest, StartRunRequest, StreamLogsRequest
    from flwr.proto.fleet_pb2 import PullMessagesRequest, PullMessagesResponse, PushMessagesRequest
    from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, ObjectTree, PullObjectRequest, PushObjectRequest
    from flwr.proto.run_pb2 import RunStatus
    from flwr.proto.runtime_pb2 import AcquireTaskRequest, SendTaskHeartbeatRequest
    from flwr.server.superlink.linkstate import LinkState
    from flwr.serverapp.strategy.strategy_utils import aggregate_metricrecords
    from flwr.supercore.constant import TaskType
    from flwr.supercore.control import ControlHttpClient
    from flwr.supercore.fab import Fab
    from flwr.supercore.heartbeat import HeartbeatSender
    from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
    from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
    from flwr.supercore.interceptors import RuntimeTokenHttpInterceptor, RuntimeVersionHttpInterceptor
    from flwr.supercore.object_ref import load_app
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes, uses_nist_ec_curve
    from flwr.supercore.protobuf.translation import PROTOBUF_REQUEST_TYPES
    from flwr.supercore.retry import RetryInvoker, exponential
    from flwr.supercore.runtime import RuntimeHttpClient
    from flwr.supercore.task_identity import TaskIdentity
    from flwr.superlink.cli.flower_superlink import SuperLinkLifespan
    from flwr.superlink.config_loader import SuperLinkLifespanConfig, load_control_authn_plugin
    from flwr.superlink.main import create_app
    from flwr.superlink.routers.fleet.router import router as fleet_router
    from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output

_NAMES = {
    # messages and their errors
    "flwr.clientapp.typing": ("Mod",),  # the type of a modifier, for a signature
    "flwr.common.constant": (
        "ErrorCode",  # says that a node is away, or that its app failed
        "SUPERLINK_NODE_ID",  # who sends a reply in Flower's own name
        "Status",  # a run has ended,
        "SubStatus",  # and how
        "HEARTBEAT_DEFAULT_INTERVAL",  # of a node that is registered,
        "NOOP_ACCOUNT_NAME",  # under the account that Flower has without logins
        "NOOP_FLWR_AID",
        "FLWR_INTERNAL_GRPC_CONTROL_API",  # environment variables that would open further listeners
        "FLWR_INTERNAL_GRPC_FLEET_API",
        "ISOLATION_MODE_SUBPROCESS",  # how the SuperLink runs a ServerApp
        "TRANSPORT_TYPE_GRPC_RERE",  # a field of its configuration, for a server that is never started
    ),
    "flwr.supercore.inflatable.inflatable_object": ("get_all_nested_objects",),  # a message as bytes, for InProcess
    "flwr.supercore.inflatable.inflatable_utils": ("inflate_object_from_contents",),  # and back
    "flwr.supercore.task_identity": ("TaskIdentity",),  # which run a message belongs to, for InProcess
    "flwr.serverapp.strategy.strategy_utils": ("aggregate_metricrecords",),  # Flower's weighted mean of numbers
    # a site's process, in place of Flower's own, which loads code that comes with a message
    "flwr.proto.runtime_pb2": ("AcquireTaskRequest", "SendTaskHeartbeatRequest"),
    "flwr.supercore.constant": ("TaskType",),
    "flwr.supercore.heartbeat": ("HeartbeatSender",),
    "flwr.supercore.interceptors": ("RuntimeTokenHttpInterceptor", "RuntimeVersionHttpInterceptor"),
    "flwr.supercore.retry": ("RetryInvoker", "exponential"),
    "flwr.supercore.runtime": ("RuntimeHttpClient",),
    "flwr.supernode.runtime.run_clientapp": ("pull_task_input", "push_message", "push_task_output"),
    # an app's folder
    "flwr.common.config": ("get_fused_config_from_dir", "get_project_config", "parse_config_args"),
    "flwr.supercore.object_ref": ("load_app",),
    # a run is submitted
    "flwr.cli.build": ("build_fab_from_disk",),
    "flwr.common.serde": ("fab_to_proto", "user_config_to_proto"),
    "flwr.proto.control_pb2": ("ListRunsRequest", "StartRunRequest", "StreamLogsRequest"),
    "flwr.proto.run_pb2": ("RunStatus",),
    "flwr.supercore.control": ("ControlHttpClient",),
    "flwr.supercore.fab": ("Fab",),
    # the coordinator: Flower's application, which requests of sites reach it, and which keys it knows
    "flwr.superlink.cli.flower_superlink": ("SuperLinkLifespan",),
    "flwr.superlink.config_loader": ("SuperLinkLifespanConfig", "load_control_authn_plugin"),
    "flwr.superlink.main": ("create_app",),
    "flwr.proto.fleet_pb2": ("PullMessagesRequest", "PullMessagesResponse", "PushMessagesRequest"),
    "flwr.proto.message_pb2": ("ConfirmMessageReceivedRequest", "ObjectTree", "PullObjectRequest", "PushObjectRequest"),
    "flwr.supercore.protobuf.translation": ("PROTOBUF_REQUEST_TYPES",),
    "flwr.superlink.routers.fleet.router": ("router as fleet_router",),
    "flwr.server.superlink.linkstate": ("LinkState",),
    "flwr.supercore.primitives.asymmetric": ("public_key_to_bytes", "uses_nist_ec_curve"),
}
_PLACES = {name.split(" as ")[-1]: (module, name.split(" as ")[0]) for module in _NAMES for name in _NAMES[module]}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, own = _PLACES[name]
    return getattr(import_module(module), own)
