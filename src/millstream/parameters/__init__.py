"""Versions of a policy and who may read them."""
