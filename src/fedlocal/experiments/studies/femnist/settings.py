"""Settings of a study of norm-constrained classifiers of handwriting."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from fedlocal.experiments.runner.settings import TunedStudySettings

DATA = ("digits", "mnist_by_writer", "femnist")
MEASURED = ("training_accuracy", "test_accuracy", "constraint_violation")


class FemnistSettings(TunedStudySettings):
    """Tuned methods under a norm constraint on handwriting by writer.

    Any value may be a table {digits = ..., mnist_by_writer = ..., femnist = ...} with one value per data set; `data` selects it.
    """

    data: Literal["digits", "mnist_by_writer", "femnist"]
    folder: str | None = None  # folder of the data file; None: the cache
    fraction: Annotated[float, Field(gt=0, le=1)]  # part of each writer's examples that is used for training
    model: Literal["softmax", "2nn"]
    hidden: Annotated[list[PositiveInt], Field(min_length=2, max_length=2)]  # widths of the network's hidden layers
    norm: Literal["l1", "l2"]
    radius: PositiveFloat  # of the ball in which every kernel is kept

    @model_validator(mode="before")
    @classmethod
    def _select_data(cls, raw: Any) -> Any:
        data = raw.get("data")
        if data not in DATA:
            raise ValueError(f"data must be one of {', '.join(map(repr, DATA))}, got {data!r}")
        return {key: _selected(value, data) for key, value in raw.items()}

    @model_validator(mode="after")
    def _measured(self) -> "FemnistSettings":
        self.refuse_unmeasured(MEASURED)
        return self


def _selected(value: Any, data: str) -> Any:
    """Return the value for a data set, also inside tables."""
    if not isinstance(value, Mapping):
        return value
    if set(value) == set(DATA):
        return value[data]
    return {key: _selected(inner, data) for key, inner in value.items()}
