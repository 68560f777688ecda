"""One loop, with its parameter server inside: `python examples/centralized_training.py`."""

from __future__ import annotations

from millstream import DistributedAgent, DistributedEnvironment, MainLoop, ReplayBufferPool

if __name__ == "__main__":
    environment = DistributedEnvironment("CartPole-v1", num_workers=2)
    replay_buffer = ReplayBufferPool(capacity=50_000, num_buffers=4)
    agent = DistributedAgent(environment, "dqn", prioritised=True)

    with MainLoop(environment, replay_buffer, agent, parameter_server=None) as main_loop:
        progress = main_loop.run_training(20_000)
        verdict = main_loop.evaluate_policy(episodes=10)
    print(
        f"{verdict['mean']:.0f} after {progress['steps']:,} steps, {progress['replay_buffer']['items']:,} of them held"
    )
