"""Sparse logistic regression of heart disease over four hospitals."""
