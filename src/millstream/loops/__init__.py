"""Loops in a user's hands, over the parts that `mill train` runs: one worker, several threads, several machines."""
