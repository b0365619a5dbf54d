"""scikit-learn estimators whose examples belong to sites."""

from fedlocal.estimators.linear import FederatedElasticNet, FederatedLasso, FederatedLinearRegression
from fedlocal.estimators.logistic import FederatedLogisticRegression
from fedlocal.estimators.logistic_cv import FederatedLogisticRegressionCV
from fedlocal.estimators.matrix import FederatedMatrixRegression
from fedlocal.estimators.quantile import FederatedQuantileRegression
from fedlocal.estimators.regression_cv import FederatedElasticNetCV, FederatedLassoCV

__all__ = [
    "FederatedElasticNet",
    "FederatedElasticNetCV",
    "FederatedLasso",
    "FederatedLassoCV",
    "FederatedLinearRegression",
    "FederatedLogisticRegression",
    "FederatedLogisticRegressionCV",
    "FederatedMatrixRegression",
    "FederatedQuantileRegression",
]


def __dir__() -> list[str]:
    return sorted(__all__)
