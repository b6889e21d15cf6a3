"""A teacher behind a vLLM server, which is asked for the log-probs of exact ids."""

import asyncio
import json
import math
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from cod_lightning.clients.access import checked_address, key_of
from cod_lightning.clients.http import Bounds, Connections, ask, ask_once
from cod_lightning.errors import ConfigError, in_a_line
from cod_lightning.objective.batch import Batch
from cod_lightning.ranges import Count, Positive
from cod_lightning.training.scorers import SAME_TOKENIZER, Forward, Scorer

_MOST_BYTES = 2**24
"""Of an answer."""
_MOST_SAMPLED = 1000
"""Tokens of the vocabulary whose ids a server is asked for."""
_SCORED = {"max_tokens": 1, "temperature": 0.0, "prompt_logprobs": 0}
"""What makes a completion the log-probs of its prompt."""


class VLLMScorer(Scorer):
    """A vLLM server's log-probs of prompt tokens; the server reads exact ids (`/v1/completions`).

    Source: "On-Policy Distillation" (Thinking Machines Lab, October 2025), where a service gives the teacher's log-probs of what
    the student sampled. What differs: a row without an answer goes without the teacher, and the run goes on.

    The server needs a window one token longer than the policy's: it insists on sampling a token.

    Args:
        url: Address of the server, as in http://host:8000.
        model: Name under which the server serves the teacher.
        api_key_variable: Environment variable that holds the key; empty or unset sends none.
        timeout_s: For the log-probs of one row.
        max_concurrent: Rows in flight.
    """

    def __init__(
        self,
        url: str,
        model: str,
        api_key_variable: str = "VLLM_API_KEY",
        timeout_s: Positive = 60.0,
        max_concurrent: Count = 32,
    ) -> None:
        expected = "an address that begins with http:// or https://, without credentials"
        self.url = checked_address(url, "model.scorers.url", expected, "As in http://host:8000.")
        self.model, self.api_key_variable = model, api_key_variable
        self.timeout_s = timeout_s
        self._connections = Connections(max_concurrent, timeout_s)

    def check(self, key: str, vocabulary: dict[str, int]) -> None:
        """The server is there, and the tokens that it makes of a sample of the vocabulary have the same ids here."""
        tokens = sorted(vocabulary, key=lambda token: vocabulary[token])
        sample = " ".join(tokens[:: max(1, len(tokens) // _MOST_SAMPLED)])
        body = {"prompt": sample, "add_special_tokens": False, "return_token_strs": True}
        try:
            answer = json.loads(ask_once("POST", f"{self.url}/tokenize", self._content(body), self._bounds()))
            pairs = list(zip(answer["token_strs"], answer["tokens"], strict=True))
            assert pairs, "no tokens"
        except ConfigError:
            raise
        except Exception as error:
            expected = f"a vLLM server with the model {self.model} ({in_a_line(error, 200) or type(error).__name__})"
            raise ConfigError(f"{key}.url", self.url, expected, "Start it: vllm serve MODEL.") from None
        if differing := [(token, number) for token, number in pairs if vocabulary.get(token) != number]:
            token, number = differing[0]
            differ = f"{len(differing):,} of {len(pairs):,} tokens differ"
            example = f"{token!r:.40} (id {vocabulary.get(token)} here, {number} there)"
            expected = f"a model with the policy's tokenizer; {differ}, for example {example}"
            raise ConfigError(f"{key}.model", self.model, expected, SAME_TOKENIZER)

    def score(self, rows: Batch, forward: Forward) -> Float[Tensor, "B T"]:
        """Row by row, as many at a time as may be; a row whose answer is late, broken or of other tokens has none."""
        scores = torch.full(rows.token_ids.shape, math.nan)
        ids = [row[:length].tolist() for row, length in zip(rows.token_ids, rows.lengths.tolist(), strict=True)]
        for row, found in enumerate(asyncio.run(self._all(ids))):
            if found is not None:
                scores[row, 1 : len(found)] = torch.tensor(found[1:])
        return scores.to(rows.behaviour_logprobs).masked_fill(~rows.action_mask, 0.0)

    async def _all(self, ids: Sequence[list[int]]) -> list[list[float] | None]:
        pool, bounds, url = await self._connections.pool(self.url), self._bounds(), f"{self.url}/v1/completions"

        async def one(row: list[int]) -> list[float] | None:
            async with pool.slots:
                try:
                    answer = await ask(pool.http, "POST", url, self._content(_SCORED | {"prompt": row}), bounds)
                    return _prompt_logprobs(json.loads(answer), row)
                except Exception:  # whatever an answer does to the code that reads it costs its row
                    return None

        return list(await asyncio.gather(*map(one, ids)))

    def _content(self, body: dict[str, Any]) -> bytes:
        return json.dumps({"model": self.model} | body).encode()

    def _bounds(self) -> Bounds:
        key = key_of(self.api_key_variable, "model.scorers.api_key_variable")
        return Bounds(key, self.timeout_s, _MOST_BYTES)


def _prompt_logprobs(answer: Any, ids: Sequence[int]) -> list[float]:
    """The log-prob of each prompt token, NaN for the first. Raises `ValueError` where the answer is not about these ids."""
    try:
        listed = answer["choices"][0]["prompt_logprobs"]
        found = [math.nan] + [float(one[str(i)]["logprob"]) for i, one in zip(ids[1:], listed[1:], strict=True)]
    except (KeyError, IndexError, TypeError) as error:
        raise ValueError(f"no log-probs of these tokens ({type(error).__name__})") from None
    if not all(value <= 1e-3 for value in found[1:]):
        raise ValueError("a log-prob above 0")
    return found
