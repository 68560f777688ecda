"""Experience to learn from without an environment: random observations, rewards, masks and endings."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from millstream.agents.registry import make
from millstream.core.codec import Layout, rollout_of
from millstream.core.data import Stamp, Version
from millstream.core.spec import Box, Discrete, EnvSpec, MultiDiscrete
from millstream.learner.sources import Picked
from millstream.replay.cut import n_step
from millstream.replay.select import Prioritised, Uniform
from millstream.replay.table import Table

NUMBERS = {"obs": Box((3,))}
SPECS = {
    "discrete": EnvSpec("discrete", NUMBERS, Discrete(4)),
    "masked": EnvSpec("masked", NUMBERS, Discrete(4), masked=True),
    "multi": EnvSpec("multi", NUMBERS, MultiDiscrete((3, 2))),
    "multi-masked": EnvSpec("multi-masked", NUMBERS, MultiDiscrete((3, 2)), masked=True),
    "continuous": EnvSpec("continuous", NUMBERS, Box((2,), low=-1, high=1)),
    "stacked": EnvSpec("stacked", NUMBERS, Discrete(4), stack=3),
    "dictionary": EnvSpec(
        "dictionary", {"where": Box((2, 2)), "what": Discrete(3), "which": MultiDiscrete((2, 3))}, Discrete(4)
    ),
    "image": EnvSpec("image", {"board": Box((5, 4, 2), "uint8"), "speed": Box((2,))}, Discrete(4), stack=2),
}
SMALL = {"hidden": (8, 7)}
LSTM = {"kind": "lstm", "memory": 5, **SMALL}


def agent_for(algorithm="ppo", spec="discrete", kind="mlp", hyper=None, **network):
    """A small agent of the zoo above."""
    settings = {**SMALL, "kind": kind, **({"memory": 5} if kind == "lstm" else {}), **network}
    return make(algorithm, SPECS[spec] if isinstance(spec, str) else spec, settings, hyper)


def observe(spec, slots, rng):
    """Random observations [slots, ...] by name."""
    return {name: _draw(space, slots, rng) for name, space in spec.observations.items()}


def legal(spec, slots, rng):
    """A random mask in which every choice keeps at least one legal action, or None."""
    if not spec.masked:
        return None
    sizes = (spec.action.n,) if isinstance(spec.action, Discrete) else spec.action.nvec
    parts = []
    for n in sizes:
        part = rng.random((slots, n)) < 0.5
        part[np.arange(slots), rng.integers(n, size=slots)] = True
        parts.append(part)
    return np.concatenate(parts, axis=1)


def play(agent, params, steps=6, slots=3, seed=0, ends=0.25, next_step=False, warm=2, rewards=None):
    """A rollout made by `agent.act`. With `next_step` a slot needs a step that counts nowhere to reset itself."""
    rng = np.random.default_rng([seed, 77])
    spec, carry, first = agent.spec, agent.carry(params, slots), np.ones(slots, bool)
    now, mask, resets = observe(spec, slots, rng), legal(spec, slots, rng), np.zeros(slots, bool)
    for _ in range(warm):  # so that t = 0 lies inside episodes, with something remembered
        _, carry = agent.act(params, now, carry, first, mask, rng)
        now, mask, first = observe(spec, slots, rng), legal(spec, slots, rng), np.zeros(slots, bool)
    example, _ = agent.act(params, now, carry, first, mask, np.random.default_rng(0))
    layout = Layout.of(spec, steps, slots, carry, example.extras)
    to = layout.views(memoryview(bytearray(layout.size)))
    for name, array in carry.items():
        to[f"carry/{name}"][...] = array
    finals = 0
    for t in range(steps + 1):
        for name, array in now.items():
            to[f"observations/{name}"][t] = array
        to["first"][t] = first
        if mask is not None:
            to["extras/mask"][t] = mask
        if t == steps:
            break
        decision, carry = agent.act(params, now, carry, first, mask, rng)
        to["actions"][t] = decision.actions
        for name, array in decision.extras.items():
            to[f"extras/{name}"][t] = array
        drawn = rng.normal(size=slots) if rewards is None else rewards(decision.actions)
        ended = (rng.random(slots) < ends) & ~resets
        cut = ended & (rng.random(slots) < 0.5)
        to["rewards"][t], to["valid"][t] = np.where(resets, 0, drawn), ~resets
        to["terminated"][t], to["truncated"][t] = ended & ~cut, cut
        now, mask = observe(spec, slots, rng), legal(spec, slots, rng)
        last = now if next_step else observe(spec, slots, rng)
        for slot in np.flatnonzero(ended):
            to["final_at"][finals] = t, slot
            for name, array in last.items():
                to[f"finals/{name}"][finals] = array[slot]
            finals += 1
        first = resets if next_step else ended
        resets = ended if next_step else np.zeros(slots, bool)
    return rollout_of(to, steps, finals, Stamp("test", 0, 0, seed, Version(0, 0), 0.0))


def given(agent, hyper, played, seed=0):
    """What an update of the agent gets of what was played: all of it, or windows that a table picks."""
    if not getattr(agent, "replayed", False):
        return played
    select = Prioritised(hyper.priority_exponent, hyper.importance) if hyper.prioritised else Uniform()
    table = Table(n_step(hyper.n_step), select, capacity=10_000, rng=np.random.default_rng(seed))
    for sequence, rollout in enumerate(played):
        assert table.insert(replace(rollout, stamp=replace(rollout.stamp, sequence=sequence)))
    return Picked(table).take(0, 0, hyper).rollouts


def disturbed(state, seed=0, size=0.3):
    """The state with its weights moved, so that ratios leave 1 and clips come into force."""
    rng = np.random.default_rng([seed, 5])
    moved = {}
    for name in ("weights", "player", "judge"):
        if hasattr(state, name):
            old = getattr(state, name)
            noise = rng.normal(0, size, tuple(old.shape)).astype(np.float32)
            moved[name] = old + (noise if is_numpy(old) else old.new_tensor(noise))
    return replace(state, **moved)


def is_numpy(array):
    return isinstance(array, np.ndarray)


def counted(minibatch):
    """How many steps a minibatch counts."""
    if "valid" in minibatch:
        return int(minibatch["valid"].sum())
    return len(minibatch["actions"])


def pick(batch, rows):
    """Rows of every column, as the learner picks them."""
    return {name: array[rows] for name, array in batch.items()}


def _draw(space, slots, rng):
    if isinstance(space, Discrete):
        return rng.integers(space.n, size=slots)
    if isinstance(space, MultiDiscrete):
        return rng.integers(space.nvec, size=(slots, len(space.nvec)))
    if space.dtype == "uint8":
        return rng.integers(256, size=(slots, *space.shape), dtype=np.uint8)
    return rng.normal(size=(slots, *space.shape)).astype(space.dtype)
