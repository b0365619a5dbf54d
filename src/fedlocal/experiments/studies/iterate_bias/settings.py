"""Settings of the study of iterate bias."""

from typing import Annotated

from pydantic import Field, PositiveFloat, PositiveInt

from fedlocal.experiments.runner.settings import StrictModel, StudySettings


class BiasScaling(StrictModel):
    """Growth of the bias on the instances of the text's lower bounds: with k at one step size, with the step size at one k."""

    smoothness: PositiveFloat  # L
    noise: PositiveFloat  # sigma: of N(0, sigma^2) for the piecewise quadratic, of U[-sigma, sigma] for log cosh
    third_order: PositiveFloat  # Q
    steps: Annotated[list[PositiveInt], Field(min_length=2)]
    step_size: PositiveFloat  # at which the steps vary
    step_sizes: Annotated[list[PositiveFloat], Field(min_length=2)]
    at_steps: PositiveInt  # at which the step sizes vary
    fit_from: PositiveInt  # exponents of k are fitted from here on


class BiasConstant(StrictModel):
    """The constant c of -c eta^3 k^2 sigma^2 times the third derivative: log cosh with Gaussian noise, as eta L k shrinks."""

    smoothness: PositiveFloat
    noise: PositiveFloat
    third_order: PositiveFloat
    steps: PositiveInt  # k
    times: Annotated[list[PositiveFloat], Field(min_length=2)]  # eta L k
    pairs: PositiveInt  # of paths of the stochastic differential equation


class IterateBiasSettings(StudySettings):
    """The bias of SGD from the optimum of a piecewise quadratic: densities, means, exponents and constants."""

    right: PositiveFloat  # F(x) = right x^2 for x >= 0
    left: PositiveFloat  # F(x) = left x^2 for x < 0
    noise: PositiveFloat  # standard deviation
    step_size: PositiveFloat
    steps: Annotated[list[PositiveInt], Field(min_length=2)]
    repeats: Annotated[int, Field(ge=2)]
    scaling: BiasScaling
    constant: BiasConstant
