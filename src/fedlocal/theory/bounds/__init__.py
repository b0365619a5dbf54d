"""The convergence theorems of the dissertation, one function each; `bound` has the words of all."""
