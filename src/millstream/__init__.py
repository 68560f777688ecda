"""Millstream: distributed reinforcement learning, from one laptop process to many machines."""

__version__ = "0.1.0"
