"""Log-prob gaps in a report: from the update's log-probs and the sampler's, or a reason why there are none."""

from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from cod_lightning.reports.lines import LogprobFile
from cod_lightning.reports.report import report_data
from cod_lightning.rollout import transcript
from tests.records import group, turn
from tests.reports.made_runs import with_episodes, write_logprobs, write_run

GROUPS = [group("a", [[True, False], [False, True]]), group("b", [[True, True], [None, False]])]


def _side(folder: Path) -> Path:
    return folder / "lifecycles" / "train_logprobs.jsonl"


def _data(folder: Path) -> tuple[dict[str, Any], list[str], list[dict[str, Any]]]:
    """The file of training lifecycles, the run's notes, all episodes."""
    overview, lives = report_data([folder])
    return (
        overview["files"][0],
        overview["runs"][0]["notes"],
        [one for life in lives["lifecycles"] for one in life["episodes"]],
    )


def test_a_gap_is_the_policys_log_prob_minus_the_samplers_and_the_blank_line_of_a_run_that_went_on_is_not_noted(
    tmp_path,
):
    write_run(tmp_path, GROUPS)
    _side(tmp_path).write_text(_side(tmp_path).read_text() + "\n")
    _, notes, episodes = _data(tmp_path)
    assert notes == []
    assert episodes[0]["turns"][0]["gaps"] == pytest.approx([0.1, 0])
    assert episodes[0]["updates"] == 1


def test_gaps_of_an_episode_of_several_turns_go_to_the_turns_that_they_are_of(tmp_path):
    turns = (turn(logprobs=(-1.0,)), turn(logprobs=()), turn(logprobs=(-1.0, -2.0)))
    write_run(tmp_path, [with_episodes(GROUPS[0], lambda one: structs.replace(one, turns=turns))])
    *_, episodes = _data(tmp_path)
    assert [one["gaps"] for one in episodes[0]["turns"]] == [[0.1], [], [0, 0]]


def test_episodes_that_no_update_trained_on_have_neither_gap_nor_advantage(tmp_path):
    write_run(tmp_path, GROUPS[:1])
    write_logprobs(tmp_path, GROUPS[:1], skipped=(0, 1))
    *_, episodes = _data(tmp_path)
    assert [one["updates"] is None for one in episodes[:3]] == [True, True, False]
    assert [bool(one["turns"][0]["gaps"]) for one in episodes[:3]] == [False, False, True]
    assert [one["advantage"] for one in episodes] == [None, None, 0.5, None, None, -0.5]


def test_a_run_of_an_earlier_version_has_no_gaps_and_says_so(tmp_path):
    write_run(tmp_path, GROUPS)
    _side(tmp_path).unlink()
    _, notes, episodes = _data(tmp_path)
    assert notes == ["No advantages and log-prob gaps: there is no lifecycles/train_logprobs.jsonl."]
    assert all(one["updates"] is None for one in episodes)


def test_damaged_lines_cost_their_episodes_and_are_counted(tmp_path):
    write_run(tmp_path, GROUPS)
    first, second, third, *rest = _side(tmp_path).read_text().splitlines()
    lines = [
        first[:30],
        second.replace('"schema":2', '"schema":1'),
        third.replace('"digest":', '"digest":1'),
        "",
        *rest,
    ]
    _side(tmp_path).write_text("\n".join(lines))
    _, notes, episodes = _data(tmp_path)
    assert notes == [
        "lifecycles/train_logprobs.jsonl: 1 line was left out, torn or damaged.",
        "lifecycles/train_logprobs.jsonl: 1 line was left out, schema 1, not 2.",
        "lifecycles/train_logprobs.jsonl: 1 line was left out, about other tokens than the lifecycle's.",
    ]
    assert [one["updates"] is None for one in episodes[:4]] == [True, True, True, False]


def test_a_line_for_the_same_episode_played_again_with_other_words_is_not_taken_for_it(tmp_path):
    write_run(tmp_path, GROUPS[:1])
    other = (structs.replace(turn(), action_ids=(7, 8)),)
    played_twice = [with_episodes(GROUPS[0], lambda one: structs.replace(one, turns=other)), GROUPS[0]]
    transcript.write(tmp_path / "lifecycles" / "train.jsonl", played_twice, step=4, append=False)
    *_, episodes = _data(tmp_path)
    assert [one["updates"] is None for one in episodes] == [True] * 6 + [False] * 6


def test_each_rank_has_a_file_of_its_own(tmp_path):
    folder = write_run(tmp_path, GROUPS) / "lifecycles"
    for name in ("train", "train_logprobs"):
        (folder / f"{name}.jsonl").rename(folder / f"{name}.rank1.jsonl")
    beside = LogprobFile.beside(folder / "train.rank1.jsonl")
    assert beside is not None
    assert beside.path.name == "train_logprobs.rank1.jsonl"
    assert LogprobFile.beside(folder / "validation.jsonl") is None
    file, _, episodes = _data(tmp_path)
    assert all(one["updates"] == 1 for one in episodes if one["turns"])
    assert file["label"] == "train.rank1"
