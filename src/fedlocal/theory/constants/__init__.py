"""The constants in the assumptions of the theorems, computed from a problem by `estimation.estimate`."""
