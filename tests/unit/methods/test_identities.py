"""Each sentence "is ..." in a method's docstring, to 1e-12 in float64."""

from typing import Any

import numpy as np
import optax
import pytest

import fedlocal as fl
from conformance.cases import MIRRORS, D
from conformance.federation import MASK, closeness, federation, flat, numpy_gradient, start
from oracles import transcripts

ETA = 0.05
UNEQUAL: dict[str, Any] = {"local_epochs": 1, "batch_size": 3, "clients_per_round": 3, "weights": "examples"}
L1 = fl.regularizers.L1(0.3)


def final(method: fl.LocalMethod, problem: Any = None, **sampling: Any) -> Any:
    problem = federation() if problem is None else problem
    return fl.simulate(problem, method, rounds=4, x0=start(False), eval_every=4, **(sampling or UNEQUAL)).x


@pytest.mark.parametrize(
    "method",
    [
        fl.methods.FedMiD(ETA, 0.7),
        fl.methods.FedDualAvg(ETA, 0.7),
        fl.methods.SubgradientFedAvg(ETA, fl.regularizers.Zero(), 0.7),
        fl.methods.FedProx(ETA, 0.0, 0.7),
        fl.methods.FedAvg(ETA, server_optimizer=optax.sgd(0.7)),
        fl.methods.FedDualAvg(ETA, 0.7, fl.regularizers.L1(0.0)),
    ],
    ids=lambda m: type(m).__name__,
)
def test_without_psi_it_is_fed_avg(method: fl.LocalMethod):
    assert closeness(final(method), final(fl.methods.FedAvg(ETA, 0.7))) < 1e-12


def test_fed_ac_with_unit_couplings_is_fed_avg():
    ac = fl.methods.GeneralFedAc(alpha=1.0, beta=1.0, eta=ETA, gamma=ETA)
    assert closeness(final(ac), final(fl.methods.FedAvg(ETA))) < 1e-12


ONE_STEP: dict[str, Any] = {"local_steps": 1, "batch_size": 2, "weights": "examples"}


def test_one_local_step_of_fed_avg_is_minibatch_sgd():
    assert (
        closeness(final(fl.methods.FedAvg(ETA, 0.7), **ONE_STEP), final(fl.methods.MinibatchSGD(0.7 * ETA), **ONE_STEP))
        < 1e-12
    )


def test_one_local_step_of_scaffold_is_minibatch_sgd():
    scaffold, sgd = fl.methods.Scaffold(ETA, 0.7), fl.methods.MinibatchSGD(0.7 * ETA)
    assert closeness(final(scaffold, **ONE_STEP), final(sgd, **ONE_STEP)) < 1e-12


def test_scaffold_with_one_client_is_fed_avg():
    problem, sampling = fl.problems.only(federation(), 3), {"local_steps": 3, "batch_size": 2}
    scaffold, fed_avg = fl.methods.Scaffold(ETA, 0.7), fl.methods.FedAvg(ETA, 0.7)
    assert closeness(final(scaffold, problem, **sampling), final(fed_avg, problem, **sampling)) < 1e-12


def test_scaffold_remembers_the_mean_of_a_clients_gradients():
    """With one client and full gradients the server's control is that mean: of one step, the gradient at its start."""
    problem, x0 = fl.problems.only(federation(), 1), start(False)
    server = fl.simulate(problem, fl.methods.Scaffold(ETA), rounds=1, x0=x0, local_steps=1).server
    np.testing.assert_allclose(
        flat(server.control), numpy_gradient(problem, np.arange(7))(flat(x0)), rtol=0, atol=1e-12
    )


def test_one_local_step_of_fed_prox_is_minibatch_sgd():
    prox, sgd = fl.methods.FedProx(ETA, 3.0, 0.7), fl.methods.MinibatchSGD(0.7 * ETA)
    assert closeness(final(prox, **ONE_STEP), final(sgd, **ONE_STEP)) < 1e-12


def test_a_round_of_fed_prox_is_fed_avgs_with_the_proximal_term():
    x0 = start(False)
    arguments: dict[str, Any] = {"rounds": 1, "local_steps": 4, "batch_size": 2}
    prox = fl.simulate(federation(), fl.methods.FedProx(ETA, 3.0, 0.7), x0=x0, **arguments).x
    pulled = fl.problems.augmented(federation(), strength=3.0, center=x0)
    assert closeness(prox, fl.simulate(pulled, fl.methods.FedAvg(ETA, 0.7), x0=x0, **arguments).x) < 1e-12


