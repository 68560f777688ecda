"""Found by pytest first, it puts this folder on the path: suites share what they play with (`agents.rollouts`)."""
