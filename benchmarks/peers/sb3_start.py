"""From the start of a process to the first training of Stable-Baselines3: the first step of its environments, and the
first update. The process is a child of this one, which imports nothing large and holds the watch.
"""

import json
import subprocess
import sys
import time


def train() -> None:
    """Train for two rollouts, and print when the first step was made and when the second rollout began."""
    from sb3_train import zoo
    from stable_baselines3.common.callbacks import BaseCallback

    class Watch(BaseCallback):
        """Writes down both moments."""

        def __init__(self) -> None:
            super().__init__()
            self.stepped: float | None = None
            self.rollouts: list[float] = []

        def _on_rollout_start(self) -> None:
            self.rollouts.append(time.time())

        def _on_step(self) -> bool:
            self.stepped = self.stepped or time.time()
            return True

    watch, model = Watch(), zoo()
    model.learn(2 * model.n_steps * model.n_envs, callback=watch)
    print(json.dumps([watch.stepped, watch.rollouts[1]]))


def main() -> None:
    start = time.time()
    ended = subprocess.run([sys.executable, __file__, "train"], check=True, capture_output=True, text=True)
    stepped, updated = json.loads(ended.stdout.splitlines()[-1])
    print(json.dumps({"first_steps": stepped - start, "first_update": updated - start}))


if __name__ == "__main__":
    train() if sys.argv[1:] == ["train"] else main()
