"""Problems that the proofs construct: instances of the lower bounds, and an objective on which close runs separate."""
