"""One node of a cluster: `python node.py NODE CLUSTER.json STEPS MODE FOLDER`. Tells what happens as JSON lines."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from millstream import DistributedAgent, DistributedEnvironment, DistributedMainLoop, ParameterServer, ReplayBufferPool
from millstream.loops.asynchronous import PARAMETERS


def tell(**what: Any) -> None:
    print(json.dumps(what), flush=True)


def main(node: str, cluster: str, steps: int, mode: str, folder: Path) -> None:
    environment = DistributedEnvironment("CartPole-v1", envs_per_worker=4, unroll=32)
    agent = DistributedAgent(environment, "ppo", minibatch=64, epochs=2)
    server = None
    if node == json.loads(Path(cluster).read_text())["server"]:
        quorum = 2 if mode == "sync" else 1
        server = ParameterServer(agent.parameters(), optimiser=agent.optimiser(), mode=mode, quorum=quorum)
    with DistributedMainLoop(
        environment, ReplayBufferPool(), agent, server, node_id=node, cluster_config=cluster, folder=folder
    ) as loop:
        if loop.serves:
            before = loop.load_checkpoint() if (folder / PARAMETERS).exists() else 0
            tell(serving=loop.serve(), before=before)
        told: set[str] = set()

        def on_progress(progress: Any) -> None:
            if progress["updates"] > 3 and "learning" not in told:
                told.add("learning")
                tell(learning=node)

        progress = loop.run_training(steps, checkpoint_every=256, on_progress=on_progress)
        tell(node=node, **{name: progress[name] for name in ("stopped_by", "made", "parameter_server", "workers")})


if __name__ == "__main__":
    name, config, total, how, where = sys.argv[1:]
    main(name, config, int(total), how, Path(where))
