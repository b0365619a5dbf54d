"""The coordinator: Flower's application, which requests of sites reach it, and which keys it knows."""

# ruff: noqa: F401  (other modules use these names from here)
from flwr.common.constant import (
    FLWR_INTERNAL_GRPC_CONTROL_API,  # environment variables that would open further listeners
    FLWR_INTERNAL_GRPC_FLEET_API,
    HEARTBEAT_DEFAULT_INTERVAL,  # of a node that is registered,
    ISOLATION_MODE_SUBPROCESS,  # how the SuperLink runs a ServerApp
    NOOP_ACCOUNT_NAME,  # under the account that Flower has without logins
    NOOP_FLWR_AID,
    TRANSPORT_TYPE_GRPC_RERE,  # a field of its configuration, for a server that is never started
)
from flwr.proto.fleet_pb2 import PullMessagesRequest, PullMessagesResponse, PushMessagesRequest
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, ObjectTree, PullObjectRequest, PushObjectRequest
from flwr.server.superlink.linkstate import LinkState
from flwr.supercore.primitives.asymmetric import public_key_to_bytes, uses_nist_ec_curve
from flwr.supercore.protobuf.translation import PROTOBUF_REQUEST_TYPES
from flwr.superlink.cli.flower_superlink import SuperLinkLifespan
from flwr.superlink.config_loader import SuperLinkLifespanConfig, load_control_authn_plugin
from flwr.superlink.main import create_app
from flwr.superlink.routers.fleet.router import router as fleet_router
