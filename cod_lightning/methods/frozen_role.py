"""One role is played by a policy that is not trained."""

from dataclasses import replace
from typing import Any, Literal

import torch

from cod_lightning.engines.transformers import TransformersEngine
from cod_lightning.errors import ConfigError
from cod_lightning.models.base import Policy
from cod_lightning.models.pretrained import read_model
from cod_lightning.models.tiny import TinyPolicy
from cod_lightning.rollout.dialogue import Sampler
from cod_lightning.rollout.setting import OtherPlayer
from cod_lightning.training.scorers import CheckpointScorer
from cod_lightning.types import EpisodeKind

_FROZEN = "data.frozen"


class FrozenRole(OtherPlayer):
    """Episodes of one kind are sampled by a policy that stays as it is, in training, validation and suites.

    With `model.trained_kinds` that name the other kind, one role is trained and the other is not. Without a frozen role both have
    the same weights, and what trains one may change what the other does. `deploy` plays both roles with the trained policy.

    Source: SkillOS (arXiv 2605.06614), which trains the curator of skills alone, for an executor that is frozen. What differs:
    either role can be frozen, or a proposer's, whatever the context mechanism.

    Args:
        kind: The episodes that it plays.
        path: Folder or hub name in Hugging Face form, with the policy's tokenizer; `export` makes one of a run's checkpoint.
            Null: the policy that training begins with, such as the warm start.
    """

    def __init__(self, kind: Literal["solve", "update", "write"], path: str | None = None) -> None:
        self.kind, self.path, self.engine = EpisodeKind(kind), path, TransformersEngine()

    def check(self, vocabulary: dict[str, int]) -> None:
        if self.path is not None:
            CheckpointScorer(self.path).check(_FROZEN, vocabulary)

    def sampler(self, trained: Sampler, policy: Policy, stop_ids: frozenset[int], device: Any = "cpu") -> Sampler:
        """Weights are loaded at the first call.

        Its turns carry the trained policy's version, which keys their noise: these weights are the same in every version.
        """
        if self.engine.policy_version < 0:
            if self.path is None and isinstance(policy, TinyPolicy) and policy.weights is None:
                expected = "the folder of a policy, since this training begins with random numbers"
                raise ConfigError(f"{_FROZEN}.path", None, expected, "Name one, or a warm_start.")
            with torch.random.fork_rng(devices=[]):
                tokenizer: Any = trained.chat.tokenizer
                model: Any = policy.model(tokenizer) if self.path is None else read_model(self.path, f"{_FROZEN}.path")
            self.engine.bind(model.to(device), stop_ids, trained.window)
        self.engine.policy_version = trained.policy_version
        return replace(trained, engine=self.engine)
