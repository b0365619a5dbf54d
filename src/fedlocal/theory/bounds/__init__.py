"""The convergence theorems of the dissertation, one function each; `bound` has the words of all.

Args:
    constants: the `Constants` of the problem, see `fl.theory.estimate`; a bound raises an error if it needs a None.
    setting: the `Setting` of the run: clients, rounds and local steps.
    step_size: eta > 0. The bound is then the theorem's inequality for any eta, and its `conditions` say whether the
        theorem allows this one. None, where it is the default, takes the step size that the theorem chooses.
    form: "full" has all constants and logarithms of the theorem; "simplified" is its order O(.), with most constants 1
        and no logarithms, for no particular step size: step_size must be None.
"""
