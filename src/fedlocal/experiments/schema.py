"""What an experiment's configuration may say. Unknown keys are errors, so a misspelt override never passes silently."""

import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)

CONFIGS = resources.files("fedlocal.experiments") / "configs"
SCALES = ("quick", "paper")
GRIDS = ("text", "wide")


MEASURED = {
    "synthetic_lasso": ("density", "precision", "recall", "f1"),
    "synthetic_low_rank": ("validation_error", "rank", "rank_error", "frobenius_error"),
}
Seed = Annotated[int, Field(ge=0, lt=2**31)]


class Strict(BaseModel):
    """Frozen, and closed to keys that it does not name."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class DataSettings(Strict):
    """A synthetic data set of the text."""

    generator: Literal["synthetic_lasso", "synthetic_low_rank"]
    config: Literal["I", "II", "III", "IV"]


class Grid(Strict):
    """Step sizes that are tried, all combinations."""

    client_step_size: Annotated[list[PositiveFloat], Field(min_length=1)]
    server_step_size: Annotated[list[PositiveFloat], Field(min_length=1)]


class Score(Strict):
    """The rule by which a method's best cell is chosen: mean, last or best of a column."""

    metric: str
    rule: Literal["mean", "last", "best"]
    window: PositiveInt
    largest: bool


class Panel(Strict):
    """One panel of the figure: a column of the history against rounds."""

    column: str
    title: str
    log: bool = False


class Claim(Strict):
    """A claim of the text, and how it is checked; `claims.py` says what each check does."""

    text: str
    check: Literal[
        "reaches",
        "never",
        "ends",
        "better",
        "close",
        "fastest",
        "tuned",
        "inside_grid",
        "slower_than_on",
        "faster_than_on",
    ]
    method: str
    metric: str | None = None
    level: float | None = None  # what the metric must come to
    within: PositiveInt | None = None  # rounds
    than: list[str] = []  # other methods
    margin: NonNegativeFloat = 0.0
    largest: bool = True  # whether more is better
    step_sizes: tuple[PositiveFloat, PositiveFloat] | None = None  # the text's client and server step size
    other: str | None = None  # another experiment


class Common(Strict):
    """What every experiment has."""

    name: str
    title: str
    reference: str  # where in the text
    seeds: Annotated[list[Seed], Field(min_length=1)]

    @field_validator("seeds")
    @classmethod
    def _different(cls, seeds: list[int]) -> list[int]:
        if len(set(seeds)) < len(seeds):
            raise ValueError("seeds must differ from each other")
        return seeds


class Recovery(Common):
    """Tuned federated composite methods on a synthetic truth, beside the centralised optimum."""

    kind: Literal["recovery"]
    data: DataSettings
    strength: PositiveFloat | Literal["recover"]  # lambda; "recover" finds it by the text's rule
    methods: Annotated[list[Literal["FedDualAvg", "FedDualAvg-OSP", "FedMiD", "FedMiD-OSP"]], Field(min_length=1)]
    grid: Grid
    rounds: PositiveInt
    eval_every: PositiveInt
    clients_per_round: PositiveInt
    batch_size: PositiveInt
    local_epochs: PositiveInt
    weights: Literal["uniform", "examples"]
    score: Score
    panels: list[Panel]
    columns: list[str]  # of the table
    claims: list[Claim]

    @model_validator(mode="after")
    def _measured(self) -> "Recovery":
        there = ["loss", "objective", *MEASURED[self.data.generator]]
        named = [self.score.metric, *self.columns, *(panel.column for panel in self.panels)]
        named += [claim.metric for claim in self.claims if claim.metric is not None]
        for name in named:
            if name not in there:
                raise ValueError(f"{name!r} is not measured; there are: {', '.join(there)}")
        return self


class LogisticData(Strict):
    """A set of examples with two classes. The last three are for the generated one, which has the text's size where they are
    left out."""

    name: Literal["a9a", "epsilon", "epsilon-like"]
    num_examples: PositiveInt | None = None
    num_features: PositiveInt | None = None
    seed: Seed | None = None

    @model_validator(mode="after")
    def _generated(self) -> "LogisticData":
        for name, value in self.generator.items():
            if self.name != "epsilon-like":
                raise ValueError(f"data.{name} is for epsilon-like, got {value!r} for {self.name}")
        return self

    @property
    def generator(self) -> dict[str, Any]:
        """What the generator is told."""
        return self.model_dump(exclude={"name"}, exclude_none=True)


