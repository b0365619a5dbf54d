"""Policy: what a site answers. It belongs to the site; a coordinator cannot change it and is told codes, not reasons."""

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedlocal.core import LocalMethod
from fedlocal.flower.messages.round_settings import RoundSettings
from fedlocal.methods import method_spec

FILE = "policy.toml"  # beside a site's data
SETTINGS = ("local_steps", "local_epochs", "batch_size", "weights", "seed")
STEP_SIZES = ("step_size", "client_step_size")
ROUNDING = 1e-9


class Refused(ValueError):
    """A question that a site does not answer. `code` goes to the coordinator; the sentence stays at the site.

    A sentence without a code is about the question alone, quotes no data, and goes to the coordinator as it is.
    """

    def __init__(self, sentence: str, code: str | None = None):
        super().__init__(sentence)
        self.code = code

    def reason(self) -> str:
        """Return what the coordinator is told."""
        return str(self) if self.code is None else f"refused by the site's policy: {self.code}"


class Policy(BaseModel):
    """The rules of a site, with defaults for records of patients.

    Args:
        fewest_rows: rows that the site must have, rows of every minibatch, and rows that matter in effect to a gradient.
        smallest_share: the share of the site's rows that the minibatches of a round draw at least.
        secret_draws: draw minibatches with a secret of the site in place of the run's seed. From minibatches that
            the coordinator knows, as many as there are rows, it could compute every row.
        smallest_cell: a column in which fewer rows than this differ from the usual value is left out at this site.
        most_parameters_per_row: numbers in the model per row of the site.
        largest_loss: the loss of a model on the site's rows, as a multiple of the loss of the zero model.
        most_states_per_row: questions for steps, losses and gradients at different states, over all runs, per row of the
            site. Each tells as many numbers as a row has: with about as many as rows, rows can be computed from them.
        most_rounds: different states at which the site takes local steps, over all runs on its data.
        most_evaluations: different states at which it gives loss and gradient, over all runs on its data.
        most_answers: answers of any kind, over all runs on its data.
        most_seconds: time for one question.
        certificate: give the gradient at the model, from which the coordinator sees if a run has converged.
        allow: settings of a run that may differ from those of the site's own copy of the app: a pair of numbers is a
            range, a list of words the choices; the names are those of the method's arguments and of the round's settings.

    >>> print(Policy(fewest_rows=20).describe()[0])
    fewest_rows = 20: the site has at least so many rows, so has every minibatch, and in effect every gradient
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    fewest_rows: int = Field(default=10, ge=1)
    smallest_share: float = Field(default=0.1, ge=0, le=1000)
    secret_draws: bool = True
    smallest_cell: int = Field(default=3, ge=1)
    most_parameters_per_row: float = Field(default=0.33, gt=0)
    largest_loss: float = Field(default=2.0, gt=0)
    most_states_per_row: float = Field(default=0.5, gt=0)
    most_rounds: int = Field(default=2000, ge=1)
    most_evaluations: int = Field(default=500, ge=0)
    most_answers: int = Field(default=10_000, ge=1)
    most_seconds: float = Field(default=600.0, gt=0)
    certificate: bool = True
    allow: dict[str, tuple[float, float] | list[str]] = Field(default_factory=dict)

    @classmethod
    def open(cls) -> "Policy":
        """Return a policy without limits but time: for data that are not secret, such as those of experiments."""
        limits: dict[str, Any] = dict.fromkeys(("most_rounds", "most_evaluations", "most_answers"), 2**31)
        limits |= dict.fromkeys(("most_parameters_per_row", "largest_loss", "most_states_per_row"), math.inf)
        return cls(fewest_rows=1, smallest_share=0.0, secret_draws=False, smallest_cell=1, **limits)

    @classmethod
    def read(cls, path: str | Path) -> "Policy":
        """Return the policy in a TOML file. What the file does not name has its default; an unknown name is refused."""
        try:
            return cls.model_validate(tomllib.loads(Path(path).read_text(encoding="utf-8")))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise ValueError(f"policy: {path} cannot be read: {error}") from None
        except ValidationError as error:
            first = error.errors()[0]
            name = ".".join(map(str, first["loc"]))
            wrong = f"{name}: {first['msg']}, got {first['input']!r}"
            raise ValueError(f"policy: {path}: {wrong}; there are: {', '.join(cls.model_fields)}") from None

    def refusal(self, what: str, rule: str, code: str | None = None, more: str = "") -> Refused:
        """Return the refusal of a question that breaks a rule; `what` of the question does, and `more` may help."""
        return Refused(f"{what}; {rule} of the policy is {_shown(getattr(self, rule))}{more}", code or rule)

    def describe(self) -> list[str]:
        """Return one line per rule, for the site's screen."""
        said = {
            "fewest_rows": "the site has at least so many rows, so has every minibatch, and in effect every gradient",
            "smallest_share": "of the site's rows are drawn in a round at least, where steps take minibatches",
            "secret_draws": "minibatches are drawn with a secret of the site, not with the run's seed",
            "smallest_cell": "a column in which fewer rows differ from its usual value is left out here",
            "most_parameters_per_row": "numbers in the model per row at most",
            "largest_loss": "times the loss of the zero model is the worst model that is answered",
            "most_states_per_row": "questions at different states per row, over all runs",
            "most_rounds": "states at which the site takes steps, over all runs",
            "most_evaluations": "states at which the site gives its loss and gradient, over all runs",
            "most_answers": "answers over all runs",
            "most_seconds": "seconds for one question",
            "certificate": "the site gives its gradient at the model, which shows whether a run has converged",
            "allow": "settings that may differ from this copy of the app",
        }
        values: dict[str, Any] = self.model_dump()
        return [f"{name} = {_shown(values[name])}: {said[name]}" for name in type(self).model_fields]


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    return "nothing" if value == {} else str(value)


@dataclass(frozen=True)
class Agreement:
    """What a site's copy of the app says of a run.

    Args:
        method: the method with the numbers of this copy.
        settings: the app's configuration, with names as in pyproject.toml.
        chosen_step_size: the coordinator chooses the step size from the sites' curvatures: any up to 1 / curvature of
            this site's loss is accepted.
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
    said = f"the coordinator asks for {name} = {got!r}; this site's copy of the app says {wanted!r}"
    return Refused(f"{said}, and allow of its policy has nothing else", "settings")
