"""Advice: which method, step size and number of local steps to use on a problem, by `advisor.advise`."""
