"""Returns and advantages, time first. Written once, for NumPy arrays and tensors alike.

Two arrays say what happens after each step, so that endings are handled in one place:

    next_values  [T, B]  the value of what comes next: 0 where the world ended, the value of the last
                         observation where we stopped watching, the next step's value otherwise
    continues    [T, B]  1 while the episode goes on inside this rollout, 0 where it ended
"""

from __future__ import annotations

from typing import Any

import numpy as np

from millstream.core.data import Array


def namespace(array: Array) -> Any:
    """The array library that an array belongs to."""
    if isinstance(array, np.ndarray | np.generic):
        return np
    import array_api_compat

    return array_api_compat.array_namespace(array)


def following_values(values: Array, last: Array, terminated: Array, truncated: Array, final_values: Array) -> Array:
    """`next_values`: values [T, B], last [B] after the last step, final_values [T, B] read only where truncated."""
    xp = namespace(values)
    following = xp.concat([values[1:], last[None]], axis=0)
    following = xp.where(truncated, final_values, following)
    return xp.where(terminated, xp.zeros_like(following), following)


def gae(rewards: Array, values: Array, next_values: Array, continues: Array, discount: float, trace: float) -> Array:
    """Generalised advantage estimates (Schulman et al. 2016)."""
    deltas = rewards + discount * next_values - values
    return _accumulate(deltas, discount * trace * continues)


def vtrace(
    log_ratios: Array,
    rewards: Array,
    values: Array,
    next_values: Array,
    continues: Array,
    discount: float,
    trace: float = 1.0,
    clip_rho: float = 1.0,
    clip_c: float = 1.0,
) -> tuple[Array, Array]:
    """V-trace targets and policy-gradient advantages (Espeholt et al. 2018)."""
    xp = namespace(values)
    ratios = xp.exp(log_ratios)
    rhos = xp.clip(ratios, 0.0, clip_rho)
    deltas = rhos * (rewards + discount * next_values - values)
    targets = values + _accumulate(deltas, discount * trace * continues * xp.clip(ratios, 0.0, clip_c))
    later = xp.concat([targets[1:], next_values[-1:]], axis=0)
    next_targets = xp.where(continues > 0, later, next_values)
    return targets, rhos * (rewards + discount * next_targets - values)


def one_step_on(
    targets: Array,
    rewards: Array,
    values: Array,
    next_values: Array,
    continues: Array,
    discount: float,
    trace: float,
) -> Array:
    """Advantages of actions by the targets of what follows them: a step's own importance weight is left to the loss.

    With targets that GAE gives, these are its advantages.
    """
    xp = namespace(values)
    errors = targets - values
    later = xp.concat([errors[1:], xp.zeros_like(errors[:1])], axis=0)
    return rewards + discount * (next_values + trace * continues * later) - values


def n_step(rewards: Array, next_values: Array, continues: Array, discount: float, n: int) -> Array:
    """Returns that look n steps ahead and bootstrap there, or where the episode ended before."""
    xp = namespace(rewards)
    returns = xp.empty_like(rewards)
    for start in range(rewards.shape[0]):
        end = min(start + n, rewards.shape[0])
        total = rewards[end - 1] + discount * next_values[end - 1]
        for t in range(end - 2, start - 1, -1):
            total = rewards[t] + discount * xp.where(continues[t] > 0, total, next_values[t])
        returns[start] = total
    return returns


def discounted(rewards: Array, continues: Array, discount: float, last: Array) -> Array:
    """Discounted returns; `last` [B] is what follows the last step."""
    xp = namespace(rewards)
    returns = xp.empty_like(rewards)
    total = last
    for t in range(rewards.shape[0] - 1, -1, -1):
        total = rewards[t] + discount * continues[t] * total
        returns[t] = total
    return returns


def project(probabilities: Array, returns: Array, discounts: Array, low: float, high: float) -> Array:
    """Distributions [N, n] over n numbers from `low` to `high`, discounted and moved by a return, put back onto them.

    What lands between two numbers is shared by nearness, what lands beyond an end goes to it (Bellemare et al. 2017).
    """
    xp, n = namespace(probabilities), probabilities.shape[1]
    places = xp.arange(n, dtype=probabilities.dtype, device=probabilities.device)
    step = (high - low) / (n - 1)
    moved = returns[:, None] + discounts[:, None] * (low + step * places)
    landed = xp.clip((moved - low) / step, 0.0, n - 1.0)
    reach = xp.clip(1 - abs(landed[:, :, None] - places), 0.0, 1.0)  # [N, from, to]
    return (probabilities[:, None] @ reach)[:, 0]


def log_softmax(logits: Array) -> Array:
    """Logarithms of the probabilities that logits stand for, along the last axis."""
    xp = namespace(logits)
    shifted = logits - xp.max(logits, axis=-1, keepdims=True)
    return shifted - xp.log(xp.sum(xp.exp(shifted), axis=-1, keepdims=True))


def explained_variance(predicted: Array, actual: Array) -> float:
    """1 when values predict returns perfectly, 0 when no better than their mean."""
    xp = namespace(actual)
    variance = float(xp.var(actual))
    return 0.0 if variance == 0 else 1.0 - float(xp.var(actual - predicted)) / variance


def _accumulate(deltas: Array, decays: Array) -> Array:
    """total[t] = deltas[t] + decays[t] * total[t + 1]."""
    totals = namespace(deltas).empty_like(deltas)
    total = totals[-1] = deltas[-1]
    for t in range(deltas.shape[0] - 2, -1, -1):
        total = deltas[t] + decays[t] * total
        totals[t] = total
    return totals
