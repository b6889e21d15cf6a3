"""Advantages in a report: those of the training, by the run's own rules."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from msgspec import structs

from cod_lightning.credit.baselines import GroupMean
from cod_lightning.credit.returns import EpisodeCredit
from cod_lightning.reports.advantages import Credit, credit_of
from cod_lightning.types import EpisodeKind
from tests.credit_tables import credited, cube_table
from tests.records import group
from tests.reports.made_runs import write_config

GROUP = group("a", [[True, False, True], [False, False, True]])


def _credit(folder: Path, group_size: int = 2, trained_kinds: list[str] | None = None) -> Credit:
    write_config(folder, group_size=group_size, trained_kinds=trained_kinds)
    credit = credit_of(folder / "config.yaml")
    assert isinstance(credit, Credit), credit
    return credit


def test_they_equal_those_of_the_objective(tmp_path):
    credited = _credit(tmp_path).of(GROUP)
    assert credited is not None
    expected = GroupMean()(EpisodeCredit()(cube_table([GROUP])))
    torch.testing.assert_close(torch.tensor([credited.advantages]), expected.values)
    assert credited.returns[0][0] == pytest.approx(2 / 3)


def test_they_are_there_for_a_plan_with_fewer_updates_and_where_a_siblings_plan_is_another(tmp_path):
    whole = [(*life.episodes[:1], *life.episodes[2:]) for life in GROUP.lifecycles]  # no update after task 0
    lives = [structs.replace(life, episodes=some) for life, some in zip(GROUP.lifecycles, whole, strict=True)]
    sparse = structs.replace(GROUP, lifecycles=tuple(lives))
    found = _credit(tmp_path).of(sparse)
    assert found is not None
    expected = GroupMean()(EpisodeCredit()(cube_table([sparse])))
    torch.testing.assert_close(torch.tensor([found.advantages]), expected.values)
    ragged = _credit(tmp_path).of(structs.replace(GROUP, lifecycles=(lives[0], GROUP.lifecycles[1])))
    assert ragged is not None
    assert [len(row) for row in ragged.advantages] == [len(lives[0].episodes), len(GROUP.lifecycles[1].episodes)]
    assert ragged.advantages[1][1] is None, "an update that no sibling has at its place"
    torn = [structs.replace(life, episodes=life.episodes[:3]) for life in GROUP.lifecycles]
    assert _credit(tmp_path).of(structs.replace(GROUP, lifecycles=tuple(torn))) is None


def test_an_episode_without_a_reward_has_none(tmp_path):
    credited = _credit(tmp_path).of(group("a", [[True, None, True], [False, False, True]]))
    assert credited is not None
    assert credited.advantages[0][2] is None


def test_a_group_that_lacks_a_sibling_has_none(tmp_path):
    assert _credit(tmp_path, group_size=3).of(GROUP) is None
    assert _credit(tmp_path).of(structs.replace(GROUP, lifecycles=GROUP.lifecycles[1:])) is None


def test_what_comes_after_the_baseline_is_named(tmp_path):
    credit = _credit(tmp_path)
    assert "RED" not in credit.remark
    assert "before scaling by the batch and RED" in replace(credit, scale="batch", reweighted=True).remark


@pytest.mark.parametrize("text", ["", "model: {}", "model: [", "model: {credit: {class_path: os.system}}"])
def test_a_config_without_a_credit_gives_a_reason_instead(tmp_path, text):
    (tmp_path / "config.yaml").write_text(text)
    assert str(credit_of(tmp_path / "config.yaml")).startswith("No advantages: config.yaml names no credit")


def test_a_foreign_class_path_gives_a_reason_and_is_not_run(tmp_path, capsys):
    write_config(tmp_path, credit="builtins.print")
    assert "No advantages" in str(credit_of(tmp_path / "config.yaml"))
    assert capsys.readouterr().out == ""


def test_no_config_gives_a_reason(tmp_path):
    assert "no config.yaml" in str(credit_of(tmp_path / "config.yaml"))


def test_they_are_scaled_by_the_group_where_the_training_scales_so(tmp_path):
    plain = _credit(tmp_path)
    scaled, unscaled = replace(plain, scale="group").of(GROUP), plain.of(GROUP)
    assert scaled is not None
    assert unscaled is not None
    expected = credited(cube_table([GROUP]), EpisodeCredit(), GroupMean(), "group").values
    torch.testing.assert_close(torch.tensor([scaled.advantages]), expected)
    assert scaled.advantages != unscaled.advantages


def test_episodes_of_a_kind_that_is_not_trained_have_none(tmp_path):
    credit = _credit(tmp_path, trained_kinds=["update"])
    found = credit.of(GROUP)
    assert found is not None
    trained = [one.kind is EpisodeKind.UPDATE for one in GROUP.lifecycles[0].episodes]
    assert [[one is not None for one in row] for row in found.advantages] == [trained, trained]
