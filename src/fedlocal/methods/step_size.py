"""with_step_size: the same method with another step size of its gradient steps."""

import dataclasses

from fedlocal.core import LocalMethod

NAMES = ("client_step_size", "step_size")


def with_step_size(method: LocalMethod, value: float) -> LocalMethod:
    """The method with this step size of its clients, or of its server where clients only send gradients.

    >>> from fedlocal.methods import FedAvg
    >>> with_step_size(FedAvg(0.1), 0.5).client_step_size
    0.5
    """
    fields = {field.name: getattr(method, field.name) for field in dataclasses.fields(method)}
    name = next((name for name in NAMES if name in fields), None)
    if name is None:
        raise ValueError(f"with_step_size: {type(method).__name__} has none of {', '.join(NAMES)}")
    return type(method)(**{**fields, name: value})
