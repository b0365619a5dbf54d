"""The theory of the dissertation: bounds, iterate bias, constants of a problem, constructions of the proofs, and advice."""

from fedlocal.methods.table import largest_step_size
from fedlocal.theory.advice.advisor import Advice, advise
from fedlocal.theory.advice.local_model import LocalModel
from fedlocal.theory.bias.bounds import iterate_bias_lower_bound, iterate_bias_upper_bound
from fedlocal.theory.bias.expansion import small_noise_bias, small_step_bias
from fedlocal.theory.bias.monte_carlo import monte_carlo_bias
from fedlocal.theory.bias.quadrature import Gaussian, Uniform, exact_bias, exact_law
from fedlocal.theory.bias.sde import backward_bias, sde_bias
from fedlocal.theory.bounds.bound import Bound, Constants, Setting, tightest
from fedlocal.theory.bounds.composite import (
    composite_small_step_bound,
    fed_dual_avg_bounded_gradient_bound,
    fed_dual_avg_bounded_gradient_discrepancy_bound,
    fed_dual_avg_perturbed_bound,
    fed_dual_avg_quadratic_bound,
    fed_dual_avg_quadratic_discrepancy_bound,
)
from fedlocal.theory.bounds.fed_ac import (
    fed_ac_one_bound,
    fed_ac_two_bound,
    fed_ac_two_third_order_bound,
    minibatch_ac_sgd_bound,
)
from fedlocal.theory.bounds.fed_ac_augmented import (
    fed_ac_one_augmented_bound,
    fed_ac_two_augmented_bound,
    fed_ac_two_third_order_augmented_bound,
)
from fedlocal.theory.bounds.fed_ac_convex import (
    fed_ac_one_convex_bound,
    fed_ac_two_convex_bound,
    fed_ac_two_third_order_convex_bound,
)
from fedlocal.theory.bounds.fed_ac_stability import (
    fed_ac_one_discrepancy_bound,
    fed_ac_one_growth_bound,
    fed_ac_one_perturbed_bound,
    fed_ac_two_discrepancy_bound,
    fed_ac_two_growth_bound,
    fed_ac_two_perturbed_bound,
    fed_ac_two_third_order_discrepancy_bound,
)
from fedlocal.theory.bounds.fed_avg import (
    comprehensive_bound,
    fed_avg_convex_bound,
    fed_avg_non_convex_bound,
    fed_avg_non_convex_third_order_bound,
    fed_avg_strongly_convex_bound,
    fed_avg_strongly_convex_third_order_bound,
    fed_avg_third_order_bound,
)
from fedlocal.theory.bounds.fed_avg_stability import (
    client_discrepancy_bound,
    fed_avg_strongly_convex_perturbed_bound,
    fourth_order_discrepancy_bound,
    shadow_bound,
)
from fedlocal.theory.bounds.fed_mid import fed_mid_constraint_bound, fed_mid_osp_bound
from fedlocal.theory.bounds.lower import fed_avg_lower_bound, lower_bound_curvature
from fedlocal.theory.bounds.minibatch import best_of_two, minibatch_sgd_bound, single_client_sgd_bound
from fedlocal.theory.bounds.rate_tables import rates, rounds_for_linear_speedup
from fedlocal.theory.constants.estimation import Estimate, estimate

__all__ = [
    "Advice",
    "Bound",
    "Constants",
    "Estimate",
    "Gaussian",
    "LocalModel",
    "Setting",
    "Uniform",
    "advise",
    "backward_bias",
    "best_of_two",
    "client_discrepancy_bound",
    "composite_small_step_bound",
    "comprehensive_bound",
    "estimate",
    "exact_bias",
    "exact_law",
    "fed_ac_one_augmented_bound",
    "fed_ac_one_bound",
    "fed_ac_one_convex_bound",
    "fed_ac_one_discrepancy_bound",
    "fed_ac_one_growth_bound",
    "fed_ac_one_perturbed_bound",
    "fed_ac_two_augmented_bound",
    "fed_ac_two_bound",
    "fed_ac_two_convex_bound",
    "fed_ac_two_discrepancy_bound",
    "fed_ac_two_growth_bound",
    "fed_ac_two_perturbed_bound",
    "fed_ac_two_third_order_augmented_bound",
    "fed_ac_two_third_order_bound",
    "fed_ac_two_third_order_convex_bound",
    "fed_ac_two_third_order_discrepancy_bound",
    "fed_avg_convex_bound",
    "fed_avg_lower_bound",
    "fed_avg_non_convex_bound",
    "fed_avg_non_convex_third_order_bound",
    "fed_avg_strongly_convex_bound",
    "fed_avg_strongly_convex_perturbed_bound",
    "fed_avg_strongly_convex_third_order_bound",
    "fed_avg_third_order_bound",
    "fed_dual_avg_bounded_gradient_bound",
    "fed_dual_avg_bounded_gradient_discrepancy_bound",
    "fed_dual_avg_perturbed_bound",
    "fed_dual_avg_quadratic_bound",
    "fed_dual_avg_quadratic_discrepancy_bound",
    "fed_mid_constraint_bound",
    "fed_mid_osp_bound",
    "fourth_order_discrepancy_bound",
    "iterate_bias_lower_bound",
    "iterate_bias_upper_bound",
    "largest_step_size",
    "lower_bound_curvature",
    "minibatch_ac_sgd_bound",
    "minibatch_sgd_bound",
    "monte_carlo_bias",
    "rates",
    "rounds_for_linear_speedup",
    "sde_bias",
    "shadow_bound",
    "single_client_sgd_bound",
    "small_noise_bias",
    "small_step_bias",
    "tightest",
]


def __dir__() -> list[str]:
    return sorted(__all__)
