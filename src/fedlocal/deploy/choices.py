"""What there is to choose from for sites that have a file each, and the step size that is chosen for them."""

TASKS = {"logistic": "Logistic", "least-squares": "LeastSquares"}
METHODS = ("FedDualAvg", "FedMiD", "FedAvg")
SAFE_COLUMNS = 199
CURVATURE = {"logistic": 1 / 4, "least-squares": 2.0}  # the largest second derivative of the loss of a score


def safe_step_size(task: str, l2: float = 0.0) -> float:
    """A step size to start with: 1/L for the rows of all sites together, where L <= curvature * (columns + 1) + l2.

    That holds for up to 199 columns of mean 0 and variance 1 or less. One site's rows may have a larger L, and so may sparse
    files (LIBSVM), whose columns are scaled and not centred.

    >>> safe_step_size("logistic"), safe_step_size("least-squares"), safe_step_size("logistic", l2=50)
    (0.02, 0.0025, 0.01)
    """
    return 1 / (CURVATURE[task] * (SAFE_COLUMNS + 1) + l2)
