"""Settings of a study of norm-constrained classifiers of handwriting."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from fedlocal.experiments.settings.tuned import TunedStudy

DATA = ("digits", "mnist_by_writer", "femnist")
MEASURED = ("training_accuracy", "test_accuracy", "constraint_violation")


class Femnist(TunedStudy):
    """Tuned methods under a norm constraint on handwriting by writer.

    Wherever a value stands, a table {digits = ..., mnist_by_writer = ..., femnist = ...} may stand, which has one for each data
    set: so `data` alone decides how much is run.
    """

    kind: Literal["femnist"]
    data: Literal["digits", "mnist_by_writer", "femnist"]
    folder: str | None = None  # where the file is; None: in the cache
    fraction: Annotated[float, Field(gt=0, le=1)]  # of each writer's examples that are trained on
    model: Literal["softmax", "2nn"]
    hidden: Annotated[list[PositiveInt], Field(min_length=2, max_length=2)]  # widths of the network's hidden layers
    norm: Literal["l1", "l2"]
    radius: PositiveFloat  # of the ball in which every kernel is kept

    @model_validator(mode="before")
    @classmethod
    def _of_the_data(cls, raw: Any) -> Any:
        data = raw.get("data")
        if data not in DATA:
            raise ValueError(f"data must be one of {', '.join(map(repr, DATA))}, got {data!r}")
        return {key: _chosen(value, data) for key, value in raw.items()}

    @model_validator(mode="after")
    def _measured(self) -> "Femnist":
        self.refuse_unmeasured(MEASURED)
        return self


def _chosen(value: Any, data: str) -> Any:
    """The value for a data set, inside tables too."""
    if not isinstance(value, Mapping):
        return value
    if set(value) == set(DATA):
        return value[data]
    return {key: _chosen(inner, data) for key, inner in value.items()}