class SpeedupGrid(Strict):
    """All combinations are run; the best step size is taken for each number of clients and of local steps."""

    step_size: Annotated[list[PositiveFloat], Field(min_length=1)]
    clients: Annotated[list[PositiveInt], Field(min_length=1)]
    local_steps: Annotated[list[PositiveInt], Field(min_length=1)]

    @field_validator("*")
    @classmethod
    def _ascending(cls, values: list[float]) -> list[float]:
        if values != sorted(set(values)):
            raise ValueError(f"values of a grid must ascend, got {values}")
        return values


class SpeedupPanels(Strict):
    """Which local steps and which clients get a panel in the figures; those that are not in the grid are left out."""

    local_steps: list[PositiveInt]
    clients: list[PositiveInt]


NEEDED = {  # by the checks of `speedup_claims.py`
    "rounds_needed": ("method", "level", "rounds", "clients"),
    "linear_speedup": ("methods", "exponent"),
    "no_linear_speedup": ("methods", "exponent"),
    "deteriorates": ("method", "factor"),
    "better": ("method", "than", "factor"),
    "similar": ("method", "than", "factor"),
    "inside_grid": (),
}


class SpeedupClaim(Strict):
    """A claim of the text about speed-up, and how it is checked; `speedup_claims.py` says what each check does."""

    text: str
    check: Literal[
        "rounds_needed",
        "linear_speedup",
        "no_linear_speedup",
        "deteriorates",
        "better",
        "similar",
        "inside_grid",
    ]
    method: str | None = None
    methods: list[str] = []
    than: list[str] = []  # other methods
    fewest_local_steps: PositiveInt | None = None  # the claim is about these and more
    most_local_steps: PositiveInt | None = None  # and these and less
    clients: PositiveInt | None = None
    level: PositiveFloat | None = None  # of suboptimality
    rounds: PositiveInt | None = None  # in which the level is reached
    tolerance: NonNegativeFloat = 0.0  # relative, about the level
    exponent: PositiveFloat | None = None  # e where suboptimality goes like M^-e
    factor: Annotated[float, Field(ge=1)] | None = None

    @model_validator(mode="after")
    def _complete(self) -> "SpeedupClaim":
        missing = [name for name in NEEDED[self.check] if getattr(self, name) in (None, [])]
        if missing:
            raise ValueError(f"the claim {self.text!r} needs {missing[0]!r}")
        return self

    @property
    def named(self) -> list[str]:
        """The methods that it is about."""
        return [*([self.method] if self.method else []), *self.methods, *self.than]


class Speedup(Common):
    """Suboptimality against numbers of clients and of local steps, with the same gradients for every client."""

    kind: Literal["speedup"]
    data: LogisticData
    l2: PositiveFloat  # lambda, which is the strong convexity that accelerated methods are told
    methods: Annotated[list[Literal["FedAc", "FedAc-vanilla", "FedAvg", "MB-AC-SGD", "MB-SGD"]], Field(min_length=1)]
    grid: SpeedupGrid
    steps: PositiveInt  # T = local steps * rounds: the gradients of a client
    eval_steps: PositiveInt  # steps from one evaluation to the next
    start_seed: Seed  # of the standard normal vector from which every run starts, whatever its own seed
    levels: Annotated[list[PositiveFloat], Field(min_length=1)]  # suboptimalities of the table
    panels: SpeedupPanels
    claims: list[SpeedupClaim]

    @model_validator(mode="after")
    def _whole_rounds(self) -> "Speedup":
        for k in self.grid.local_steps:
            if self.steps % k:
                raise ValueError(f"steps must be a multiple of every one of grid.local_steps, got {self.steps} and {k}")
        if len(set(self.methods)) < len(self.methods):
            raise ValueError("methods must differ from each other")
        return self


class Curse(Common):
    """One round of FedMiD looked at from inside: what the clients hold and what their average is."""

    kind: Literal["curse"]
    data: DataSettings
    strength: PositiveFloat
    client_step_size: PositiveFloat
    rounds: PositiveInt
    local_steps: PositiveInt
    batch_size: PositiveInt | None = None  # None: full local gradients
    clients_per_round: PositiveInt
    shown_features: PositiveInt


class Discrepancy(Common):
    """How far clients drift apart inside a round, against the lemmas."""

    kind: Literal["discrepancy"]
    seeds: Annotated[list[Seed], Field(min_length=2)]  # verdicts need standard errors
    clients: PositiveInt
    rounds: PositiveInt
    local_steps: Annotated[list[PositiveInt], Field(min_length=1)]
    dimension: PositiveInt  # of the quadratics, whose smoothness is 1
    strong_convexity: PositiveFloat  # of the quadratics
    noise: PositiveFloat  # sigma of the quadratics
    spread: PositiveFloat  # zeta of the unequal quadratics
    examples: PositiveInt  # of a9a that are used, from its beginning
    l2: PositiveFloat  # of the logistic regression


