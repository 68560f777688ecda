"""Implementations of the ports that cross a boundary: none (memory), processes (shared)."""
