"""Algorithms as functions over their own state, one file each."""