class BiasScaling(Strict):
    """How the bias grows, on the instances of the text's lower bounds: with k at one step size, with the step size at one k."""

    smoothness: PositiveFloat  # L
    noise: PositiveFloat  # sigma: of N(0, sigma^2) for the piecewise quadratic, of U[-sigma, sigma] for log cosh
    third_order: PositiveFloat  # Q
    steps: Annotated[list[PositiveInt], Field(min_length=2)]
    step_size: PositiveFloat  # at which the steps vary
    step_sizes: Annotated[list[PositiveFloat], Field(min_length=2)]
    at_steps: PositiveInt  # at which the step sizes vary
    fit_from: PositiveInt  # exponents of k are fitted from here on


class BiasConstant(Strict):
    """The constant c of -c eta^3 k^2 sigma^2 times the third derivative: log cosh with Gaussian noise, as eta L k shrinks."""

    smoothness: PositiveFloat
    noise: PositiveFloat
    third_order: PositiveFloat
    steps: PositiveInt  # k
    times: Annotated[list[PositiveFloat], Field(min_length=2)]  # eta L k
    pairs: PositiveInt  # of paths of the stochastic differential equation


class IterateBias(Common):
    """The bias of SGD from the optimum of a piecewise quadratic: densities, means, exponents and constants."""

    kind: Literal["iterate_bias"]
    right: PositiveFloat  # F(x) = right x^2 for x >= 0
    left: PositiveFloat  # F(x) = left x^2 for x < 0
    noise: PositiveFloat  # standard deviation
    step_size: PositiveFloat
    steps: Annotated[list[PositiveInt], Field(min_length=2)]
    repeats: Annotated[int, Field(ge=2)]
    scaling: BiasScaling
    constant: BiasConstant


class LowerBoundCase(Strict):
    """One way to cut a run of the lower-bound study."""

    clients: PositiveInt
    local_steps: Annotated[int, Field(ge=2)]
    rounds: PositiveInt
    heterogeneity: NonNegativeFloat  # zeta_*


class LowerBoundLimit(Strict):
    """Infinitely many clients, with all combinations of these; rates are fitted at the first K of the fit and the last R."""

    local_steps: Annotated[list[Annotated[int, Field(ge=2)]], Field(min_length=2)]
    rounds: Annotated[list[PositiveInt], Field(min_length=2)]
    fit_local_steps: PositiveInt  # one of local_steps: smaller ones are not fitted
    fit_rounds: PositiveInt  # one of rounds: smaller ones are not fitted
    paths: PositiveInt  # over which the SGD of one client is averaged


class LowerBound(Common):
    """FedAvg on the text's hardest problem with every step size, beside minibatch SGD and SGD of one client."""

    kind: Literal["lower_bound"]
    smoothness: PositiveFloat  # L
    noise: PositiveFloat  # sigma
    distance: PositiveFloat  # B
    num_step_sizes: Annotated[int, Field(ge=2)]  # from 1e-6 to 10 over L; 0 is tried too
    cases: Annotated[list[LowerBoundCase], Field(min_length=1)]  # the last two get a panel in the figure
    limit: LowerBoundLimit


class Instability(Common):
    """Two close runs of accelerated gradient descent on the objective of the instability theorem."""

    kind: Literal["instability"]
    kappas: Annotated[list[Annotated[float, Field(gt=1)]], Field(min_length=1)]
    blocks: Annotated[int, Field(ge=2)]  # K: of three steps each
    shown_kappa: Annotated[float, Field(gt=1)]  # that of the figures
    further_steps: PositiveInt  # after the blocks, to see both runs converge
    worst_kappas: Annotated[list[Annotated[float, Field(gt=1)]], Field(min_length=1)]  # of the worst cases
    worst_local_steps: Annotated[list[PositiveInt], Field(min_length=2)]
    longest_agd: Annotated[int, Field(ge=6)]  # local steps of AGD's worst case, whose growth is that of the last five

    @model_validator(mode="after")
    def _covered(self) -> "Instability":
        if max(self.kappas) < 25:
            raise ValueError(f"kappas must contain one of at least 25, which the theorem is about, got {self.kappas}")
        return self


class RatesSpeedup(Strict):
    """How many rounds linear speed-up takes: T steps of M clients, cut into rounds in all ways."""

    strong_convexity: PositiveFloat
    steps: Annotated[int, Field(ge=8)]  # T, a power of two
    clients: Annotated[list[PositiveInt], Field(min_length=3)]
    draws: PositiveInt  # clients times repeats
    num_step_sizes: Annotated[int, Field(ge=2)]

    @model_validator(mode="after")
    def _cut(self) -> "RatesSpeedup":
        if self.steps & (self.steps - 1):
            raise ValueError(f"speedup.steps must be a power of two, got {self.steps}")
        if self.draws < max(self.clients):
            raise ValueError(
                f"speedup.draws must be at least {max(self.clients)}, as many as clients, got {self.draws}"
            )
        return self


