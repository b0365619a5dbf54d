"""The app of a site. Its node's configuration says where the data are, and in tests of faults what is to go wrong."""

import time
from pathlib import Path

import numpy as np
from flwr.app import Context, Message
from flwr.clientapp.typing import ClientAppCallable

import fedlocal as fl
from fedlocal.flower import Policy, client_app
from fedlocal.flower.messages import records


def problem_for_node(context: Context) -> fl.problems.MatrixSensing:
    """The data in the file that the node's configuration names."""
    with np.load(str(context.node_config["data"])) as file:
        return fl.problems.MatrixSensing(fl.FederatedData.from_clients([(file["features"], file["targets"])]))


def hold(message: Message, context: Context, answer: ClientAppCallable) -> Message:
    """FedDualAvg: from round `hold-from` on, do not answer while the file `hold` exists; another file says so."""
    config, this_round = context.node_config, _round_of_fed_dual_avg(message)
    if "hold" in config and this_round is not None and this_round >= int(config["hold-from"]):
        file = Path(str(config["hold"]))
        while file.exists():
            file.with_suffix(".reached").write_text(str(this_round))
            time.sleep(0.05)
    return answer(message, context)


def poison(message: Message, context: Context, answer: ClientAppCallable) -> Message:
    """FedDualAvg with full gradients: answer with nan in the rounds that `poison` lists."""
    reply = answer(message, context)
    if str(_round_of_fed_dual_avg(message)) in str(context.node_config.get("poison", "")).split(","):
        arrays = reply.content.array_records[records.ARRAYS]
        reply.content[records.ARRAYS] = records.to_record({n: a.numpy() * np.nan for n, a in arrays.items()})
    return reply


def _round_of_fed_dual_avg(message: Message) -> int | None:
    config = records.only_config(message.content)
    held = config.get("method") == "FedDualAvg" and "settings.batch_size" not in config
    return int(config["settings.round"]) if held else None


app = client_app(problem_for_node, mods=[hold, poison], policy=Policy.open())
