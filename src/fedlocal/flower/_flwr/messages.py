"""Messages and their errors."""

# ruff: noqa: F401  (other modules use these names from here)
from flwr.app.message import make_message  # a reply in Flower's own name
from flwr.clientapp.typing import Mod  # the type of a modifier, for a signature
from flwr.common.constant import (
    SUPERLINK_NODE_ID,  # who sends a reply in Flower's own name
    ErrorCode,  # says that a node is away, or that its app failed
)
from flwr.serverapp.strategy.strategy_utils import aggregate_metricrecords  # Flower's weighted mean of numbers
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,  # a message as bytes, for InProcess
    no_object_id_recompute,  # while a message does not change
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents  # and back
from flwr.supercore.task_identity import TaskIdentity  # which run a message belongs to, for InProcess
