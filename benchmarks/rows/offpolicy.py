"""DQN on CartPole-v1, SAC and TD3 on Pendulum-v1: equal networks, minibatches and gradients for each step on all sides.

DQN has what the zoo of Stable-Baselines3 has for this task (256 steps, then 128 gradients of 64); the others have its
defaults, but for the step size that its zoo has for this task: 256 steps in a gradient, one gradient for each step.
"""

from measure import OURS, Side, alternate, table
from venvs import SB3, TIANSHOU

LAYERS = ("network.hidden=256,256", "network.activation=relu", "actor.envs=1")
CONTINUOUS = (
    "Pendulum-v1", *LAYERS, "actor.unroll=8", "gradients=8", "minibatch=256", "samples_per_step=256",
    "learning_rate=1e-3", "learning_starts=100", "capacity=1000000",
)  # fmt: skip
DISCRETE = (
    "CartPole-v1", *LAYERS, "actor.unroll=256", "gradients=128", "minibatch=64", "samples_per_step=32",
    "network.shared=true", "double=false", "learning_rate=2.3e-3", "target_every=128", "learning_starts=1000",
    "capacity=100000", "exploration=0.16", "epsilon_end=0.04",
)  # fmt: skip
TASKS = {
    "dqn": ("DQN, CartPole-v1", DISCRETE, ("--warm", "2048", "--steps", "10240", "--last", "20")),
    "sac": ("SAC, Pendulum-v1", CONTINUOUS, ("--warm", "500", "--steps", "2000", "--last", "5")),
    "td3": ("TD3, Pendulum-v1", CONTINUOUS, ("--warm", "500", "--steps", "2000", "--last", "5")),
}
COLUMNS = {"samples a step": "samples_per_step", "return of the last episodes": "train_return"}


def row(repeats: int) -> str:
    return "\n\n".join(_task(algo, repeats) for algo in TASKS)


def _task(algo: str, repeats: int) -> str:
    title, settings, steps = TASKS[algo]
    ours = (*settings, f"algo={algo}", *steps)
    sides = [
        Side("millstream, processes", OURS, "ours/task.py", (*ours, "topology=processes")),
        Side("millstream, inline", OURS, "ours/task.py", (*ours, "topology=inline")),
        *(
            Side(f"Stable-Baselines3, threads: {threads}", SB3.ready(), "peers/sb3_replayed.py",
                 (algo, *steps, "--threads", str(threads)), limit=300)
            for threads in (1, 2)
        ),
        Side("Tianshou", TIANSHOU.ready(), "peers/tianshou_replayed.py", (algo, *steps), limit=300),
    ]  # fmt: skip
    found = alternate(sides, repeats)
    return table(f"{title}, environment steps a second", "steps_per_second", "steps/s", found, more=COLUMNS)
