"""A parameter server of its own, which others may read: `python examples/parameter_server.py`."""

from __future__ import annotations

from millstream import DistributedAgent, DistributedEnvironment, MainLoop, ParameterServer, ReplayBufferPool

if __name__ == "__main__":
    environment = DistributedEnvironment("CartPole-v1", num_workers=2)
    replay_buffer = ReplayBufferPool()
    agent = DistributedAgent(environment, "ppo")
    initial_params = agent.parameters()

    param_server = ParameterServer(initial_params)
    with MainLoop(environment, replay_buffer, agent, param_server) as main_loop:
        main_loop.run_training(20_000, mode="async")
        print(f"{main_loop.evaluate_policy(episodes=10)['mean']:.0f}")

    version = param_server.version
    print(f"the server holds version {version.epoch}.{version.number}, after {param_server.get().steps:,} steps")
