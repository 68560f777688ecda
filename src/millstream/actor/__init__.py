"""Making experience: a policy plays an environment and fills rollouts."""
