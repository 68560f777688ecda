"""Small worlds with known answers, worlds that misbehave, and a clock that obeys: for tests, ours and yours.

Every environment here can be named in an experiment, as in `millstream.testing:ImageGrid`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from millstream.core.data import Array, Step
from millstream.core.errors import ConfigError, EnvError
from millstream.core.spec import SINGLE, Box, Discrete, EnvSpec, MultiDiscrete
from millstream.envs.cartpole import CartPole

ROUNDS = 10
"""How many steps an episode of the small worlds has."""


class FakeClock:
    """Time that passes only when told to."""

    def __init__(self, start: float = 1_000_000.0) -> None:
        self._start = start
        self._passed = 0.0

    def now(self) -> float:
        """Seconds since 1970, as far as this clock knows."""
        return self._start + self._passed

    def monotonic(self) -> float:
        """Seconds since this clock was made."""
        return self._passed

    def rest(self, seconds: float) -> None:
        """Come back at once, so much later."""
        self._passed += seconds

    advance = rest


class SmallWorld:
    """What the small worlds share: the count of rounds, the reset in the same step, and the answer.

    A world fills `self.shown` in `_open(slots)`, which begins episodes, and in `_play(actions)`, which
    gives rewards and who has terminated.
    """

    spec: EnvSpec
    limit = ROUNDS

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.rng = np.random.default_rng(0)
        self.ages = np.zeros(slots, np.int64)
        self.masks: Array | None = None
        self.shown: dict[str, Array] = {
            name: np.zeros((slots, *space.shape), space.dtype) for name, space in self.spec.observations.items()
        }

    def reset(self, seed: int) -> Step:
        """Open an episode in every slot."""
        self.rng = np.random.default_rng(seed)
        self.ages[:] = 0
        self._open(np.arange(self.slots))
        nothing = np.zeros(self.slots, bool)
        return self._answer(
            np.zeros(self.slots, np.float32), nothing, nothing, ~nothing, self._at(np.zeros(0, np.int64))
        )

    def step(self, actions: Array) -> Step:
        """Play one round in every slot."""
        rewards, terminated = self._play(np.asarray(actions))
        self.ages += 1
        truncated = (self.ages >= self.limit) & ~terminated
        done = terminated | truncated
        ended = done.nonzero()[0]
        finals = self._at(ended)
        if ended.size:
            self.ages[ended] = 0
            self._open(ended)
        return self._answer(rewards.astype(np.float32), terminated, truncated, done, finals)

    def render(self, slot: int = 0) -> Array | None:
        """No picture."""
        return None

    def close(self) -> None:
        """Nothing to let go of."""

    def _open(self, slots: Array) -> None:
        raise NotImplementedError

    def _play(self, actions: Array) -> tuple[Array, Array]:
        raise NotImplementedError

    def _answer(
        self, rewards: Array, terminated: Array, truncated: Array, first: Array, finals: Mapping[str, Array]
    ) -> Step:
        return Step(
            observations=self.shown,
            rewards=rewards,
            terminated=terminated,
            truncated=truncated,
            valid=np.ones(self.slots, bool),
            first=first,
            ended=(terminated | truncated).nonzero()[0],
            finals=finals,
            masks=self.masks,
        )

    def _at(self, slots: Array) -> dict[str, Array]:
        return {name: array[slots] for name, array in self.shown.items()}

    def _nobody(self) -> Array:
        return np.zeros(self.slots, bool)


class MultiDiscreteEnv(SmallWorld):
    """Two questions at once, each shown as one bright number among its choices; half a point each."""

    OPTIMUM = float(ROUNDS)
    """The return of a policy that always answers both."""
    spec = EnvSpec("MultiDiscreteEnv", {SINGLE: Box((7,), low=0.0, high=1.0)}, MultiDiscrete((3, 4)))

    def _open(self, slots: Array) -> None:
        self._ask(slots)

    def _play(self, actions: Array) -> tuple[Array, Array]:
        asked = self.shown[SINGLE]
        right = actions == np.stack([asked[:, :3].argmax(1), asked[:, 3:].argmax(1)], axis=1)
        self._ask(np.arange(self.slots))
        return right.mean(axis=1), self._nobody()

    def _ask(self, slots: Array) -> None:
        asked = np.zeros((len(slots), 7), np.float32)
        rows = np.arange(len(slots))
        asked[rows, self.rng.integers(0, 3, len(slots))] = 1.0
        asked[rows, 3 + self.rng.integers(0, 4, len(slots))] = 1.0
        self.shown[SINGLE][slots] = asked


class DictEnv(SmallWorld):
    """A choice out of four (`goal`), moved on by one where the first number of `where` is positive."""

    OPTIMUM = float(ROUNDS)
    """The return of a policy that reads both parts."""
    spec = EnvSpec("DictEnv", {"goal": Discrete(4), "where": Box((2,), low=-1.0, high=1.0)}, Discrete(4))

    def answers(self) -> Array:
        """The right action of each slot."""
        return (self.shown["goal"] + (self.shown["where"][:, 0] > 0)) % 4

    def _open(self, slots: Array) -> None:
        self.shown["goal"][slots] = self.rng.integers(0, 4, len(slots))
        self.shown["where"][slots] = self.rng.uniform(-1, 1, (len(slots), 2))

    def _play(self, actions: Array) -> tuple[Array, Array]:
        rewards = actions == self.answers()
        self._open(np.arange(self.slots))
        return rewards, self._nobody()


class MaskedEnv(SmallWorld):
    """Four actions, worth 0 to 3 thirds, of which a few are legal each time; an illegal one is an error."""

    spec = EnvSpec("MaskedEnv", {SINGLE: Box((1,))}, Discrete(4), masked=True)

    def _open(self, slots: Array) -> None:
        if self.masks is None:
            self.masks = np.ones((self.slots, 4), bool)
        masks = self.rng.random((len(slots), 4)) < 0.5
        masks[np.arange(len(slots)), self.rng.integers(0, 4, len(slots))] = True
        self.masks = self.masks.copy()
        self.masks[slots] = masks

    def _play(self, actions: Array) -> tuple[Array, Array]:
        assert self.masks is not None
        if not self.masks[np.arange(self.slots), actions].all():
            raise EnvError("an action was chosen that the mask forbids")
        self._open(np.arange(self.slots))
        return actions / 3.0, self._nobody()


class ContinuousEnv(SmallWorld):
    """Name the number that is shown, between -2 and 2; the squared distance is what it costs."""

    OPTIMUM = 0.0
    """The return of a policy that repeats what it sees."""
    spec = EnvSpec("ContinuousEnv", {SINGLE: Box((1,), low=-2.0, high=2.0)}, Box((1,), low=-2.0, high=2.0))

    def _open(self, slots: Array) -> None:
        self.shown[SINGLE][slots] = self.rng.uniform(-2, 2, (len(slots), 1))

    def _play(self, actions: Array) -> tuple[Array, Array]:
        rewards = -np.square(np.clip(actions, -2, 2) - self.shown[SINGLE])[:, 0]
        self._open(np.arange(self.slots))
        return rewards, self._nobody()


class ImageGrid(SmallWorld):
    """An agent walks to its goal on a small image: up, right, down, left.

    +1 at the goal, and a tenth for every cell nearer (or less for every cell further), so that a
    shortest walk over d cells returns 1 + d / 10. With one channel the goal is half as bright as the
    agent; with two or three each has its own.
    """

    def __init__(self, slots: int, size: int = 10, channels: int = 3) -> None:
        if channels not in (1, 2, 3):
            raise ConfigError(f"an image has 1, 2 or 3 channels, got {channels}")
        self.size = size
        self.limit = 4 * size
        space = Box((size, size, channels), "uint8", 0.0, 255.0)
        self.spec = EnvSpec("ImageGrid", {SINGLE: space}, Discrete(4), max_episode_steps=self.limit)
        self.agents = np.zeros((slots, 2), np.int64)
        self.goals = np.zeros((slots, 2), np.int64)
        super().__init__(slots)

    @property
    def optimum(self) -> float:
        """The mean return of shortest walks from everywhere to everywhere else."""
        cells = self.size**2
        mean_distance = 2 * (cells - 1) / (3 * self.size) * cells / (cells - 1)
        return 1.0 + mean_distance / 10

    def distances(self) -> Array:
        """How far each agent is from its goal."""
        return np.abs(self.agents - self.goals).sum(axis=1)

    def render(self, slot: int = 0) -> Array:
        """What the policy sees, enlarged."""
        seen = self.shown[SINGLE][slot]
        picture = np.zeros((self.size, self.size, 3), np.uint8)
        picture[..., : seen.shape[-1]] = seen
        return np.repeat(np.repeat(picture, 24, axis=0), 24, axis=1)

    def _open(self, slots: Array) -> None:
        cells = self.size**2
        agents = self.rng.integers(0, cells, len(slots))
        goals = (agents + self.rng.integers(1, cells, len(slots))) % cells
        self.agents[slots] = np.stack(np.divmod(agents, self.size), axis=1)
        self.goals[slots] = np.stack(np.divmod(goals, self.size), axis=1)
        self._draw()

    def _play(self, actions: Array) -> tuple[Array, Array]:
        before = self.distances()
        self.agents += _WAYS[actions]
        np.clip(self.agents, 0, self.size - 1, out=self.agents)
        after = self.distances()
        self._draw()
        arrived = after == 0
        return (before - after) / 10 + arrived, arrived

    def _draw(self) -> None:
        image, rows = self.shown[SINGLE], np.arange(self.slots)
        image[:] = 0
        last = min(image.shape[-1] - 1, 1)
        image[rows, self.goals[:, 0], self.goals[:, 1], last] = 255 if last else 128
        image[rows, self.agents[:, 0], self.agents[:, 1], 0] = 255


_WAYS = np.array([[-1, 0], [0, 1], [1, 0], [0, -1]])


class HiddenVelocityCartPole:
    """CartPole-v1 that shows position and angle only: to balance it, a policy has to remember."""

    def __init__(self, slots: int) -> None:
        self._inner = CartPole(slots)
        self.slots = slots
        whole = self._inner.spec
        box = whole.observations[SINGLE]
        assert isinstance(box, Box) and isinstance(box.high, tuple)
        high = (box.high[0], box.high[2])
        self.spec = EnvSpec(
            id="HiddenVelocityCartPole",
            observations={SINGLE: Box((2,), low=(-high[0], -high[1]), high=high)},
            action=whole.action,
            max_episode_steps=whole.max_episode_steps,
            reward_threshold=whole.reward_threshold,
            fps=whole.fps,
        )

    def reset(self, seed: int) -> Step:
        """Open an episode in every slot."""
        return self._hide(self._inner.reset(seed))

    def step(self, actions: Array) -> Step:
        """Push every cart."""
        return self._hide(self._inner.step(actions))

    def render(self, slot: int = 0) -> Array | None:
        """The same picture as CartPole's."""
        return self._inner.render(slot)

    def close(self) -> None:
        """Nothing to let go of."""

    def snapshot(self) -> Mapping[str, Any]:
        """The state of the whole CartPole."""
        return self._inner.snapshot()

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Continue exactly where the snapshot was taken."""
        self._inner.restore(snapshot)

    def _hide(self, step: Step) -> Step:
        return Step(
            observations={SINGLE: step.observations[SINGLE][:, ::2]},
            rewards=step.rewards,
            terminated=step.terminated,
            truncated=step.truncated,
            valid=step.valid,
            first=step.first,
            ended=step.ended,
            finals={SINGLE: step.finals[SINGLE][:, ::2]},
        )


def EndlessEnv(num_envs: int, autoreset_mode: str = "NextStep") -> Any:
    """A Gymnasium vector with reward 1 a step that never terminates and is truncated after 10 steps.

    Its value is 1 / (1 - discount) for whoever bootstraps from truncations, in each of the three
    modes of resetting: `NextStep`, `SameStep`, `Disabled`. The observation is its age in tenths.
    """
    from millstream.envs.misbehaving import endless

    return endless(num_envs, autoreset_mode)


def Broken(kind: str = "crash", after: int = 5) -> Any:
    """A Gymnasium environment that behaves for `after` steps and then does not.

    `kind` is one of crash, nan, inf, shape, dtype, reward, flag, reset.
    """
    from millstream.envs.misbehaving import broken

    return broken(kind, after)


def CrashingEnv(after: int = 5) -> Any:
    """Raises in its step."""
    return Broken("crash", after)


def NanEnv(after: int = 5) -> Any:
    """Shows something that is not a number."""
    return Broken("nan", after)


def WrongShapeEnv(after: int = 5) -> Any:
    """Shows more than its space promises."""
    return Broken("shape", after)
