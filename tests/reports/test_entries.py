"""Contexts entry by entry: the difference of two, and what became of each entry."""

import time
from pathlib import Path

import pytest
from msgspec import structs

from cod_lightning.envs.base import Players, Reference, beside
from cod_lightning.envs.levers import Levers
from cod_lightning.evaluation.references import scripted_sampler
from cod_lightning.methods.episodes import EpisodesContext
from cod_lightning.reports.entries import EntryHistory, entry_changes, entry_histories
from cod_lightning.reports.report import report_data
from cod_lightning.rollout import transcript
from cod_lightning.rollout.group import run_groups
from cod_lightning.rollout.setting import Setting
from cod_lightning.types import EntryEvent, EntryEventKind, Episode, EpisodeKind, EpisodeStatus, Split
from tests.cases import each
from tests.records import group, solve, update
from tests.reports.made_runs import write_run


def changed(before: str, after: str) -> list[tuple[str, str]]:
    return list(entry_changes(before, after))


def test_of_a_changed_entry_both_versions_stand_where_it_stood() -> None:
    before = "1. red is up\n2. blue is down\n3. green is slow"
    after = "1. red is up\n3. green is fast\n4. walls hurt"
    assert changed(before, after) == [
        ("kept", "1. red is up"),
        ("removed", "2. blue is down"),
        ("removed", "3. green is slow"),
        ("added", "3. green is fast"),
        ("added", "4. walls hurt"),
    ]


def test_an_empty_context_only_gains_and_both_texts_can_be_read_off() -> None:
    assert changed("all is well", "turn back") == [("removed", "all is well"), ("added", "turn back")]
    assert changed("", "a b\nc") == [("added", "a b"), ("added", "c")]
    assert changed("a b\nc", "") == [("removed", "a b"), ("removed", "c")]
    before, after = "a 1\nb 2\nc 3\nd 4", "b 2\nd 5\ne 6\na 1"
    found = changed(before, after)
    assert [entry for kind, entry in found if kind != "removed"] == after.splitlines()
    assert [entry for kind, entry in found if kind != "added"] == before.splitlines()


def test_contexts_of_very_many_entries_are_compared_by_their_beginnings_and_ends_in_time() -> None:
    places = range(200_000)
    before, after = ("\n".join(str(n * step % 2_003) for n in places) for step in (7, 11))
    begun = time.perf_counter()
    found = changed(f"first\n{before}\nlast", f"first\n{after}\nlast")
    assert time.perf_counter() - begun < 10
    assert found[:2] == [("kept", "first"), ("kept", "0")]
    assert found[-1] == ("kept", "last")
    assert [kind for kind, _ in found[2:-1]] == ["removed"] * (len(places) - 1) + ["added"] * (len(places) - 1)


@each("text", ["", "\n\n", "one\n\ntwo"])
def test_the_same_text_has_no_changes(text: str) -> None:
    assert {kind for kind, _ in changed(text, text)} <= {"kept"}


def test_a_report_holds_the_entries_that_an_update_changed(tmp_path: Path) -> None:
    made = group("a", [[True, False]], context="left is up\ndown is far")
    _, lives = report_data([write_run(tmp_path, [made])])
    (update,) = (episode for episode in lives["lifecycles"][0]["episodes"] if episode["kind"] == "update")
    texts = [(kind, lives["strings"][text]) for kind, text in update["changes"]]
    assert texts == [("added", "left is up"), ("added", "down is far")]


def test_an_update_that_was_skipped_or_wrote_from_another_context_changed_what_it_began_with(tmp_path: Path) -> None:
    skipped = Episode(kind=EpisodeKind.UPDATE, position=0, status=EpisodeStatus.SKIPPED)
    other = structs.replace(update(1, context="a 1\nb 2"), context_before="a 1")
    episodes = (solve(0, True, "left is up"), skipped, solve(1, True, "left is up"), other)
    made = group("a", [[True, True]])
    life = structs.replace(made.lifecycles[0], episodes=episodes)
    _, lives = report_data([write_run(tmp_path, [structs.replace(made, lifecycles=(life,))])])
    changes = [one.get("changes") for one in lives["lifecycles"][0]["episodes"]]
    kinds = [None if of is None else [kind for kind, *_ in of] for of in changes]
    assert kinds == [None, [], None, ["kept", "added"]]


