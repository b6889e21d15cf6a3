"""What an update had of an episode, advantage and log-probs of the training forward, as JSON lines beside the transcript.

The transcript is written as soon as the lifecycle has been played and holds the sampler's log-probs; these are known only
once an update trains on the episode. One line is one episode:

    {"schema": 2, "step": 40, "pack": "lake/train/17", "sibling": 3, "episode": 2, "updates": 1, "digest": 9, "advantage": 0.5,
     "logprobs": [...]}
"""

import json
import math
from array import array
from dataclasses import asdict, dataclass
from itertools import chain

from cod_lightning.engines.base import digest
from cod_lightning.errors import DataError
from cod_lightning.types import Episode

SCHEMA = 2
"""Rises whenever a line of an earlier version would be misread."""
NAME = "train_logprobs"
"""Of the files in `lifecycles/`: `train_logprobs.jsonl` belongs to `train.jsonl`."""
_DIGITS = 7
"""Behind the point; float32 holds no more of a log-prob below -1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyLogprobs:
    """Log-probs of one episode's action tokens, all turns in a row, under the policy as an update found it."""

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
    logprobs: "array[float]"
    """nats"""


def dump(record: PolicyLogprobs) -> str:
    """One line, without its newline."""
    plain = {"schema": SCHEMA, **asdict(record), "logprobs": [round(value, _DIGITS) for value in record.logprobs]}
    return json.dumps(plain, separators=(",", ":"))


def load(line: str | bytes) -> PolicyLogprobs:
    """`dump` back again. Raises `DataError`, in which the reason comes first."""
    try:
        plain = json.loads(line)
        schema = plain.pop("schema")
        if schema != SCHEMA:
            raise DataError(f"schema {schema!r:.20}, not {SCHEMA}")
        values = array("f", plain.pop("logprobs"))
        advantage = float(plain["advantage"])
        if not all(map(math.isfinite, (*values, advantage))):
            raise ValueError("not finite")
        numbers = {key: int(plain[key]) for key in ("step", "sibling", "episode", "updates", "digest")}
        return PolicyLogprobs(pack=str(plain["pack"]), advantage=advantage, logprobs=values, **numbers)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise DataError("torn or damaged") from error


def action_digest(episode: Episode) -> int:
    """`digest` of all that the policy sampled in the episode."""
    return digest(chain.from_iterable(turn.action_ids for turn in episode.turns))
