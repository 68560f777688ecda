"""Several agents as one, in a user's hands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millstream.agents.ensemble import Ensemble
from millstream.core.errors import ConfigError
from millstream.core.ports import Agent
from millstream.library.agent import DistributedAgent


class AgentEnsemble(DistributedAgent):
    """`num_members` agents of one algorithm that learn side by side and decide together.

    While training, each leads its share of the environments. Judged, they vote, or take the mean of continuous actions;
    how much they disagree comes with each decision, and as a mean with `statistics`.
    """

    by_name = False

    def __init__(self, environment: Any, algo: str = "ppo", num_members: int = 3, **settings: Any):
        if num_members < 2:
            raise ConfigError(f"an ensemble has at least 2 members, got {num_members}")
        self.num_members = num_members
        super().__init__(environment, algo, **settings)

    def statistics(self) -> Mapping[str, Any]:
        """Counts of learning, and how much members disagreed when they were last asked."""
        ensemble: Ensemble = self.algorithm
        return {**super().statistics(), "members": self.num_members, "disagreement": ensemble.disagreement}

    def _algorithm(self, **changes: Any) -> Agent[Any]:
        single = super()._algorithm
        return Ensemble([single(**changes) for _ in range(self.num_members)])
