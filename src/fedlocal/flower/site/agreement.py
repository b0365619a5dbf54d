"""Agreement: a run's settings are those of the site's own copy of the app, or inside what its policy allows."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedlocal.core import LocalMethod
from fedlocal.flower.messages.round_settings import RoundSettings
from fedlocal.flower.site.policy import Policy, Refused
from fedlocal.methods import method_spec

SETTINGS = ("local_steps", "local_epochs", "batch_size", "weights", "seed")
STEP_SIZES = ("step_size", "client_step_size")
ROUNDING = 1e-9


@dataclass(frozen=True)
class Agreement:
    """What a site's copy of the app says of a run.

    `settings` are the app's configuration, with names as in pyproject.toml. With `chosen_step_size` the coordinator chooses
    the step size from the sites' curvatures: any up to 1 / curvature of this site's loss is accepted.
    """

    method: LocalMethod
    settings: Mapping[str, Any] = field(default_factory=dict)
    chosen_step_size: bool = False

    def check(
        self, policy: Policy, description: Mapping[str, Any], asked: RoundSettings, largest_step_size: float | None
    ) -> None:
        """Raise Refused if the method or a setting differs from this copy of the app and the policy does not allow it."""
        own = method_spec.describe(self.method)
        for path in sorted(own.keys() | description.keys()):
            name = path.removeprefix("method.")
            if self.chosen_step_size and name in STEP_SIZES and largest_step_size is not None:
                if not _inside(description.get(path), (0.0, largest_step_size * (1 + ROUNDING))):
                    raise _other(name, description.get(path), f"at most {largest_step_size:g}, 1 / curvature here")
            elif description.get(path) != own.get(path) and not _allowed(policy, name, description.get(path)):
                raise _other(name, description.get(path), own.get(path))
        for name in SETTINGS:
            wanted, got = self.settings.get(name.replace("_", "-")), getattr(asked, name)
            if got != wanted and not _allowed(policy, name, got):
                raise _other(name, got, wanted)


def _allowed(policy: Policy, name: str, value: Any) -> bool:
    allowed = policy.allow.get(name)
    if isinstance(allowed, tuple):
        return _inside(value, allowed)
    return allowed is not None and value in allowed


def _inside(value: Any, limits: tuple[float, float]) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and limits[0] <= value <= limits[1]


def _other(name: str, got: Any, wanted: Any) -> Refused:
    return Refused(
        f"the coordinator asks for {name} = {got!r}; this site's copy of the app says {wanted!r}, and allow of its policy "
        "has nothing else",
        "settings",
    )
