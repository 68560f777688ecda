"""Reports as the roles make them, with only what a test cares about spelt out."""

from __future__ import annotations

import pytest

START = 1000.0


class Reports:
    def actor(self, returns=(), at=START + 1, steps=100, actor=0, seconds=None, lengths=None):
        lengths = lengths or [10] * len(returns)
        return {
            "kind": "actor", "actor": actor, "epoch": 0, "sequence": 0, "steps": steps, "policy": [0, 1], "at": at,
            "episodes": [[slot, value, lengths[slot]] for slot, value in enumerate(returns)],
            "seconds": seconds or {"env": 0.1, "act": 0.2, "record": 0.05, "wait": 0.15},
        }  # fmt: skip

    def update(
        self,
        update=1,
        steps=100,
        at=START + 1,
        lag=1.0,
        queue=2,
        stale=0,
        epoch=0,
        seconds=None,
        lag_max=2,
        corrected=0,
        **lesson,
    ):
        return {
            "kind": "update", "update": update, "version": [epoch, update], "steps": steps, "stale": stale,
            "samples": 4 * steps, "lag": lag, "lag_max": lag_max, "corrected": corrected, "queue": queue, "at": at,
            "hyper": {"learning_rate": 0.001, "entropy": 0.01},
            "lesson": lesson or {"policy_loss": -0.02, "value_loss": 3.0, "entropy": 0.6, "approx_kl": 0.01,
                                 "old_approx_kl": 0.011, "clipfrac": 0.2, "explained_variance": 0.5, "grad_norm": 0.4},
            "seconds": seconds or {"wait": 0.1, "prepare": 0.1, "gradients": 0.7, "apply": 0.1},
        }  # fmt: skip

    def evaluation(self, steps=100, mean=50.0, at=START + 2):
        return {
            "kind": "evaluation", "steps": steps, "version": [0, 1], "episodes": 3, "mean": mean, "iqm": mean,
            "low": mean - 5, "high": mean + 5, "returns": [mean] * 3, "at": at,
        }  # fmt: skip

    def event(self, text="actor-0 died (killed by signal 9); replaced", level="warning", at=START + 3, **more):
        return {"kind": "event", "level": level, "text": text, "at": at, **more}


@pytest.fixture
def reports():
    return Reports()
