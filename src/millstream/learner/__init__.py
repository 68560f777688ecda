"""Turning experience into policies, one minibatch at a time."""
