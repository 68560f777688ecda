"""CleanRL as it is, with the half million steps that its documentation trains CartPole-v1 for, until it is solved."""

import argparse
import json
import time
from collections import deque

from cleanrl_run import episodes


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=float, default=180.0)
    arguments = parser.parse_args()
    started_at = time.time()
    returns: deque[float] = deque(maxlen=100)
    best, solved_at, steps = 0.0, None, 0
    for at, made, episode in episodes("--seed", str(arguments.seed), "--total-timesteps", "500000"):
        returns.append(episode)
        steps = made
        best = max(best, sum(returns) / 100)
        if best >= 475:
            solved_at = at
        if solved_at or at > started_at + arguments.limit:
            break
    print(json.dumps({"started_at": started_at, "solved_at": solved_at, "best": best, "steps": steps}))


if __name__ == "__main__":
    main()
