"""The constants in the assumptions of the theorems, computed from a problem.

`estimation` has `estimate` and `Estimate`; `linear`, `oracle` and `sampled` the three ways to compute the constants;
`optimum` those that x0 and x* determine; `types` what these share. `linear_model`, `linear_measurements`, `client_groups`,
`client_gradients`, `gradient_samples` and `gradient_moments` do the linear algebra and the sampling.
"""