@pytest.mark.slow
def test_texts_of_very_many_entries_are_not_compared_pair_by_pair() -> None:
    before, after = ("\n".join(f"{word} {n}" for n in range(100_000)) for word in ("old", "new"))
    begun = time.perf_counter()
    kinds = [kind for kind, _ in changed(before, after)]
    assert kinds == ["removed"] * 100_000 + ["added"] * 100_000
    assert {kind for kind, _ in changed(before, before)} == {"kept"}
    assert time.perf_counter() - begun < 20


def test_entries_that_come_again_and_again_are_compared_in_time() -> None:
    before, after = ("\n".join(f"a\n{word} {n}" for n in range(249)) for word in ("old", "new"))
    begun = time.process_time()
    assert len(changed(before, after)) >= 498
    assert len(changed(f"{before}\nb", f"{before}\nc")) == 500, "what both have is kept"
    assert time.process_time() - begun < 0.5


def with_events(*events: list[tuple[str, ...]]) -> list[Episode]:
    """Solves and updates in turn with these events, the solves with rewards 0, 1, 0, ..."""
    kinds = (EpisodeKind.SOLVE, EpisodeKind.UPDATE)
    return [
        structs.replace(
            (solve if kinds[n % 2] is EpisodeKind.SOLVE else update)(n // 2, bool(n // 2 % 2)),
            entries=tuple(EntryEvent(EntryEventKind(kind), *more) for kind, *more in of),
        )
        for n, of in enumerate(events)
    ]


def test_a_history_follows_a_key_whatever_the_text_and_says_what_its_tasks_earned() -> None:
    episodes = with_events(
        [("held", "old", "here before"), ("shown", "old")],
        [("came", "1", "up")],
        [("shown", "1"), ("shown", "old")],
        [("changed", "1", "down"), ("gone", "old", "over the budget")],
        [("shown", "1"), ("gone", "1"), ("gone", "task 2", "alone over the budget")],
        [("came", "1", "anew"), ("changed", "unknown", "x")],
    )
    found = entry_histories(episodes)
    assert found == [
        EntryHistory("old", "here before", -1, [], [0, 2], 3, "over the budget"),
        EntryHistory("1", "down", 1, [(3, "up")], [2, 4], 4, ""),
        EntryHistory("task 2", "", 4, [], [], 4, "alone over the budget"),
        EntryHistory("1", "anew", 5, [], []),
    ]
    assert [one.earned(episodes) for one in found] == [(0.5, 2), (0.5, 2), (None, 0), (None, 0)]


def test_a_context_from_elsewhere_ends_what_it_has_not() -> None:
    episodes = with_events(
        [("held", "1", "up"), ("held", "2", "down")], [], [("held", "1", "up"), ("held", "2", "left")]
    )
    found = [(one.text, one.came, one.gone) for one in entry_histories(episodes)]
    assert found == [("up", -1, None), ("down", -1, 2), ("left", 2, None)]


def test_what_rollouts_note_of_entries_is_written_read_and_in_the_report(tmp_path: Path) -> None:
    env, context = Levers(), EpisodesContext(most=1, capacity=2)
    pack = env.sample_pack(split=Split.TEST, index=0, num_tasks=4)
    sampler = scripted_sampler(beside(env, Players).reference(Reference.SCRIPTED, pack), context)
    played = run_groups([pack], 1, Setting(env=env, mechanism=context, sampler=sampler))
    folder = write_run(tmp_path, played, logprobs=False)
    assert transcript.read(folder / "lifecycles" / "train.jsonl")[0].lifecycles[0].episodes[3].entries
    _, lives = report_data([folder])
    entries, strings = lives["lifecycles"][0]["entries"], lives["strings"]
    assert [strings[one["key"]] for one in entries] == ["task 0", "task 1", "task 2", "task 3"]
    assert [one["came"] for one in entries] == [0, 1, 2, 3]
    assert sum(len(one["shown"]) for one in entries) == 3
    reasons = [strings[one["why"]] for one in entries if one["gone"] is not None]
    assert len(reasons) == 2
    assert all("over the capacity of 2 records" in reason for reason in reasons)
