"""Experience at rest, between the actors and the learner."""
