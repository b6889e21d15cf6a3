"""A teacher that sees the hidden rule: the policy, or another model, with the oracle's context in its prompts."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from msgspec import structs
from torch import Tensor

from cod_lightning.envs.base import Tools, beside
from cod_lightning.evaluation.controls import Contexts, oracle_contexts
from cod_lightning.objective.batch import Batch
from cod_lightning.rollout.asked import first_ids
from cod_lightning.training.scorers import Forward, Played, Scorer
from cod_lightning.types import Episode, EpisodeKind, Lifecycle, Pack

Prompt = Callable[[int, int, int, Sequence[int], int], Sequence[int] | None]
"""From (g, k, e) of a row of this rollout, the ids before its first response and how many follow, to those that it would begin with
if its episode were shown the context of the environment's oracle. None where there is none, or where the row does not begin as its
episode does."""


class PrivilegedScorer(Scorer):
    """A teacher that sees more: every prompt shows the context that the environment's oracle writes, in place of the agent's own.

    In solve episodes it knows the pack's hidden rule, in updates it knew that before the task; the policy sampled the tokens
    without that knowledge. Rows that do not begin as their episode does (after a summary), replayed ones, those beyond the tasks
    of the pack, and those that would no longer fit into the window have no score.

    Source: on-policy self-distillation (OPSD, arXiv 2601.18734), on-policy context distillation (arXiv 2602.12275). What differs:
    the privilege is the context that the environment's oracle writes; one sampled token stands for the whole distribution.

    Args:
        teacher: What scores these rows; null: the policy itself, with its weights as they are before the rollout's first update.
    """

    needs_oracle = True

    def __init__(self, teacher: Scorer | None = None) -> None:
        self.teacher = teacher

    def check(self, key: str, vocabulary: dict[str, int]) -> None:
        if self.teacher is not None:
            self.teacher.check(f"{key}.teacher", vocabulary)

    def num_weight_bytes(self) -> int:
        return 0 if self.teacher is None else self.teacher.num_weight_bytes()

    def rows(self, rows: Batch, played: Played) -> tuple[Batch, Bool[Tensor, " B"]]:
        """The same responses after other prompts."""
        return after(rows, OraclePrompts(played))

    def score(self, rows: Batch, forward: Forward) -> Float[Tensor, "B T"]:
        return forward(None, rows) if self.teacher is None else self.teacher.score(rows, forward)


class OraclePrompts:
    """The prompts of a rollout's episodes as they would be if each showed what the environment's oracle writes of the pack."""

    def __init__(self, played: Played) -> None:
        self.groups, self.setting = played.groups, played.setting
        self._packs: dict[int, tuple[str, Sequence[Any], Contexts]] = {}
        """The rules, the tools and the oracle's contexts of packs that were asked for."""
        self._found: dict[tuple[int, int, int], tuple[int, ...] | None] = {}

    def __call__(self, g: int, k: int, e: int, begin: Sequence[int], num_after: int) -> Sequence[int] | None:
        """For a row that so begins; None where it does not with the episode's first prompt, or would not fit the window.

        What stands behind that prompt stays: earlier turns, where a template rewrites history.
        """
        life = self.groups[g].lifecycles[k]
        episode = life.episodes[e]
        first = episode.turns[0].new_ids
        if tuple(begin[: len(first)]) != first:
            return None
        if (g, k, e) not in self._found:
            self._found[g, k, e] = self._prompt(g, life, episode)
        found, window = self._found[g, k, e], self.setting.sampler.window
        rest = begin[len(first) :]
        return None if found is None or len(found) + len(rest) + num_after > window else (*found, *rest)

    def _prompt(self, g: int, life: Lifecycle, episode: Episode) -> tuple[int, ...] | None:
        mechanism, chat = self.setting.mechanism, self.setting.sampler.chat
        rules, tools, contexts = self._packs.get(g) or self._packs.setdefault(g, self._of_pack(self.groups[g].pack))
        if (state := next(iter(contexts[episode.position :]), None)) is None:
            return None
        if episode.kind is not EpisodeKind.UPDATE:
            observation = episode.turns[0].observation
            return first_ids(chat, mechanism.prepare(state, rules, observation).system, observation, tools)
        solved = next(one for one in life.solves if one.position == episode.position)
        text = mechanism.text(state)
        seen = structs.replace(solved, context_before=text, context_after=text, state_before=state, state_after=state)
        asking = mechanism.update(state, rules, seen, chat)
        opening = next(asking)
        assert not isinstance(opening, str), "an update begins with its opening messages"
        asking.close()
        return chat.opening(chat.prefixed(opening))

    def _of_pack(self, pack: Pack) -> tuple[str, Sequence[Any], Contexts]:
        world = copy.deepcopy(self.setting.env)
        world.reset(options={"task": pack.tasks[0]})
        rules, tools = world.rules, beside(world, Tools).schemas
        world.close()
        return rules, tools, oracle_contexts(self.setting.env, [pack], self.setting.mechanism)[0]


def after(rows: Batch, prompt: Prompt) -> tuple[Batch, Bool[Tensor, " B"]]:
    """The same responses after these prompts, and which rows have one."""
    first = [row.index(True) for row in rows.action_mask.tolist()]
    ids = [row[:length] for row, length in zip(rows.token_ids.tolist(), rows.lengths.tolist(), strict=True)]
    known, begins = torch.ones(len(rows), dtype=torch.bool), []
    for b, place in enumerate(rows.place.tolist()):
        g, k, e = place
        begin, num_after = ids[b][: first[b]], len(ids[b]) - first[b]
        found = None if rows.is_replayed[b] else prompt(g, k, e, begin, num_after)
        known[b] = found is not None
        begins.append(begin if found is None else list(found))
    rest = [(row[at:], mask[at : len(row)]) for row, mask, at in zip(ids, rows.action_mask, first, strict=True)]
    lengths = rows.lengths.new_tensor([len(begin) + len(row) for begin, (row, _) in zip(begins, rest, strict=True)])
    token_ids = rows.token_ids.new_zeros(len(rows), int(lengths.max()) if len(rows) else 0)
    action_mask = torch.zeros_like(token_ids, dtype=torch.bool)
    for b, (begin, (row, mask)) in enumerate(zip(begins, rest, strict=True)):
        token_ids[b, : lengths[b]] = torch.tensor(begin + row)
        action_mask[b, len(begin) : lengths[b]] = mask
    none = torch.zeros_like(token_ids, dtype=rows.behaviour_logprobs.dtype)
    return replace(
        rows,
        token_ids=token_ids,
        action_mask=action_mask,
        lengths=lengths,
        behaviour_logprobs=none,
        old_logprobs=None,
        scores={},
    ), known
