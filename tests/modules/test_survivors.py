"""What is trained on when some lifecycles fail: survivors compared with survivors, divided by the survivors' tokens."""

import math

import pytest
import torch

from cod_lightning.callbacks.weight_sync import WeightSync
from cod_lightning.credit.returns import EpisodeCredit, TaskCredit
from cod_lightning.engines.transformers import TransformersEngine
from tests.credit_tables import cube
from tests.small_fit import small_fit

FAILS = {(0, 0, 1), (0, 1, 2), (0, 3, 0), (1, 2, 1)}
"""(pack, sibling, episode) at which an engine fails: pack 0 keeps one of four lifecycles, pack 1 three."""


@pytest.fixture
def _flaky(monkeypatch):
    generate = TransformersEngine.generate

    async def fails_by_plan(self, request):
        if request.dialogue.endswith(tuple(f"/{pack}#{sibling}.{episode}" for pack, sibling, episode in FAILS)):
            raise ConnectionError("gone")
        return await generate(self, request)

    monkeypatch.setattr(TransformersEngine, "generate", fails_by_plan)


def rewards_of(rewards, g, k):
    """Rewards of the three episodes; None from the failure on."""
    failed_at = next((e for pack, sibling, e in FAILS if (pack, sibling) == (g, k)), 3)
    given = rewards[g, k]
    return [float(reward) if e < failed_at else None for e, reward in enumerate(given)]


def mean_to_go(rewards, e):
    """`EpisodeCredit` by definition: the mean of an episode's own reward and the later task's; None if one is missing."""
    needed = [rewards[e]] if e == 2 else [rewards[e], rewards[2]]
    return None if None in needed else sum(needed) / len(needed)


def own(rewards, e):
    """`TaskCredit` by definition."""
    return rewards[e]


@pytest.mark.usefixtures("_flaky")
@pytest.mark.parametrize(("rule", "credited"), [(EpisodeCredit(), mean_to_go), (TaskCredit(), own)])
def test_gradients_come_from_survivors_only_and_are_divided_by_their_tokens(tmp_path, rule, credited):
    own = {"gradient_clip_val": None, "reweight": None, "credit": rule}
    module, _, updates, _, credits = small_fit(
        tmp_path, WeightSync(), seed=9, lr=1e-12, module=own, val_packs=4, trainer={"max_steps": 1}
    )
    batch, num_tokens, total, packs = updates.batches[0], 0, torch.zeros(()), set()
    table = credits[0].table
    module.model.zero_grad()
    for row, (g, k, e) in enumerate(batch.place.tolist()):
        siblings = [credited(rewards_of(cube(table.rewards, table), g, other), e) for other in range(4)]
        known = [value for value in siblings if value is not None]
        if siblings[k] is None or len(known) < 2:
            continue
        advantage = siblings[k] - sum(known) / len(known)
        num_tokens += int(batch.action_mask[row].sum())
        packs |= {g} if advantage else set()
        ids = batch.token_ids[row, : batch.lengths[row]]
        logprobs = torch.log_softmax(module.model(ids[None]).logits[0], dim=-1)
        for t in batch.action_mask[row].nonzero().flatten().tolist():
            total = total - advantage * logprobs[t - 1, ids[t]]
    (total / num_tokens).backward()
    expected = math.sqrt(sum(float((p.grad**2).sum()) for p in module.model.parameters() if p.grad is not None))
    assert packs == ({1} if credited is mean_to_go else {0, 1}), "no signal to look at"
    assert num_tokens < int(batch.action_mask.sum())
    assert updates.values[0]["train/gradient_norm"] == pytest.approx(expected, rel=1e-4)
