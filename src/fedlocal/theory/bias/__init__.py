"""The iterate bias of SGD: how far the mean of its iterates is from gradient descent."""
