"""Settings of the study of fMRI scans."""

from typing import Annotated

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from fedlocal.data.sets.fmri_scans import Against, Mask, Source
from fedlocal.experiments.runner.settings import StrictModel, TunedStudySettings

MEASURED = ("validation_objective", "validation_accuracy", "density")
Interval = tuple[NonNegativeFloat, NonNegativeFloat]  # from, to


class FmriData(StrictModel):
    """Selection of scans, as in `fl.data.haxby`; `subjects` and `mask` apply to images only."""

    source: Source
    subjects: Annotated[list[Annotated[int, Field(ge=1, le=6)]], Field(min_length=1)]
    mask: Mask
    against: Against


class RegionClaim(StrictModel):
    """A claim of the text: most pairs of step sizes of each of these methods end in a region of the scatter, or a larger part of
    them than of those of other methods."""

    text: str
    methods: Annotated[list[str], Field(min_length=1)]
    density: Interval
    accuracy: Interval
    than: list[str] = Field(default_factory=list)  # other methods


class ScatterSettings(StrictModel):
    """Accuracy against density of all pairs of step sizes whose product is in a range, after some rounds."""

    methods: Annotated[list[str], Field(min_length=1)]
    rounds: Annotated[list[PositiveInt], Field(min_length=1)]
    product: Interval
    claims: list[RegionClaim]


class FmriSettings(TunedStudySettings):
    """Tuned federated methods for sparse logistic regression on fMRI scans, beside training on all scans and on one run."""

    data: FmriData
    strength: PositiveFloat  # lambda of the l1 norm
    threshold: NonNegativeFloat  # weights up to this count as zero
    baseline_step_sizes: Annotated[list[PositiveFloat], Field(min_length=1)]
    scatter: ScatterSettings

    @model_validator(mode="after")
    def _consistent(self) -> "FmriSettings":
        self.refuse_unmeasured(MEASURED)
        for name in (*self.scatter.methods, *(name for c in self.scatter.claims for name in (*c.methods, *c.than))):
            if name not in self.methods:
                raise ValueError(f"scatter: {name} is not run; methods are: {', '.join(self.methods)}")
        for r in self.scatter.rounds:
            if r > self.rounds or (r % self.eval_every and r != self.rounds):
                raise ValueError(f"scatter.rounds must be evaluated, got {r} of {self.rounds}, every {self.eval_every}")
        return self
