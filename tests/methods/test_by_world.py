"""Several teachers, each for the rows of its own environment."""

import math
from dataclasses import replace

import pytest
import torch

from cod_lightning.errors import ConfigError
from cod_lightning.methods.by_world import ScorerByWorld
from cod_lightning.methods.privileged import PrivilegedScorer
from cod_lightning.training.scorers import Scorer
from tests.cases import each
from tests.scored import forward, rows
from tests.story import Everything, Replayed, row_key, updates


class Says(Scorer):
    """A number for every token."""

    def __init__(self, number):
        self.number, self.checked = number, []

    def check(self, key, vocabulary):
        self.checked.append(key)

    def num_weight_bytes(self):
        return 10

    def score(self, rows, forward):
        return torch.full(rows.token_ids.shape, self.number)


def test_each_teacher_scores_the_rows_of_its_own_world_and_those_of_none_have_no_score():
    batch = replace(rows(), pack_ids={0: "levers-4/train/1/0", 1: "lake/train/1/1", 2: "other/train/1/2"})
    packs = torch.tensor([0, 1, 2, 0])
    batch = replace(batch, place=torch.stack([packs, packs * 0, packs * 0], dim=1))
    scorer = ScorerByWorld({"levers-4": Says(-1.0), "lake": Says(-2.0), "absent": Says(-3.0)})
    scores = scorer.score(batch, forward)
    for row, expected in enumerate((-1.0, -2.0, math.nan, -1.0)):
        found = scores[row][batch.action_mask[row]]
        assert found.isnan().all() if math.isnan(expected) else (found == expected).all()
    scorer.check("model.scorers.teacher", {})
    assert scorer.teachers["lake"].checked == ["model.scorers.teacher.teachers.lake"]
    assert scorer.num_weight_bytes() == 30
    with pytest.raises(ConfigError, match=r"teachers\.lake is PrivilegedScorer; .*Make the ScorerByWorld the teacher"):
        ScorerByWorld({"levers-4": Says(-1.0), "lake": PrivilegedScorer()})


@each("names", [("levers", "levers-4"), ("levers-4", "levers")])
def test_of_teachers_whose_names_begin_alike_the_one_of_the_longest_name_scores(names):
    batch = replace(rows(), pack_ids={0: "levers-4/train/1/0"}, place=torch.zeros(4, 3).long())
    scores = ScorerByWorld({name: Says(-float(len(name))) for name in names}).score(batch, forward)
    assert set(scores[batch.action_mask].tolist()) == {-8.0}


def test_replayed_rows_have_the_teacher_of_their_own_world():
    seen = []
    for batch in updates(Replayed(Everything()).stream):
        names = [batch.pack_ids[g] for g in batch.place[:, 0].tolist()]
        scorer = ScorerByWorld({name: Says(float(-int(name[1:]) - 1)) for name in dict.fromkeys(names)})
        scores = scorer.score(batch, lambda model, rows: None)
        played_by = {row_key(batch, r): names[r] for r in range(len(batch)) if not batch.is_replayed[r]}
        seen.append((batch, names, scores, played_by))
    known = {key: name for *_, played_by in seen for key, name in played_by.items()}
    num_replayed = 0
    for batch, names, scores, _ in seen:
        for r in range(len(batch)):
            assert known[row_key(batch, r)] == names[r]
            found = set(scores[r][batch.action_mask[r]].tolist())
            assert found == {float(-int(names[r][1:]) - 1)}
            num_replayed += int(batch.is_replayed[r])
    assert num_replayed > 0
