"""What an update had of an episode, advantage and log-probs of the training forward, as JSON lines beside the transcript.

The transcript is written as soon as the lifecycle has been played and holds the sampler's log-probs; these are known only
once an update trains on the episode. One line is one episode:

    {"schema": 2, "step": 40, "pack": "lake/train/17", "sibling": 3, "episode": 2, "updates": 1, "digest": 9, "advantage": 0.5,
     "logprobs": [...]}
"""

from itertools import chain

import msgspec
from msgspec import Struct

from cod_lightning.engines.base import digest
from cod_lightning.errors import DataError
from cod_lightning.types import Episode

SCHEMA = 2
"""Rises whenever a line of an earlier version would be misread."""
NAME = "train_logprobs"
"""Of the files in `lifecycles/`: `train_logprobs.jsonl` belongs to `train.jsonl`."""


class PolicyLogprobs(Struct, frozen=True, kw_only=True):
    """Log-probs of one episode's action tokens, all turns in a row, under the policy as an update found it."""

    schema: int = SCHEMA
    step: int
    """Optimizer updates before the rollout, as in the transcript."""
    pack: str
    sibling: int
    episode: int
    """Index e in 0..E-1."""
    updates: int
    """Optimizer updates between the rollout and this forward pass."""
    digest: int
    """CRC-32 of the action ids: a run that was resumed may have played the same episode again, with other words."""
    advantage: float
    """Mean over the action tokens."""
    logprobs: list[float]
    """nats"""


def dump(record: PolicyLogprobs) -> str:
    """One line, without its newline."""
    return msgspec.json.encode(record).decode()


def load(line: str | bytes) -> PolicyLogprobs:
    """`dump` back again. Raises `DataError`, in which the reason comes first."""
    try:
        record = msgspec.json.decode(line, type=PolicyLogprobs)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DataError("torn or damaged") from error
    if record.schema != SCHEMA:
        raise DataError(f"schema {record.schema}, not {SCHEMA}")
    return record


def action_digest(episode: Episode) -> int:
    """`digest` of all that the policy sampled in the episode."""
    return digest(chain.from_iterable(turn.action_ids for turn in episode.turns))
