"""ModelSignature: the shapes of a model's parameters and the names of its columns. All sites must have the same."""

from itertools import pairwise, zip_longest
from math import prod
from typing import Any, NamedTuple

from fedlocal.flower.messages.text import clean

LARGEST = 10**9  # numbers in a model
MOST_PARAMETERS, MOST_AXES = 10_000, 32  # parameters of a model, and axes of one of them


class ModelSignature(NamedTuple):
    """What a site says of its model before it takes part."""

    shapes: dict[str, tuple[int, ...]]  # of the parameters, by name
    columns: list[str] | None  # names of the features, where the site gives them

    @classmethod
    def read(cls, site: str, config: dict[str, Any]) -> "ModelSignature":
        """Read the signature from a site's introduction; raise ValueError if it is wrong."""
        names, columns = config.get("names"), config.get("columns")
        if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
            raise ValueError(f"{site} does not name its parameters")
        if len(names) > MOST_PARAMETERS:
            raise ValueError(f"{site} has {len(names)} parameters; at most {MOST_PARAMETERS} are read")
        shapes = {name: config.get(f"shape.{name}", []) for name in names}
        if not all(
            isinstance(shape, list) and len(shape) <= MOST_AXES and all(type(n) is int and n > 0 for n in shape)
            for shape in shapes.values()
        ):
            raise ValueError(f"{site} has parameters without a proper shape")
        if sum(prod(shape) for shape in shapes.values()) > LARGEST:
            raise ValueError(f"{site} has more than {LARGEST} parameters")
        paths = sorted(name.split("/") for name in shapes)  # what is inside a parameter comes right after it
        if any(after[: len(path)] == path for path, after in pairwise(paths)):
            raise ValueError(f"{site} has parameters of which one is inside another")
        if columns is not None and not (isinstance(columns, list) and all(isinstance(c, str) for c in columns)):
            raise ValueError(f"{site} does not name its columns properly")
        columns = None if columns is None else [clean(column) for column in columns]  # they come into tables and logs
        return cls({name: tuple(shape) for name, shape in shapes.items()}, columns)

    def check(self, site: str, wanted: "ModelSignature") -> None:
        """Raise ValueError, with the first difference, if this is not the signature that the others have."""
        if self.columns != wanted.columns:
            pairs = enumerate(zip_longest(self.columns or [], wanted.columns or []), start=1)
            place, (column, other) = next((p for p in pairs if p[1][0] != p[1][1]), (0, ("none", "none")))
            first = f"column {place} is {column!r} and not {other!r}"
            raise ValueError(f"{site} has other columns than the others: {first}")
        if self.shapes != wanted.shapes:
            raise ValueError(f"{site} has parameters of shapes {self.shapes}, the others {wanted.shapes}")
