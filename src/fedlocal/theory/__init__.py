"""The theorems of the dissertation as functions, what they are about as objects, and what they advise."""

from fedlocal.theory.advise import Advice, advise
from fedlocal.theory.bias_bounds import iterate_bias_lower_bound, iterate_bias_upper_bound
from fedlocal.theory.bias_expansion import small_noise_bias, small_step_bias
from fedlocal.theory.bias_sde import backward_bias, sde_bias
from fedlocal.theory.bound import Bound, Constants, Setting, tightest
from fedlocal.theory.composite_bounds import (
    composite_small_step_bound,
    fed_dual_avg_bounded_gradient_bound,
    fed_dual_avg_bounded_gradient_discrepancy_bound,
    fed_dual_avg_quadratic_bound,
    fed_dual_avg_quadratic_discrepancy_bound,
)
from fedlocal.theory.estimate import Estimate, estimate
from fedlocal.theory.exact_bias import Gaussian, Uniform, exact_bias, exact_law
from fedlocal.theory.fed_ac_bounds import (
    fed_ac_one_bound,
    fed_ac_two_bound,
    fed_ac_two_third_order_bound,
    minibatch_ac_sgd_bound,
)
from fedlocal.theory.fed_ac_convex_bounds import (
    fed_ac_one_convex_bound,
    fed_ac_two_convex_bound,
    fed_ac_two_third_order_convex_bound,
)
from fedlocal.theory.fed_ac_stability import (
    fed_ac_one_discrepancy_bound,
    fed_ac_one_perturbed_bound,
    fed_ac_two_discrepancy_bound,
    fed_ac_two_perturbed_bound,
    fed_ac_two_third_order_discrepancy_bound,
)
from fedlocal.theory.fed_avg_bounds import (
    comprehensive_bound,
    fed_avg_convex_bound,
    fed_avg_non_convex_bound,
    fed_avg_non_convex_third_order_bound,
    fed_avg_strongly_convex_bound,
    fed_avg_strongly_convex_third_order_bound,
    fed_avg_third_order_bound,
)
from fedlocal.theory.fed_avg_stability import client_discrepancy_bound, fourth_order_discrepancy_bound, shadow_bound
from fedlocal.theory.iterate_bias import monte_carlo_bias
from fedlocal.theory.local_model import LocalModel
from fedlocal.theory.lower_bounds import fed_avg_lower_bound, lower_bound_curvature
from fedlocal.theory.minibatch_bounds import best_of_two, minibatch_sgd_bound, single_client_sgd_bound
from fedlocal.theory.rates import rates, rounds_for_linear_speedup
from fedlocal.theory.step_sizes import largest_step_size

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
    "fed_ac_one_bound",
    "fed_ac_one_convex_bound",
    "fed_ac_one_discrepancy_bound",
    "fed_ac_one_perturbed_bound",
    "fed_ac_two_bound",
    "fed_ac_two_convex_bound",
    "fed_ac_two_discrepancy_bound",
    "fed_ac_two_perturbed_bound",
    "fed_ac_two_third_order_bound",
    "fed_ac_two_third_order_convex_bound",
    "fed_ac_two_third_order_discrepancy_bound",
    "fed_avg_convex_bound",
    "fed_avg_lower_bound",
    "fed_avg_non_convex_bound",
    "fed_avg_non_convex_third_order_bound",
    "fed_avg_strongly_convex_bound",
    "fed_avg_strongly_convex_third_order_bound",
    "fed_avg_third_order_bound",
    "fed_dual_avg_bounded_gradient_bound",
    "fed_dual_avg_bounded_gradient_discrepancy_bound",
    "fed_dual_avg_quadratic_bound",
    "fed_dual_avg_quadratic_discrepancy_bound",
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
