"""A coordinator that asks one site whatever it likes, and the hospital that it asks: a real app and a file of patients."""

import itertools
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
from flwr.app import ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from fedlocal.core import LocalMethod
from fedlocal.data.moments import Moments
from fedlocal.deploy.app import write_app
from fedlocal.deploy.files import files_app
from fedlocal.deploy.folder import component
from fedlocal.deploy.options import DeployOptions
from fedlocal.flower import Policy, client_app
from fedlocal.flower.messages import records
from fedlocal.flower.messages.grids import _through_bytes
from fedlocal.flower.messages.round_settings import RoundSettings
from fedlocal.flower.messages.serialization import StateSerializer
from fedlocal.flower.site.app import SiteApp
from fedlocal.methods import AcceleratedProximalGradient, method_spec

TARGET = "sick"
COLUMNS = ["age", "pressure", "smoker", "weight"]  # as a site sorts them


def patients(rows: int = 60, seed: int = 1) -> pd.DataFrame:
    """Patients with whole numbers in all columns, no two alike."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "age": rng.integers(30, 80, rows),
            "pressure": rng.integers(100, 180, rows),
            "smoker": rng.integers(0, 2, rows),
            "weight": rng.integers(50, 110, rows),
            TARGET: rng.integers(0, 2, rows),
        }
    )
    assert not table.duplicated().any()
    return table


opened: list["Coordinator"] = []  # whose sites hold their records
_apps = itertools.count()  # modules of two apps must not share a name


def write_hospital(folder: Path, table: pd.DataFrame, **options: Any) -> tuple[SiteApp, dict[str, Any]]:
    """The app that `fedlocal deploy` writes for these options, and the configuration of a node that has this table."""
    place = folder / f"hospital{next(_apps)}"
    write_app(place, files_app(DeployOptions(sites=("north", "south"), target=TARGET, **options)))
    data = folder / "north.csv"
    table.to_csv(data, index=False)
    return component(place, "clientapp"), {"site": "north", "data": str(data), "record": f"{data}.record.jsonl"}


def careless(app: SiteApp) -> SiteApp:
    """The same app without rules: no policy, no agreement."""
    module = sys.modules[app.columns_for_node.__module__]
    return client_app(module.problem_for_node, moments_for_node=module.moments_for_node, policy=Policy.open())


def with_policy(app: SiteApp, **rules: Any) -> SiteApp:
    """The same app in another process, with some rules of its policy changed."""
    module = sys.modules[app.columns_for_node.__module__]
    agreement = module.Agreement(module.method_of(module.CONFIG), module.CONFIG, chosen_step_size=True)
    moments = getattr(module, "moments_for_node", None)
    return client_app(
        module.problem_for_node,
        moments_for_node=moments,
        columns_for_node=app.columns_for_node,
        agreement=agreement,
        policy=Policy(**rules),
    )


class Coordinator:
    """Asks one site. Every answer goes through bytes, as it would between two machines."""

    def __init__(self, app: SiteApp, node: dict[str, Any], method: LocalMethod | None = None, **settings: Any):
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 0  # Flower writes them into messages
        self.app, self.node = app, node
        self.method = AcceleratedProximalGradient(1e-6) if method is None else method
        self.settings = {"client": 0, "seed": 0, "weights": "examples", "local_steps": 1, **settings}
        self.run = 1
        self.moments: dict[str, Any] = {}
        self.sent: list[bytes] = []  # all that left the site
        opened.append(self)

    def ask(self, kind: str, content: RecordDict, run: int | None = None) -> Message:
        """What the site answers to any content."""
        question, _ = _through_bytes(Message(content, 1, kind))
        answer, data = _through_bytes(self.app(question, self.context(run)))
        self.sent += data
        return answer

    def end(self) -> None:
        """End the site's process: another one may use its record."""
        self.app.site_of(self.context()).record.close()

    def context(self, run: int | None = None) -> Context:
        """What Flower tells the site's app of its node."""
        return Context(self.run if run is None else run, 1, dict(self.node), RecordDict(), {})

    def query(self, run: int | None = None, **values: Any) -> Message:
        """What the site answers to a question of plain values."""
        plain = {name.replace("__", "."): value for name, value in values.items()}
        return self.ask(MessageType.QUERY, RecordDict({"config": ConfigRecord({**plain, **self.moments})}), run)

    def own_moments(self) -> Moments:
        """The site's moments."""
        arrays = records.only_arrays(answered(self.query(moments=True)).content)
        return Moments(*(arrays[name] for name in Moments._fields))

    def claim(self, total: Moments, included: bool = True) -> None:
        """From now on say that these are the moments of all sites."""
        self.moments = {f"moments.{name}": a.tolist() for name, a in total._asdict().items()}
        self.moments["moments.included"] = included

    def content(self, state: Any, r: int, dtype: Any = np.float64, **changes: Any) -> RecordDict:
        """A question at a state: weights and intercept in one vector, or for each part of a method's state."""
        config, x0 = self._config(r, changes), parameters(np.zeros(np.shape(_parts(state)[0])[-1]), dtype)
        with jax.enable_x64(np.dtype(dtype) == np.float64):
            serializer = StateSerializer(self.method, x0)
            names = [name for name in serializer.likes if name not in serializer.numbers]
            parts = {part: _parts(state)[i] for i, part in enumerate(dict.fromkeys(n.split("/")[0] for n in names))}
        arrays = {
            name: np.atleast_1d(parameters(parts[name.split("/")[0]], dtype)[name.split("/")[1]]) for name in names
        }
        numbers = {f"number.{name}": 0.0 for name in serializer.numbers}
        return RecordDict({"arrays": records.to_record(arrays), "config": ConfigRecord({**config, **numbers})})

    def train(self, state: Any, r: int = 0, run: int | None = None, **changes: Any) -> Message:
        """What the site answers when it is asked for local steps."""
        return self.ask(MessageType.TRAIN, self.content(state, r, **changes), run)

    def evaluate(self, state: Any, r: int = 0, run: int | None = None, **changes: Any) -> Message:
        """What the site answers when it is asked for loss and gradient."""
        changes.setdefault("certificate", True)
        return self.ask(MessageType.EVALUATE, self.content(state, r, **changes), run)

    def gradient(self, z: np.ndarray, r: int = 0, run: int | None = None, **changes: Any) -> np.ndarray:
        """The site's gradient at z, weights and intercept in one vector, from a round of gradients."""
        arrays = records.only_arrays(answered(self.train([np.zeros_like(z), z], r, run, **changes)).content)
        return np.r_[arrays["x/weights"], arrays["x/intercept"]]

    def _config(self, r: int, changes: dict[str, Any]) -> dict[str, Any]:
        config = {
            **method_spec.describe(self.method),
            **RoundSettings(round=r, **self.settings).to_config(),
            **self.moments,
        }
        for name, value in changes.items():
            config[name.replace("__", ".")] = value
        return {name: value for name, value in config.items() if value is not None}


def _parts(state: Any) -> list[np.ndarray]:
    return list(state) if isinstance(state, (list, tuple)) else [state, state]


def parameters(x: np.ndarray, dtype: Any = np.float64) -> dict[str, np.ndarray]:
    """Weights and intercept of a vector that ends with the intercept."""
    return {"weights": np.asarray(x[:-1], dtype), "intercept": np.asarray(x[-1], dtype)}


def answered(answer: Message) -> Message:
    """An answer that must not be a refusal."""
    assert not answer.has_error(), answer.error.reason
    return answer


def refusal(answer: Message) -> str:
    """Why there is no answer, as the coordinator is told."""
    assert answer.has_error(), answer.content
    return str(answer.error.reason).removeprefix("refused by the site's policy: ")


def numbers_of(answer: Message) -> dict[str, float]:
    """The numbers of an answer."""
    return records.only_metrics(answered(answer).content)


def unit_moments(own: Moments, times: float = 1e5) -> Moments:
    """Moments of so many rows that all columns are left as they are: mean 0, deviation 1."""
    present = own.present * times
    return Moments(present, np.zeros_like(present), present)
