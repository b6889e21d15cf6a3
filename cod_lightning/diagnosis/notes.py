"""How far what a policy writes down depends on what it saw: every note scored behind every prompt."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel

from cod_lightning.errors import DataError
from cod_lightning.forward.attention import use_grouped_attention
from cod_lightning.forward.last_layer import output_layer
from cod_lightning.forward.row_tree import keeps_keys_and_values
from cod_lightning.objective.logprobs import action_logprobs
from cod_lightning.types import Episode

_MOST_NOTES = 24
"""Notes that are compared; each is scored behind the prompt of each."""
_MOST_TOKENS = 2**17
"""Of prompts and notes, as often as they are scored; fewer notes are compared where they have more."""


@dataclass(frozen=True, slots=True)
class Dependence:
    """Of n notes and the n prompts that they were written behind, of different packs."""

    information: float
    """Mean nats by which a note is likelier behind its own prompt than behind the n in the mean; between 0 and ln n for notes
    that are sampled (a single note can be less likely than the mean)."""
    retrieved: float
    """Share of the notes whose own prompt makes them likeliest, ties included."""
    num_notes: int


def dependence(logprobs: Float[Tensor, "n n"]) -> Dependence:
    """Of log p(note i | prompt j) in nats.

    I = mean_i [ log p(i | i) - log mean_j p(i | j) ], the diagonal against the mean of its row: what a note tells of its prompt
    (RAGEN-2, arXiv 2604.06268).

    >>> dependence(torch.tensor([[0.0, -100.0], [-100.0, 0.0]]))
    Dependence(information=0.693..., retrieved=1.0, num_notes=2)
    """
    own, num = logprobs.double().diagonal(), len(logprobs)
    mean = logprobs.double().logsumexp(dim=1) - math.log(num)
    best = logprobs.double().amax(dim=1)
    return Dependence(float((own - mean).mean()), float((own >= best - 1e-9).double().mean()), num)


def of_notes(model: PreTrainedModel, updates: Sequence[Episode]) -> Dependence | None:
    """Of the first turns of these update episodes; None where fewer than two have any.

    Raises `DataError` for token ids that the model lacks.
    """
    turns = [one.turns[0] for one in updates if one.turns and one.turns[0].new_ids and one.turns[0].action_ids]
    sizes = accumulate(len(turn.new_ids) + _MOST_NOTES * len(turn.action_ids) for turn in turns)
    turns = [turn for turn, size in zip(turns, sizes, strict=True) if size <= _MOST_TOKENS][:_MOST_NOTES]
    if len(turns) < 2:
        return None
    num_ids = int(model.get_input_embeddings().weight.shape[0])  # pyright: ignore
    if wrong := [i for turn in turns for i in (*turn.new_ids, *turn.action_ids) if not 0 <= i < num_ids]:
        raise DataError(f"lifecycles/train.jsonl has token id {wrong[0]}, and the last checkpoint {num_ids:,} ids.")
    use_grouped_attention(model)
    notes = [turn.action_ids for turn in turns]
    columns = [_scored(model, prompt.new_ids, notes) for prompt in turns]
    return dependence(torch.stack(columns, dim=1))


@torch.no_grad()
def _scored(model: PreTrainedModel, prompt: Sequence[int], notes: Sequence[Sequence[int]]) -> Float[Tensor, " n"]:
    """Log-prob of each note behind one prompt."""
    cache, before = None, list(prompt)
    if len(prompt) > 1 and keeps_keys_and_values(model):  # the prompt goes through the model once
        ids = torch.tensor([before[:-1]], device=model.device)
        cache, before = model.base_model(input_ids=ids, use_cache=True).past_key_values, before[-1:]
        cache.batch_repeat_interleave(len(notes))
    rows = [torch.tensor([*before, *note], device=model.device) for note in notes]
    padded = pad_sequence(rows, batch_first=True, padding_value=-1)
    ids, mask = padded.clamp_min(0), padded >= 0
    mask[:, : len(before)] = False
    found = model.base_model(input_ids=ids, past_key_values=cache, use_cache=cache is not None)
    logprobs, _ = action_logprobs(found.last_hidden_state, output_layer(model), ids, mask)
    return logprobs.sum(dim=1).cpu()
