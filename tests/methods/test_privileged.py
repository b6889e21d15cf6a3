"""A teacher that sees more scores the sampled tokens after other prompts."""

import pytest
import torch

from cod_lightning.methods.privileged import PrivilegedScorer
from cod_lightning.models import TinyPolicy
from cod_lightning.training.scorers import CheckpointScorer
from tests.stubs import WordWorld
from tests.training.test_scorers import LENGTHS, TINY, by_definition, forward, rows


def test_a_teacher_that_sees_more_scores_the_same_responses_after_other_prompts(tmp_path):
    policy = TinyPolicy(**TINY)
    torch.manual_seed(0)
    model = policy.model(policy.tokenizer(WordWorld().words())).eval()
    batch, others = rows(), {0: [7, 8, 9], 1: [5], 2: None, 3: [4, 4, 4, 4, 4, 4]}
    model.save_pretrained(tmp_path)
    for teacher in (PrivilegedScorer(), PrivilegedScorer(CheckpointScorer(str(tmp_path)))):
        seen, known = teacher.rows(batch, lambda g, k, e, ids: others[g])
        assert known.tolist() == [True, True, False, True]
        found = teacher.score(seen, lambda own, part: forward(model if own is None else own, part))
        for row, begin in others.items():
            ids, at = batch.token_ids[row, : LENGTHS[row]].tolist(), int(batch.action_mask[row].int().argmax())
            begin = ids[:at] if begin is None else begin
            expected = by_definition(model, begin + ids[at:])[len(begin) - 1 :]
            assert found[row][seen.action_mask[row]].tolist() == pytest.approx(expected, abs=1e-5)
            assert batch.action_mask[row].sum() == seen.action_mask[row].sum()


def test_a_rank_without_rows_asks_a_teacher_that_sees_more_about_none():
    none = rows().rows(torch.zeros(0, dtype=torch.long))
    seen, known = PrivilegedScorer().rows(none, lambda g, k, e, ids: None)
    assert (len(seen), len(known), seen.lengths.dtype) == (0, 0, torch.long)
