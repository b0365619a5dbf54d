"""What the deployments of the tests run: every method, with a regulariser where it takes one."""

import optax

import fedlocal as fl

PSI = fl.regularizers.L1(0.3)
METHODS: dict[str, fl.LocalMethod] = {
    "fed_avg": fl.methods.FedAvg(0.05, 0.7),
    "fed_avg_adam": fl.methods.FedAvg(0.05, server_optimizer=optax.adam(0.05)),
    "fed_ac_one": fl.methods.FedAc.one(step_size=0.05, strong_convexity=0.1, local_steps=2),
    "fed_ac_two": fl.methods.FedAc.two(step_size=0.05, strong_convexity=0.1, local_steps=2),
    "general_fed_ac": fl.methods.GeneralFedAc(alpha=3.0, beta=2.5, eta=0.05, gamma=0.08),
    "fed_mid": fl.methods.FedMiD(0.05, 0.7, PSI),
    "fed_mid_osp": fl.methods.FedMiD(0.05, 0.7, PSI, prox_on_clients=False),
    "fed_dual_avg": fl.methods.FedDualAvg(0.05, 0.7, PSI),
    "fed_dual_avg_osp": fl.methods.FedDualAvg(0.05, 0.7, fl.regularizers.Nuclear(0.3), prox_on_clients=False),
    "subgradient_fed_avg": fl.methods.SubgradientFedAvg(0.05, PSI, 0.7),
    "scaffold": fl.methods.Scaffold(0.05, 0.7),
    "fed_prox": fl.methods.FedProx(0.05, 0.8, 0.7),
    "minibatch_sgd": fl.methods.MinibatchSGD(0.05),
    "minibatch_ac_sgd": fl.methods.MinibatchAcSGD(0.05, 0.1),
    "agd": fl.methods.AGD(8.0, 0.1),
    "proximal_gradient": fl.methods.ProximalGradient(0.05, PSI),
    "accelerated_proximal_gradient": fl.methods.AcceleratedProximalGradient(0.05, PSI),
}
