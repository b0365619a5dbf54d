"""The convergence theorems of the dissertation, one function each.

`bound` has `Constants`, `Setting`, `Bound` and `tightest`; `fed_avg`, `fed_ac`, `fed_ac_convex`, `composite`, `minibatch` and
`lower` have the theorems by method; `fed_avg_stability` and `fed_ac_stability` the lemmas about discrepancies; `rate_tables` the
text's tables; `step_sizes` the largest step sizes that the theorems allow.
"""
