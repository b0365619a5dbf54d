"""What the deployments of the tests run: every method, with a regulariser where it takes one."""

import optax

import fedlocal as fl
from fedlocal.methods.table import ROWS, MethodArguments

PSI = fl.regularizers.L1(0.3)


def _arguments(psi: fl.Regularizer) -> MethodArguments:
    return MethodArguments(0.05, 0.7, local_steps=2, strong_convexity=0.1, proximity=0.8, regularizer=psi)


METHODS: dict[str, fl.LocalMethod] = {
    **{row.key: row.make(_arguments(PSI if row.composite else fl.regularizers.Zero())) for row in ROWS},
    "fed_avg_adam": fl.methods.FedAvg(0.05, server_optimizer=optax.adam(0.05)),
    "general_fed_ac": fl.methods.GeneralFedAc(alpha=3.0, beta=2.5, eta=0.05, gamma=0.08),
    "fed_dual_avg_nuclear": fl.methods.FedDualAvg(0.05, 0.7, fl.regularizers.Nuclear(0.3), prox_on_clients=False),
    "agd": fl.methods.AGD(8.0, 0.1),
    "proximal_gradient": fl.methods.ProximalGradient(0.05, PSI),
}