class Rates(Common):
    """Exponents of M, K and R in tuned errors, against the text's table of rates."""

    kind: Literal["rates"]
    smoothness: PositiveFloat  # L
    strong_convexity: PositiveFloat  # mu, where it is not 0
    noise: PositiveFloat  # sigma
    third_order: PositiveFloat  # Q
    distance: PositiveFloat  # B of overheads with mu = 0; 1 elsewhere
    lower_bound_smoothness: PositiveFloat  # L of the lower bound's problem, whose kink has curvatures L/12 and L/24
    clients: Annotated[list[PositiveInt], Field(min_length=2)]  # for the statistical terms; else infinitely many
    local_steps: Annotated[list[PositiveInt], Field(min_length=2)]
    rounds: Annotated[list[PositiveInt], Field(min_length=2)]
    num_step_sizes: Annotated[int, Field(ge=3)]
    num_strengths: PositiveInt  # of the l2 term, with which FedAc is run where mu = 0
    pairs: PositiveInt  # of clients that stand for infinitely many
    speedup: RatesSpeedup


Settings = Annotated[
    Recovery | Curse | Speedup | Discrepancy | IterateBias | LowerBound | Instability | Rates,
    Field(discriminator="kind"),
]


def names() -> list[str]:
    """The experiments there are."""
    return sorted(path.name.removesuffix(".toml") for path in CONFIGS.iterdir() if path.name.endswith(".toml"))


def load(
    name: str,
    scale: str = "quick",
    grid: str = "text",
    overrides: Sequence[str] = (),
    seeds: Sequence[int] | None = None,
) -> Recovery | Curse | Speedup | Discrepancy | IterateBias | LowerBound | Instability | Rates:
    """The settings of an experiment at a scale, with overrides such as "rounds=100" or "score.window=50"."""
    if name not in names():
        raise ValueError(f"run: there is no experiment {name!r}; there are: {', '.join(names())}")
    raw = _read(name)
    kind = raw["kind"]
    variants = {"scales": scale, "grids": grid}
    for group, wanted in variants.items():
        there = raw.pop(group, {})
        if wanted in there:
            raw = _merge(raw, there[wanted])
        elif wanted not in (SCALES if group == "scales" else GRIDS[:1]):
            known = ", ".join(sorted({*there, *(SCALES if group == "scales" else GRIDS[:1])}))
            raise ValueError(f"run: {name} has no {group.removesuffix('s')} {wanted!r}; it has: {known}")
    for override in overrides:
        raw = _merge(raw, _assignment(override))
    if (raw["name"], raw["kind"]) != (name, kind):
        raise ValueError("run: name and kind of an experiment cannot be overridden")
    if seeds is not None:
        raw["seeds"] = list(seeds)
    try:
        return TypeAdapter(Settings).validate_python(raw)
    except ValidationError as error:
        raise ValueError(f"run: {name}: {_sentence(error)}") from None


def _read(name: str) -> dict[str, Any]:
    raw = tomllib.loads((CONFIGS / f"{name}.toml").read_text())
    base = raw.pop("base", None)
    return _merge(_read(base), raw) if base else raw


def _merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Tables are merged key by key, anything else is replaced."""
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        merged[key] = _merge(old, value) if isinstance(value, Mapping) and isinstance(old, Mapping) else value
    return merged


def _assignment(text: str) -> dict[str, Any]:
    """ "a.b=3" as {"a": {"b": 3}}; the value is TOML, or a string where it is not."""
    name, sign, value = text.partition("=")
    if not sign or not name.strip():
        raise ValueError(f"run: an override must be name=value, e.g. rounds=100, got {text!r}")
    try:
        parsed: Any = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value
    for key in reversed(name.strip().split(".")):
        parsed = {key: parsed}
    return parsed


def _sentence(error: ValidationError) -> str:
    """The first mistake in one sentence: where, what it is, what was given."""
    first = error.errors()[0]
    said = first["msg"].removeprefix("Value error, ")
    place = ".".join(str(part) for part in first["loc"][1:]) or "configuration"
    if first["type"] == "extra_forbidden":
        return f"unknown key {place!r}"
    if first["type"] == "value_error":
        return said
    return f"{place}: {said[0].lower()}{said[1:]}, got {first['input']!r}"