def test_one_local_step_of_minibatch_ac_sgd_is_vanilla_fed_ac():
    vanilla = fl.methods.FedAc.vanilla(step_size=ETA, strong_convexity=0.1)
    assert closeness(final(fl.methods.MinibatchAcSGD(ETA, 0.1), **ONE_STEP), final(vanilla, **ONE_STEP)) < 1e-12


def test_one_local_step_makes_fed_ac_one_vanilla():
    one = fl.methods.FedAc.one(step_size=ETA, strong_convexity=0.1, local_steps=1)
    vanilla = fl.methods.FedAc.vanilla(step_size=ETA, strong_convexity=0.1)
    assert closeness(final(one, **ONE_STEP), final(vanilla, **ONE_STEP)) < 1e-12


def test_agd_is_minibatch_ac_sgd_with_step_one_over_l():
    agd, ac = fl.methods.AGD(20.0, 0.1), fl.methods.MinibatchAcSGD(1 / 20.0, 0.1)
    assert closeness(final(agd, local_steps=1), final(ac, local_steps=1)) < 1e-12


def test_proximal_gradient_without_psi_is_minibatch_sgd():
    assert closeness(final(fl.methods.ProximalGradient(ETA)), final(fl.methods.MinibatchSGD(ETA))) < 1e-12


def test_proximal_gradient_by_examples_is_centralised():
    """Weighted by examples and with exact gradients, the federation does what one machine with all data does."""
    method, problem = fl.methods.ProximalGradient(ETA, L1), federation()
    federated = final(method, local_steps=1, weights="examples")
    assert closeness(federated, final(method, fl.problems.pooled(problem), local_steps=1)) < 1e-12


@pytest.mark.parametrize("rounds", [1, 2])
def test_accelerated_proximal_gradient_starts_as_proximal_gradient(rounds: int):
    def after(method: fl.LocalMethod) -> Any:
        return fl.simulate(federation(), method, rounds=rounds, x0=start(False), eval_every=rounds, **UNEQUAL).x

    plain, accelerated = fl.methods.ProximalGradient, fl.methods.AcceleratedProximalGradient
    assert closeness(after(accelerated(ETA, L1)), after(plain(ETA, L1))) < 1e-12
    assert closeness(after(accelerated(ETA)), after(fl.methods.MinibatchSGD(ETA))) < 1e-12


def test_accelerated_proximal_gradient_by_examples_is_centralised():
    method, problem = fl.methods.AcceleratedProximalGradient(ETA, L1), federation()
    federated = final(method, local_steps=1, weights="examples")
    assert closeness(federated, final(method, fl.problems.pooled(problem), local_steps=1)) < 1e-12
    assert closeness(federated, final(fl.methods.ProximalGradient(ETA, L1), local_steps=1, weights="examples")) > 1e-3


def test_only_is_the_clients_solo_run():
    """`local` on client 3 is proximal gradient on its examples alone."""
    problem = federation()
    features, targets = (np.asarray(a) for a in problem.data.arrays)
    own = slice(sum((4, 7, 1)), sum((4, 7, 1, 12)))
    alone = fl.problems.MatrixSensing(fl.FederatedData.from_clients([(features[own], targets[own])]))
    method = fl.methods.ProximalGradient(ETA, L1)
    assert (
        closeness(final(method, fl.problems.only(problem, 3), local_steps=1), final(method, alone, local_steps=1))
        < 1e-12
    )


@pytest.mark.parametrize("osp", [False, True])
def test_one_client_and_one_step_is_the_sequential_method(osp: bool):
    """COMID for FedMiD with only the server proximal, dual averaging for FedDualAvg."""
    problem, x0 = fl.problems.only(federation(), 1), start(False)
    design = np.concatenate([np.ones((7, 1)), np.asarray(problem.data.arrays[0]).reshape(7, -1)], axis=1)
    targets = np.asarray(problem.data.arrays[1])
    grads = [lambda x: 2 * design.T @ (design @ x - targets) / 7] * 4
    mask = np.array([False] + [True] * 6)
    if osp:
        method, sequential = fl.methods.FedMiD(ETA, 1.0, L1, prox_on_clients=False), transcripts.mirror_descent
    else:
        method, sequential = fl.methods.FedDualAvg(ETA, 1.0, L1), transcripts.dual_averaging
    flat = np.concatenate([[x0["intercept"]], x0["weights"].ravel()])
    want = sequential(flat, grads, ETA, transcripts.l1(0.3, mask))[-1]
    got = final(method, problem, local_steps=1)
    np.testing.assert_allclose(np.concatenate([[got["intercept"]], got["weights"].ravel()]), want, atol=1e-12)


