"""Places where roles run, and the only loop."""
