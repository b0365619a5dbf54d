"""Problems that the proofs construct.

`lower_bound_instances` has the instances of the lower bounds; `instability` an objective on which two close runs of accelerated
gradient descent separate exponentially.
"""
