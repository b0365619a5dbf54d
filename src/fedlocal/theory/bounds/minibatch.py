"""FedAvg's two simplest rivals: R large steps with everyone's gradients, or K R steps of one client alone."""

import math

from fedlocal.theory.bounds.bound import Bound, Constants, Form, Setting, homogeneous, is_simplified, ratio, smallest


def minibatch_sgd_bound(
    constants: Constants, setting: Setting, step_size: float | None = None, form: Form = "full"
) -> Bound:
    r"""Minibatch SGD: R steps, each with K gradients of each of the M clients.

        E mean_r F(x^(r)) - F* <= B^2/(2 eta R) + eta sigma^2/(M K),   eta <= 1/(4 L).

    Full: at eta = min{1/(4 L), sqrt(M K) B/(sqrt(R) sigma)}. Simplified: L B^2/R + sigma B/sqrt(M K R). Clients may
    differ. Letters: M clients, K local_steps, R rounds, B distance, L smoothness, sigma noise.

    Args:
        constants, setting, step_size, form: as for every bound (`fedlocal.theory.bounds`).

    Reference: dissertation, lemma lem:fedavg:2o:ub:1 with one local step and noise sigma/sqrt(K), where no two clients
    are ever apart; the rate is the one beside theorem thm:fedavg:lb:homo. Differs from it: the text says "minibatch
    size M"; its rate is the one of batches of M K, which are as many gradients as FedAvg uses.

    >>> constants = Constants(smoothness=1.0, noise=0.0, distance=1.0)
    >>> minibatch_sgd_bound(constants, Setting(clients=4, rounds=8, local_steps=10)).value
    0.25
    """
    batch = setting.clients * setting.local_steps
    simplified = is_simplified("minibatch_sgd_bound", step_size, form)
    terms, eta, conditions = _sgd(constants, setting.rounds, batch, step_size, simplified)
    return Bound("lem:fedavg:2o:ub:1", "MinibatchSGD", "E mean_r F(x^(r)) - F*", terms, eta, conditions)


def single_client_sgd_bound(
    constants: Constants, setting: Setting, step_size: float | None = None, form: Form = "full"
) -> Bound:
    r"""SGD of a single client: K R steps, all other clients ignored.

        E mean_t F(x^(t)) - F* <= B^2/(2 eta K R) + eta sigma^2,   eta <= 1/(4 L).

    Full: at eta = min{1/(4 L), B/(sqrt(K R) sigma)}. Simplified: L B^2/(K R) + sigma B/sqrt(K R).
    Letters: K local_steps, R rounds, B distance, L smoothness, sigma noise.

    Args:
        constants, setting, step_size, form: as for every bound (`fedlocal.theory.bounds`).

    Reference: dissertation, lemma lem:fedavg:2o:ub:1 with one client. Differs from it: the homogeneity, which the text
    assumes around the rate, is a condition of the bound.

    >>> constants = Constants(smoothness=1.0, noise=0.0, distance=1.0)
    >>> single_client_sgd_bound(constants, Setting(clients=4, rounds=8, local_steps=10)).value
    0.025
    """
    simplified = is_simplified("single_client_sgd_bound", step_size, form)
    terms, eta, conditions = _sgd(constants, setting.rounds * setting.local_steps, 1, step_size, simplified)
    conditions = conditions | homogeneous(constants)
    return Bound("lem:fedavg:2o:ub:1", "single-client SGD", "E mean_t F(x^(t)) - F*", terms, eta, conditions)


def best_of_two(constants: Constants, setting: Setting, step_size: float | None = None, form: Form = "full") -> Bound:
    r"""The smaller of the bounds of minibatch SGD and single-client SGD, of those that apply.

    Simplified, in the text's one formula, which is between this minimum and twice as much:
        L B^2/(K R) + sigma B/sqrt(M K R) + min{L B^2/R, sigma B/sqrt(K R)}.

    For homogeneous clients the better of this and of staying at the start, L B^2, is never above the sharp rate of
    FedAvg (`fed_avg_lower_bound`); where L B^2/R is the larger part, it is smaller by (R sigma^2/(K L^2 B^2))^(1/3).

    Args:
        constants, setting, step_size, form: as for every bound (`fedlocal.theory.bounds`).

    Reference: dissertation, the display after theorem thm:fedavg:lb:homo. Differs from it: the text says that the rate
    alone "always dominates" that of FedAvg; without the L B^2, which the rate of FedAvg has, it does not where
    sigma B/sqrt(M K R) > L B^2. The text's factor is (R sigma^2 L^2/K)^(1/3), which has a unit.

    >>> constants = Constants(smoothness=1.0, noise=100.0, distance=1.0)
    >>> best_of_two(constants, Setting(clients=1000, rounds=10, local_steps=1000), form="simplified").method
    'MinibatchSGD'
    """
    both = minibatch_sgd_bound, single_client_sgd_bound
    return smallest([bound(constants, setting, step_size, form) for bound in both])


def _sgd(
    constants: Constants, steps: int, batch: int, step_size: float | None, simplified: bool
) -> tuple[dict[str, float], float | None, dict[str, bool]]:
    """SGD with this many steps and gradients in each: the terms, the step size and the conditions."""
    L, B, sigma = constants.smoothness, constants.distance, constants.noise
    if simplified:
        return {"deterministic": L * B**2 / steps, "statistical": sigma * B / math.sqrt(batch * steps)}, None, {}
    eta = step_size or min(1 / (4 * L), ratio(math.sqrt(batch) * B, math.sqrt(steps) * sigma))
    terms = {"deterministic": ratio(B**2, 2 * eta * steps), "statistical": eta * sigma**2 / batch}
    return terms, eta, {"step_size <= 1/(4 L)": eta <= 1 / (4 * L)}
