"""Models that are not trained: their log-probs of given tokens (the policy of the beginning, a checkpoint, a server).

They are computed once for each rollout, before its first update, and travel with its rows: a run that is resumed in the middle of a
rollout has them from the checkpoint. A token without a score is NaN: terms leave it out and count it.
"""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from transformers import PreTrainedModel

from cod_lightning.errors import ConfigError, ScorerFailed, in_a_line
from cod_lightning.forward.attention import use_grouped_attention
from cod_lightning.objective.batch import Batch
from cod_lightning.rollout.setting import Setting
from cod_lightning.types import Group

Forward = Callable[[PreTrainedModel | None, Batch], Float[Tensor, "B T"]]
"""Log-probs of a batch's action tokens under a model, by the training forward; None is the policy as it is."""

MOST_MISSING = 0.5
"""Share of a rollout's action tokens that a scorer may leave without a score; beyond, the run ends."""

SAME_TOKENIZER = "Choose a teacher of the same family, or of the same run."
"""The remedy where a teacher has other tokens."""


@dataclass(frozen=True, slots=True)
class Played:
    """What the rows of a rollout were made of."""

    groups: Mapping[int, Group]
    """This rank's, by their g in the credit table."""
    setting: Setting
    """In which they were played."""


class Scorer(ABC):
    """A model that is asked and not trained."""

    needs_oracle: bool = False
    """Whether it needs contexts of the environment's oracle, which not every environment has."""

    def check(self, key: str, vocabulary: dict[str, int]) -> None:
        """Raise `ConfigError` unless it can score tokens of this vocabulary; runs before any training. `key` is its own."""

    def num_weight_bytes(self) -> int:
        """Bytes of its weights in this process, for the memory plan."""
        return 0

    def rows(self, rows: Batch, played: Played) -> tuple[Batch, Bool[Tensor, " B"]]:
        """The rows that it is asked about in place of those of a rollout, with the same action tokens; and which of them at all."""
        return rows, torch.ones(len(rows), dtype=torch.bool)

    @abstractmethod
    def score(self, rows: Batch, forward: Forward) -> Float[Tensor, "B T"]:
        """Log-probs (nats) of the rows' action tokens; NaN for those that it gives none."""


class CheckpointScorer(Scorer):
    """A checkpoint of any size whose tokenizer is the policy's.

    Args:
        path: Folder or hub name in Hugging Face form; `export` makes one of a run's checkpoint.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.weights: PreTrainedModel | None = None
        """Once they are loaded."""

    def check(self, key: str, vocabulary: dict[str, int]) -> None:
        """The same tokens with the same ids."""
        if (Path(self.path).is_file() and not self.path.endswith(".gguf")) or self.path.endswith(".ckpt"):
            expected = "a folder or hub name in Hugging Face form or a GGUF file, not a run's checkpoint"
            remedy = f"Make one: python -m cod_lightning export --ckpt_path {self.path} --out policies/teacher"
            raise ConfigError(f"{key}.path", self.path, expected, remedy)
        from cod_lightning.models.pretrained import read_tokenizer

        own = read_tokenizer(self.path, f"{key}.path").get_vocab()
        if differing := sorted(set(own.items()) ^ set(vocabulary.items())):
            token = differing[0][0]
            example = f"{token!r:.40} (id {vocabulary.get(token)} here, {own.get(token)} there)"
            expected = (
                f"a checkpoint with the policy's tokenizer; {len(differing):,} tokens differ, for example {example}"
            )
            raise ConfigError(f"{key}.path", self.path, expected, SAME_TOKENIZER)

    def num_weight_bytes(self) -> int:
        """Of the files in its folder; 0 where that is not on this machine."""
        from cod_lightning.models.gguf.cache import checkpoint_folder

        folder = checkpoint_folder(self.path, "model.scorers.path")
        return sum(file.stat().st_size for file in Path(folder).glob("*.safetensors"))

    def score(self, rows: Batch, forward: Forward) -> Float[Tensor, "B T"]:
        """By the training forward over its weights, which are loaded at the first call."""
        device = rows.token_ids.device
        if self.weights is None:
            from cod_lightning.models.pretrained import read_model

            with torch.random.fork_rng(devices=[]):
                found = read_model(self.path, "model.scorers.path")
            use_grouped_attention(found)  # torch's kernel knows no caps, as Gemma 2 has them
            self.weights = found.eval().requires_grad_(False).to(device)  # pyright: ignore[reportArgumentType]
        return forward(self.weights, rows)


@contextlib.contextmanager
def scoring(name: str) -> Iterator[None]:
    """Whatever a scorer raises ends the run in one line; what it has no answer for is NaN and ends nothing."""
    try:
        yield
    except (ConfigError, ScorerFailed):
        raise
    except Exception as error:
        raised = f"model.scorers.{name} raised {type(error).__name__}: {in_a_line(error, 300)}"
        raise ScorerFailed(f"{raised}. Remove the cause and go on with --ckpt_path auto.") from error


def check_missing(name: str, num_missing: int, num_tokens: int) -> None:
    """Raise `ScorerFailed` where too many action tokens of a rollout have no score."""
    if num_missing > MOST_MISSING * num_tokens:
        raise ScorerFailed(
            f"model.scorers.{name} gave no log-prob for {num_missing:,} of {num_tokens:,} action tokens of a rollout, more than "
            f"{MOST_MISSING:.0%}. See that it serves, and go on with --ckpt_path auto."
        )
