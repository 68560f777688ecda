"""Several machines, here three processes of one: `python examples/multi_machine_training.py`.

On real machines the same program runs on each: `python multi_machine_training.py worker_1`, with their addresses below
and a `token_file` that all of them share.
"""

from __future__ import annotations

import socket
import subprocess
import sys

from millstream import DistributedAgent, DistributedEnvironment, DistributedMainLoop, ReplayBufferPool


def train(node_id: str, port: int) -> None:
    """The part of one node."""
    places = {"server": f"127.0.0.1:{port}", "worker_1": "127.0.0.2:0", "worker_2": "127.0.0.3:0"}
    config = {"server": "server", "nodes": places}
    environment = DistributedEnvironment("CartPole-v1", envs_per_worker=8, unroll=32)
    replay_buffer, agent = ReplayBufferPool(), DistributedAgent(environment, "ppo")
    param_server = None  # the server node makes one, the others find it there
    with DistributedMainLoop(
        environment, replay_buffer, agent, param_server,
        node_id=node_id, cluster_config=config,
    ) as distributed_loop:  # fmt: skip
        progress = distributed_loop.run_training(20_000)
        if distributed_loop.serves:
            print(f"{distributed_loop.evaluate_policy(10)['mean']:.0f} after {progress['made']:,} steps of all nodes")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        train(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 50055)
    else:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            number = str(free.getsockname()[1])
        nodes = [subprocess.Popen([sys.executable, __file__, f"worker_{index}", number]) for index in (1, 2)]
        train("server", int(number))
        for node in nodes:
            node.wait()