GEOMETRIES = MIRRORS | {
    "entropy_zero": (
        fl.mirrors.Entropy(),
        fl.regularizers.Zero(),
        lambda mask: transcripts.entropy_l1(0.0, mask),
    ),
    "entropy_l1": (fl.mirrors.Entropy(), L1, lambda mask: transcripts.entropy_l1(0.3, mask)),
    "diagonal_zero": (
        MIRRORS["diagonal_l1"][0],
        fl.regularizers.Zero(),
        lambda mask: transcripts.diagonal_elastic_net(D, 0.0, 0.0, mask),
    ),
    "diagonal_squared_l2": (
        MIRRORS["diagonal_l1"][0],
        fl.regularizers.SquaredL2(0.4),
        lambda mask: transcripts.diagonal_elastic_net(D, 0.0, 0.4, mask),
    ),
}


@pytest.mark.thorough
@pytest.mark.parametrize("osp", [False, True])
@pytest.mark.parametrize("name", GEOMETRIES)
def test_one_client_and_one_step_is_the_sequential_method_of_the_geometry(name: str, osp: bool):
    """As above, with another h: mirror descent for FedMiD with only the server proximal, dual averaging for FedDualAvg."""
    h, psi, make = GEOMETRIES[name]
    problem, x0 = fl.problems.only(federation(), 1), start("entropy" in name)
    grads = [numpy_gradient(problem, np.arange(7))] * 4
    if osp:
        method = fl.methods.FedMiD(ETA, 1.0, psi, h, prox_on_clients=False)
        want = transcripts.mirror_descent_bregman(flat(x0), grads, ETA, make(MASK))
    else:
        method = fl.methods.FedDualAvg(ETA, 1.0, psi, h)
        want = transcripts.dual_averaging_bregman(flat(x0), grads, ETA, make(MASK))
    points: list[Any] = []
    fl.simulate(problem, method, rounds=4, x0=x0, local_steps=1, metrics=[lambda x: points.append(flat(x)) or 0.0])
    np.testing.assert_allclose(points[1:], want, rtol=0, atol=1e-12)


@pytest.mark.parametrize("osp", [False, True])
@pytest.mark.parametrize("strength", [0.3, 50.0])
def test_the_p_norm_link_passes_through_zero(strength: float, osp: bool):
    """Zero is where the default start lies and, with strength 50, where l1 keeps the weights: the links are 0 there."""
    psi, h = fl.regularizers.L1(strength), transcripts.p_norm_l1(1.5, strength, MASK)
    problem, x0 = fl.problems.only(federation(), 1), {"weights": np.zeros((2, 3)), "intercept": np.zeros(())}
    grads = [numpy_gradient(problem, np.arange(7))] * 4
    if osp:
        method = fl.methods.FedMiD(ETA, 1.0, psi, fl.mirrors.PNorm(1.5), prox_on_clients=False)
        want = transcripts.mirror_descent_bregman(flat(x0), grads, ETA, h)[-1]
    else:
        method = fl.methods.FedDualAvg(ETA, 1.0, psi, fl.mirrors.PNorm(1.5))
        want = transcripts.dual_averaging_bregman(flat(x0), grads, ETA, h)[-1]
    got = fl.simulate(problem, method, rounds=4, x0=x0, eval_every=4, local_steps=1).x
    np.testing.assert_allclose(flat(got), want, rtol=0, atol=1e-12)


@pytest.mark.parametrize("psi", [L1, fl.regularizers.Zero()], ids=["l1", "zero"])
@pytest.mark.parametrize("h", [fl.mirrors.DiagonalQuadratic(1.0), fl.mirrors.PNorm(2.0)], ids=["diagonal", "p_norm"])
@pytest.mark.parametrize("method", [pytest.param(fl.methods.FedMiD, marks=pytest.mark.thorough), fl.methods.FedDualAvg])
def test_the_geometry_of_the_2_norm_is_euclidean(method: Any, h: fl.MirrorMap, psi: fl.Regularizer):
    sampling: dict[str, Any] = {"local_steps": 2, "batch_size": 2, "weights": "examples"}
    assert closeness(final(method(ETA, 0.7, psi, h), **sampling), final(method(ETA, 0.7, psi), **sampling)) < 1e-12


