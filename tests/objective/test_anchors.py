"""Comparisons from one shared context against the definition."""

import pytest
import torch

from cod_lightning.errors import ConfigError
from cod_lightning.objective.anchors import anchored, context_worth, with_worth
from cod_lightning.objective.baselines import Advantages


def table(seed, rows=6, columns=4):
    rng = torch.Generator().manual_seed(seed)
    return torch.rand(rows, columns, generator=rng), torch.rand(rows, columns, generator=rng) < 0.6


@pytest.mark.parametrize("seed", range(5))
def test_an_attempt_is_compared_with_the_others_from_its_context(seed):
    rewards, valid = table(seed)
    found = anchored(rewards, valid)
    for a in range(6):
        for m in range(4):
            others = [rewards[a, j].item() for j in range(4) if j != m and valid[a, j]]
            known = bool(valid[a, m]) and bool(others)
            assert found.valid[a, m, 0].item() == known
            expected = rewards[a, m].item() - sum(others) / len(others) if known else 0.0
            assert found.values[a, m, 0].item() == pytest.approx(expected, abs=1e-6)


def test_anchors_with_one_attempt_are_refused():
    with pytest.raises(ConfigError, match="at least 2 attempts"):
        anchored(torch.zeros(3, 1), torch.ones(3, 1, dtype=torch.bool))


@pytest.mark.parametrize("seed", range(5))
def test_a_context_is_worth_what_it_adds(seed):
    (gained, has), (otherwise, has_other) = table(seed), table(seed + 50, columns=3)
    worth, known = context_worth(gained, has, otherwise, has_other)
    for c in range(6):
        ours = [gained[c, m].item() for m in range(4) if has[c, m]]
        theirs = [otherwise[c, m].item() for m in range(3) if has_other[c, m]]
        assert known[c].item() == (bool(ours) and bool(theirs))
        expected = sum(ours) / len(ours) - sum(theirs) / len(theirs) if known[c] else 0.0
        assert worth[c].item() == pytest.approx(expected, abs=1e-6)


def test_only_measured_updates_change():
    plain = Advantages(torch.arange(5.0).view(1, 1, 5), torch.tensor([[[True, False, True, True, False]]]))
    found = with_worth(plain, torch.tensor([[[0.5, 9.0]]]), torch.tensor([[[True, False]]]))
    assert found.values.flatten().tolist() == [0.0, 0.5, 2.0, 3.0, 4.0]
    assert found.valid.flatten().tolist() == [True, True, True, True, False]
    assert plain.values.flatten().tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
