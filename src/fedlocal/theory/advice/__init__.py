"""Advice: which method, step size and number of local steps to use on a problem.

`advisor` has `advise` and `Advice`; `families` the methods that are compared; `search` the search for their parameters;
`local_model` predicts the error of a method near the optimum, and `local_fit` computes that model from a problem.
"""