def test_one_client_with_unit_server_step_needs_no_rounds():
    """FedDualAvg on one client: four rounds of one step are one round of four steps."""
    problem, method = fl.problems.only(federation(), 3), fl.methods.FedDualAvg(ETA, 1.0, L1)
    many = final(method, problem, local_steps=1)
    once = fl.simulate(problem, method, rounds=1, x0=start(False), local_steps=4).x
    assert closeness(many, once) < 1e-12


def test_the_full_fed_mid_is_sequential_only_for_constraints():
    """With l1 the box shrinks twice in a round of one client and one step; a projection twice is once."""
    problem = fl.problems.only(federation(), 1)

    def both(psi: fl.Regularizer) -> float:
        full, osp = (
            final(fl.methods.FedMiD(ETA, 1.0, psi, prox_on_clients=p), problem, local_steps=1) for p in (True, False)
        )
        return closeness(full, osp)

    assert both(fl.regularizers.L2Ball(0.2)) < 1e-12
    assert both(L1) > 1e-2


def test_fed_mid_whose_clients_have_no_share_of_psi_is_the_only_server_proximal_variant():
    for psi in (L1, fl.regularizers.L2Ball(0.2)):
        osp = fl.methods.FedMiD(ETA, 0.7, psi, prox_on_clients=False)
        assert closeness(final(fl.methods.FedMiD(ETA, 0.7, psi, client_share=0.0)), final(osp)) < 1e-12


def test_fed_mid_with_a_share_is_the_box_for_constraints_only():
    for share in (0.2, 0.5):
        ball = fl.regularizers.L2Ball(0.2)
        box, shared = fl.methods.FedMiD(ETA, 1.3, ball), fl.methods.FedMiD(ETA, 1.3, ball, client_share=share)
        assert closeness(final(box), final(shared)) < 1e-12
        assert (
            closeness(
                final(fl.methods.FedMiD(ETA, 1.3, L1)), final(fl.methods.FedMiD(ETA, 1.3, L1, client_share=share))
            )
            > 1e-2
        )


@pytest.mark.parametrize("psi", [fl.regularizers.L1(0.3), fl.regularizers.SquaredL2(0.6), fl.regularizers.L2Norm(0.4)])
def test_fed_mid_tends_to_the_minimiser_of_f_plus_two_psi_and_with_a_share_to_that_of_f_plus_psi(psi: Any):
    """Small steps, clients that differ. The distance falls with the step sizes, towards the one minimiser and not the other."""
    problem = fl.problems.quadratics([[[2.0, 0.3], [0.3, 1.0]], [[1.0, -0.2], [-0.2, 0.5]]], [[1.0, -0.4], [2.0, 0.5]])
    double = type(psi)(2 * psi.strength)
    once, twice = (fl.solvers.centralized(problem, p, x0=np.zeros(2), tolerance=1e-10).x for p in (psi, double))

    def end(eta: float, **given: Any) -> Any:
        method = fl.methods.FedMiD(eta, 2.0, psi, **given)
        return fl.simulate(problem, method, rounds=1200, local_steps=4, x0=np.zeros(2), eval_every=1200).x

    def distances(eta: float, to: Any, **given: Any) -> float:
        return float(np.linalg.norm(end(eta, **given) - to))

    for given, near, far in ({}, twice, once), *(({"client_share": s}, once, twice) for s in (0.0, 0.5, 1.0)):
        large, small = (distances(eta, near, **given) for eta in (0.02, 0.005))
        assert small < 0.02
        assert small <= 0.3 * large + 1e-9, given  # like eta
        assert distances(0.005, far, **given) > 0.1


def test_augmented_adds_the_pull_to_the_center():
    problem, x0 = federation(), start(False)
    augmented = fl.problems.augmented(problem, strength=0.5, center=x0)
    method = fl.methods.MinibatchSGD(ETA)
    got = fl.simulate(augmented, method, rounds=2, local_steps=1)
    gradient_at_start = fl.simulate(problem, method, rounds=1, local_steps=1, x0=x0).x
    x1 = gradient_at_start  # at the center the pull is zero
    g1 = fl.simulate(problem, method, rounds=1, local_steps=1, x0=x1).x
    want = {name: g1[name] - ETA * 0.5 * (x1[name] - x0[name]) for name in x0}
    assert closeness(got.x, want) < 1e-12
    gap = (
        got.history["loss"].iloc[-1]
        - fl.simulate(problem, method, rounds=0, local_steps=1, x0=got.x).history["loss"].iloc[0]
    )
    assert gap == pytest.approx(0.25 * sum(np.sum((got.x[n] - x0[n]) ** 2) for n in x0), rel=1e-12)
