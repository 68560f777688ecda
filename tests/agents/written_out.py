"""Losses as the papers print them, over torch's own distributions, for autograd to differentiate."""

from __future__ import annotations

import numpy as np
import torch
from torch import distributions as td

from millstream.core.spec import Discrete, MultiDiscrete

torch.set_num_threads(1)


def tensors(batch):
    return {name: torch.as_tensor(array) for name, array in batch.items()}


def mlp_outputs(network, flat, x):
    """The perceptron of `Mlp`, tower by tower."""
    named = network.names(flat)
    bend = torch.tanh if network.activation == "tanh" else torch.relu
    tops = []
    for tower in range(network.towers):
        h = x
        for index in range(len(network.hidden)):
            h = bend(h @ named[f"hidden.{index}.weight"][tower] + named[f"hidden.{index}.bias"][tower])
        tops.append(h)
    outputs = {
        "policy": tops[0] @ named["policy.weight"] + named["policy.bias"],
        "value": (tops[-1] @ named["value.weight"] + named["value.bias"])[:, 0],
    }
    return outputs | {"log_std": named["log_std"]} if "log_std" in named else outputs


def outputs_of(agent, flat, minibatch, sequences):
    """What the agent's network says, with a graph behind it."""
    network = agent.network
    inputs = {name[3:]: array for name, array in minibatch.items() if name.startswith("in/")}
    if network.recurrent:
        carry = {name[6:]: array for name, array in minibatch.items() if name.startswith("carry/")}
        return steps_one_by_one(network, network.names(flat), inputs, carry, minibatch["first"])
    if sequences:
        inputs = {name: array.flatten(0, 1) for name, array in inputs.items()}
    if hasattr(network, "compute"):
        return network.compute(network.names(flat), inputs)
    return mlp_outputs(network, flat, inputs["vector"])


def steps_one_by_one(network, named, inputs, carry, first):
    """A recurrent network as its actor runs it; rows slot by slot."""
    found = []
    for t in range(first.shape[1]):
        carry = {name: array * (~first[:, t, None]) for name, array in carry.items()}
        outputs, carry = network.recall(named, {name: array[:, t] for name, array in inputs.items()}, carry)
        found.append(outputs)
    rows = {name: torch.stack([each[name] for each in found], 1).flatten(0, 1) for name in ("policy", "value")}
    return rows | {"log_std": named["log_std"]} if "log_std" in named else rows


def distribution(space, outputs, mask):
    """A list of torch distributions whose log-probabilities and entropies add up."""
    policy = outputs["policy"]
    if isinstance(space, Discrete | MultiDiscrete):
        sizes = [space.n] if isinstance(space, Discrete) else list(space.nvec)
        if mask is not None:
            policy = torch.where(mask, policy, torch.tensor(-1e9))
        return [td.Categorical(logits=part) for part in policy.split(sizes, dim=-1)]
    return [td.Independent(td.Normal(policy, outputs["log_std"].exp().expand_as(policy)), 1)]


def log_prob_and_entropy(space, outputs, actions, mask):
    parts = distribution(space, outputs, mask)
    if isinstance(space, MultiDiscrete):
        chosen = list(actions.unbind(-1))
    else:
        chosen = [actions if isinstance(space, Discrete) else actions.reshape(outputs["policy"].shape)]
    log_prob = sum(part.log_prob(each) for part, each in zip(parts, chosen, strict=True))
    return log_prob, sum(part.entropy() for part in parts)


def ppo_gradient(agent, state, minibatch, hyper):
    """Gradient of the clipped objective."""
    flat = torch.as_tensor(state.weights).clone().requires_grad_()
    minibatch = tensors(minibatch)
    outputs = outputs_of(agent, flat, minibatch, agent.sequences)
    if agent.sequences:
        steps = ("actions", "log_prob", "advantages", "returns", "values", "valid", "mask")
        minibatch = {name: minibatch[name].flatten(0, 1) for name in steps if name in minibatch}
    new, entropy = log_prob_and_entropy(agent.spec.action, outputs, minibatch["actions"], minibatch.get("mask"))
    ratio, a = torch.exp(new - minibatch["log_prob"]), minibatch["advantages"]
    objective = torch.minimum(ratio * a, ratio.clamp(1 - hyper.clip, 1 + hyper.clip) * a)
    error = (outputs["value"] - minibatch["returns"]) ** 2
    if hyper.clip_value is not None:
        old = minibatch["values"]
        near = old + (outputs["value"] - old).clamp(-hyper.clip_value, hyper.clip_value)
        error = torch.maximum(error, (near - minibatch["returns"]) ** 2)
    loss = -objective + hyper.value_weight * 0.5 * error - hyper.entropy * entropy
    loss = loss[minibatch["valid"]].mean() if "valid" in minibatch else loss.mean()
    return torch.autograd.grad(loss, flat)[0].numpy(), ratio.detach().numpy()


def policy_gradient(agent, state, minibatch, hyper, value_weight):
    """Gradient of the plain policy-gradient loss, with a value beside it."""
    flat = torch.as_tensor(state.weights).clone().requires_grad_()
    minibatch = tensors(minibatch)
    outputs = outputs_of(agent, flat, minibatch, agent.sequences)
    if agent.sequences:
        steps = ("actions", "advantages", "returns", "valid", "mask")
        minibatch = {name: minibatch[name].flatten(0, 1) for name in steps if name in minibatch}
    log_prob, entropy = log_prob_and_entropy(agent.spec.action, outputs, minibatch["actions"], minibatch.get("mask"))
    error = (outputs["value"] - minibatch["returns"]) ** 2
    loss = -minibatch["advantages"] * log_prob + value_weight * 0.5 * error - hyper.entropy * entropy
    loss = loss[minibatch["valid"]].mean() if "valid" in minibatch else loss.mean()
    return torch.autograd.grad(loss, flat)[0].numpy()


