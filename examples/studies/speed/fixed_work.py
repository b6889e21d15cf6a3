"""A world without content in which every episode takes as many turns and tokens as every other: for measuring, not for learning."""

import zlib
from dataclasses import dataclass
from functools import cache
from typing import Any

from cod_lightning.engines.transformers import TransformersEngine
from cod_lightning.envs.base import TextEnv, Vocabulary, text_space
from cod_lightning.seeds import derive_seed
from cod_lightning.types import EpisodeStatus, Pack, Split, Task

WORDS = tuple(f"w{i}" for i in range(64))
RULE_WORDS, OBSERVATION_WORDS = 16, 6
LONG = 2_000
"""Tokens of a long dialogue."""


@dataclass(frozen=True)
class Scale:
    """A step of that size."""

    sizes: dict[str, int]
    """Of the weights, by their names in `TinyPolicy`; also the window."""
    dtype: str
    packs: int
    siblings: int
    tokens: int
    """Sampled in a turn."""
    observation_words: int
    micro_batches: tuple[int, ...]
    """In dialogues, of the other side; ours has as many tokens as the first."""

    @property
    def token_budget(self) -> int:
        """Most tokens of a micro-batch of ours."""
        return 8_192 if self.dtype == "float32" else self.micro_batches[0] * self.sizes["window"]


def scale_of(turns: int, *, long: bool) -> Scale:
    """256 short dialogues of the quick start's policy; or 8 of 2,000 tokens, whatever the turns, of 25 million parameters."""
    if not long:
        return Scale({"num_layers": 2, "window": 512}, "float32", 32, 8, 4, OBSERVATION_WORDS, (256, 128, 64))
    tokens = LONG // 6 // turns
    sizes = {"hidden_size": 512, "num_layers": 8, "num_heads": 8, "num_kv_heads": 4, "intermediate_size": 1536}
    return Scale(sizes | {"window": LONG + 200}, "bfloat16", 1, 8, tokens, LONG // turns - tokens - 4, (8,))


@cache
def text(count: int, *identity: object) -> str:
    """That many words, fixed by the identity."""
    return " ".join(WORDS[derive_seed(*identity, i) % len(WORDS)] for i in range(count))


def reward_of(answer: str) -> float:
    """0 or 1, by the answer's bytes."""
    return float(zlib.crc32(answer.encode()) & 1)


class FixedVocabulary(Vocabulary["FixedWork"]):
    """The words of the words."""

    def words(self) -> tuple[str, ...]:
        """All of them."""
        return WORDS


class FixedWork(TextEnv):
    """Any answer is taken; after `max_turns` of them the task ends."""

    companions = (FixedVocabulary,)

    observation_space = action_space = text_space()

    def __init__(self, max_turns: int, observation_words: int = OBSERVATION_WORDS) -> None:
        self.max_turns, self.observation_words, self.name = max_turns, observation_words, "fixed-work"
        self._turn, self._task, self._reward = 0, "", 0.0

    @property
    def rules(self) -> str:
        """The same words for everybody."""
        return text(RULE_WORDS, "rules")

    @property
    def success(self) -> bool:
        """Half of the time."""
        return self._reward > 0

    @property
    def status(self) -> EpisodeStatus:
        """Nothing else happens."""
        return EpisodeStatus.COMPLETED

    def sample_pack(self, *, split: Split, index: int, num_tasks: int, seed: int = 0) -> Pack:
        """Tasks differ by their words."""
        name = f"{self.name}/{split}/{seed}/{index}"
        tasks = tuple(
            Task(id=str(n), seed=derive_seed(name, n), spec=f"{name}/{n}", repeat=False) for n in range(num_tasks)
        )
        return Pack(id=name, split=split, world_seed=derive_seed(name), tasks=tasks)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """The first words."""
        super().reset(seed=seed)
        self._turn, self._task = 0, str(options["task"].spec) if options else ""
        return text(self.observation_words, self._task, 0), {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """The next words."""
        self._turn += 1
        over = self._turn >= self.max_turns
        self._reward = reward_of(action) if over else 0.0
        return text(self.observation_words, self._task, self._turn), self._reward, over, False, {}


class Endless(TransformersEngine):
    """Never stops before the last token that it may sample: every turn has as many."""

    def bind(self, model: Any, stop_ids: Any, window: int | None = None) -> None:
        super().bind(model, (), window)
