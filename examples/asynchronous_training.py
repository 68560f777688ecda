"""Workers compute gradients, the server applies them as they come (A3C): `python examples/asynchronous_training.py`."""

from __future__ import annotations

from millstream import AsyncMainLoop, DistributedAgent, DistributedEnvironment, ParameterServer, ReplayBufferPool

if __name__ == "__main__":
    environment = DistributedEnvironment("CartPole-v1", envs_per_worker=8, unroll=32)
    replay_buffer = ReplayBufferPool()
    agent = DistributedAgent(environment, "impala")
    param_server = ParameterServer(agent.parameters(), optimiser=agent.optimiser(), max_staleness=100)

    with AsyncMainLoop(environment, replay_buffer, agent, param_server, num_workers=8) as async_loop:
        progress = async_loop.run_training(40_000)
        verdict = async_loop.evaluate_policy(episodes=10)
    server = progress["parameter_server"]
    print(f"{verdict['mean']:.0f} after {progress['steps']:,} steps and {server['accepted']:,} pushes")
    print(f"gradients were {server['lag']:.1f} versions behind on average, at most {server['lag_max']}")