def impala_gradient(agent, state, minibatch, hyper):
    """Gradient of the V-trace actor-critic loss; targets by the definition, slot by slot."""
    flat = torch.as_tensor(state.weights).clone().requires_grad_()
    minibatch = tensors(minibatch)
    outputs = outputs_of(agent, flat, minibatch, True)
    slots, steps = minibatch["rewards"].shape
    total, count = 0.0, 0
    values = outputs["value"].reshape(slots, steps + 1)
    for slot in range(slots):
        rows = slice(slot * (steps + 1), slot * (steps + 1) + steps)
        inner = {"policy": outputs["policy"][rows]} | {n: o for n, o in outputs.items() if n == "log_std"}
        mask = minibatch["mask"][slot, :-1] if "mask" in minibatch else None
        new, entropy = log_prob_and_entropy(agent.spec.action, inner, minibatch["actions"][slot], mask)
        v, following = values[slot, :-1], values[slot, 1:].detach().clone()
        ended = minibatch["ended"][slot]
        following[ended] = minibatch["next_values"][slot][ended]
        targets, advantages = slow_vtrace(
            torch.exp(new - minibatch["log_prob"][slot]).detach().numpy(),
            minibatch["rewards"][slot].numpy(), v.detach().numpy(), following.numpy(), ended.numpy(),
            hyper.discount, hyper.trace, hyper.clip_rho, hyper.clip_c,
        )  # fmt: skip
        loss = -torch.tensor(advantages) * new + hyper.value_weight * 0.5 * (v - torch.tensor(targets)) ** 2
        loss = loss - hyper.entropy * entropy
        total, count = total + loss[minibatch["valid"][slot]].sum(), count + int(minibatch["valid"][slot].sum())
    return torch.autograd.grad(total / count, flat)[0].numpy()


def slow_vtrace(ratios, rewards, values, following, ended, discount, trace, clip_rho, clip_c):
    """v_s = V(s) + sum_t discount^(t-s) (prod c) rho_t (r_t + discount V' - V), written forwards, for one slot."""
    steps = len(rewards)
    rho, c = np.minimum(ratios, clip_rho), trace * np.minimum(ratios, clip_c)
    targets = np.array(values, dtype=np.float64)
    for s in range(steps):
        weight = 1.0
        for t in range(s, steps):
            targets[s] += weight * rho[t] * (rewards[t] + discount * following[t] - values[t])
            if ended[t]:
                break
            weight *= discount * c[t]
    later = [following[t] if ended[t] or t == steps - 1 else targets[t + 1] for t in range(steps)]
    advantages = rho * (rewards + discount * np.array(later) - values)
    return targets.astype(np.float32), advantages.astype(np.float32)


def slow_correction(agent, state, rollout, hyper):
    """Targets and advantages [T, B] of a rollout by V-trace with the present policy, slot by slot and step by step.

    An action is worth its reward and what follows: the value there, and with weight `trace` the target's correction
    of it. What follows an end is read from the agent's own columns, which other tests compare with its network.
    """
    inputs = agent.features.inputs(agent.features.unroll(rollout), {})
    seen = {f"in/{name}": np.swapaxes(array, 0, 1) for name, array in inputs.items()}
    seen |= {f"carry/{name}": array for name, array in rollout.carry.items() if not name.startswith("frames/")}
    seen = tensors({name: np.ascontiguousarray(array) for name, array in (seen | {"first": rollout.first.T}).items()})
    outputs = outputs_of(agent, torch.as_tensor(state.weights), seen, True)
    steps, slots = rollout.rewards.shape
    values = outputs["value"].detach().numpy().reshape(slots, steps + 1).T
    ended = rollout.terminated | rollout.truncated
    following = np.where(ended, agent._read(state, rollout, hyper, anew=True)["next_values"], values[1:])
    targets, advantages = np.empty((2, steps, slots), np.float32)
    for b in range(slots):
        rows = slice(b * (steps + 1), b * (steps + 1) + steps)
        inner = {"policy": outputs["policy"][rows]} | {n: o for n, o in outputs.items() if n == "log_std"}
        mask = torch.as_tensor(rollout.extras["mask"][:-1, b].copy()) if "mask" in rollout.extras else None
        new, _ = log_prob_and_entropy(agent.spec.action, inner, torch.as_tensor(rollout.actions[:, b].copy()), mask)
        ratios = np.exp(new.detach().numpy() - rollout.extras["log_prob"][:, b])
        targets[:, b], _ = slow_vtrace(
            ratios, rollout.rewards[:, b], values[:-1, b], following[:, b], ended[:, b],
            hyper.discount, hyper.trace, hyper.clip_rho, hyper.clip_c,
        )  # fmt: skip
        for t in range(steps):
            worth = following[t, b]
            if t + 1 < steps and not ended[t, b]:
                worth += hyper.trace * (targets[t + 1, b] - values[t + 1, b])
            advantages[t, b] = rollout.rewards[t, b] + hyper.discount * worth - values[t, b]
    return targets, advantages


def slow_projection(probabilities, returns, discounts, low, high):
    """Atom by atom: it moves, stops at the ends, and is split between its two neighbours."""
    rows, n = probabilities.shape
    step, found = (high - low) / (n - 1), np.zeros((rows, n))
    for row in range(rows):
        for atom in range(n):
            moved = min(max(returns[row] + discounts[row] * (low + atom * step), low), high)
            place = (moved - low) / step
            below = min(int(place), n - 2)
            found[row, below] += probabilities[row, atom] * (below + 1 - place)
            found[row, below + 1] += probabilities[row, atom] * (place - below)
    return found
