"""Each cause is named on evidence that has it, and on none that stays just below its threshold."""

import inspect
import os
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qs

import pytest
import torch
from msgspec import structs

from cod_lightning.cli import main
from cod_lightning.diagnosis.causes import CAUSES, causes_of, late_notes
from cod_lightning.diagnosis.evidence import Evidence, read_evidence
from cod_lightning.diagnosis.notes import Dependence, dependence, of_notes
from cod_lightning.errors import ConfigError, DataError
from cod_lightning.models import TinyPolicy
from cod_lightning.reports.curves import late_mean, num_updates
from cod_lightning.reports.lines import LifecycleFile
from cod_lightning.rollout import transcript
from cod_lightning.rollout.transcript import PlayedGroup
from cod_lightning.types import EpisodeKind, EpisodeStatus, StopReason
from tests.cases import each
from tests.records import attempt, group, turn, with_attempts
from tests.stubs import WordWorld

MIXED = [[True, False], [False, True], [True, True], [False, False]]
BY_NAME = {cause.named(): cause for cause in CAUSES}


def changed(one, change):
    lives = [structs.replace(life, episodes=tuple(map(change, life.episodes))) for life in one.lifecycles]
    return structs.replace(one, lifecycles=tuple(lives))


def played(rows=MIXED, change=lambda episode: episode, steps=(0, 9)):
    """Two groups of each step."""
    return [PlayedGroup(step, changed(group(f"p{step}.{n}", rows), change)) for step in steps for n in range(2)]


def column(*values):
    return dict(enumerate(values))


def healthy(**more):
    """Ten updates in which nothing is wrong."""
    metrics = {
        "train/zero_variance_packs": column(*[0.2] * 10),
        "train/entropy": column(*[0.5] * 10),
        "train/gradient_norm": column(*[0.1] * 10),
        "train/logprob_gap": column(*[1e-6] * 10),
        "engine/policy_moved": column(*[0.03] * 10),
        "rollout/num_lost_groups": column(*[0.0] * 10),
        "rollout/token_drift": column(*[0.0] * 10),
    }
    config = {
        "warm_start": "x",
        "data": {"packs_per_rollout": 4},
        "model": {"lr": 1e-3, "policy": {"class_path": "TinyPolicy"}},
    }
    made = Evidence(folder=Path(), config=config, metrics=metrics, groups=played())
    return replace(made, **more)


def with_metrics(**columns):
    names = {name.replace("__", "/"): values for name, values in columns.items()}
    return healthy(metrics={**healthy().metrics, **names})


def cut(episode):
    sure = structs.replace(turn("x", (-0.1, -0.2)), stop=StopReason.LENGTH)
    return structs.replace(episode, turns=(sure,), success=False, status=EpisodeStatus.TRUNCATED)


def unread(episode):
    if episode.kind is EpisodeKind.UPDATE:
        return structs.replace(episode, success=False, status=EpisodeStatus.MALFORMED)
    return structs.replace(episode, success=False, status=EpisodeStatus.MALFORMED, reward=0.0)


def surprised(episode):
    said = structs.replace(turn("x"), action_ids=(1, 2), behaviour_logprobs=(-3.0, -3.0))
    return structs.replace(unread(episode), turns=(said,))


def suite(own, hidden, half=0.01):
    """Success after the first task, and with the context hidden; half of the interval of their difference."""
    cost = {"mean": own - hidden, "ci95": [own - hidden - half, own - hidden + half]}
    figures = {"forward_transfer": {"control": "blanked_context", "success": cost}}
    return {"held_out": {"figures": figures, "controls": {"blanked_context": [{"success": 0.5}, {"success": hidden}]}}}


HAVE = {
    "wrong tokenizer": healthy(groups=played(change=surprised)),
    "truncated answers": healthy(groups=played(change=cut)),
    "baseline without siblings": with_metrics(rollout__num_lost_groups=column(*[2.0] * 10)),
    "demonstrations leave nothing": healthy(groups=played([[True, True]] * 8)),
    "reward clipped away": healthy(groups=played(change=lambda one: structs.replace(one, reward=0.0))),
    "sampler not synced": with_metrics(train__logprob_gap=column(*[1e-6] * 7, 0.1, 0.1, 0.1)),
    "rate too high": replace(
        with_metrics(engine__policy_moved=column(0.1, 2.5)),
        groups=[*played(), *played([[False, False]] * 8, steps=(9,))],
    ),
    "rate too low": with_metrics(engine__policy_moved=column(*[1e-6] * 10)),
    "format collapse": healthy(groups=[*played(steps=(0,)), *played(change=unread, steps=(9,))]),
    "entropy gone": with_metrics(train__entropy=column(*[0.5] * 7, 0.001, 0.001, 0.001)),
    "dead groups": with_metrics(train__zero_variance_packs=column(*[0.9] * 10)),
    "context ignored": healthy(suites=suite(0.51, 0.5)),
    "contexts independent": healthy(dependence=Dependence(0.01, 0.05, 24)),
}


def test_every_cause_is_among_these_and_the_guide_has_the_table_that_their_docstrings_make():
    assert HAVE.keys() == BY_NAME.keys()
    page = Path("docs/guides/doctor.md").read_text(encoding="utf-8")
    for cause in CAUSES:
        (what, *_) = inspect.cleandoc(cause.__doc__ or "").split("\n\n")
        assert f"| {cause.named()} | {' '.join(what.split())} |" in page


def test_a_healthy_run_has_none():
    assert causes_of(healthy(suites=suite(0.9, 0.5), dependence=Dependence(1.5, 0.6, 24))) == []


@each("name", HAVE)
def test_a_cause_is_the_first_that_is_named(name):
    found = causes_of(HAVE[name])
    assert found, "none"
    assert found[0].cause == name, [one.cause for one in found]


def test_what_the_engine_lacks_is_the_adapter_where_one_is_trained():
    run = HAVE["sampler not synced"]
    adapted = replace(run, config={**run.config, "model": {"policy": {"class_path": "LoRAPolicy"}}})
    found = [BY_NAME["sampler not synced"]().seen(one) for one in (run, adapted)]
    assert ["adapter" in what for what, _ in found] == [False, True]


@each(
    "below",
    [
        healthy(groups=played(change=lambda one: surprised(one) if one.position else one)),
        with_metrics(rollout__num_lost_groups=column(*[1.9] * 10)),
        with_metrics(train__logprob_gap=column(*[0.01] * 10)),
        with_metrics(engine__policy_moved=column(0.1, 2.5)),
        with_metrics(engine__policy_moved=column(*[1e-6] * 9, 1e-3)),
        with_metrics(train__entropy=column(*[0.5] * 7, 0.03, 0.03, 0.03)),
        with_metrics(train__zero_variance_packs=column(*[1.0] * 7, 0.7, 0.7, 0.7)),
        healthy(suites=suite(0.56, 0.5)),
        healthy(suites=suite(0.97, 0.96)),
        healthy(suites=suite(0.51, 0.5, half=0.2)),
        healthy(dependence=Dependence(0.2, 0.3, 24)),
        healthy(dependence=Dependence(0.0, 0.3, 8)),
        replace(HAVE["entropy gone"], groups=[]),  # of whose success nothing is known
    ],
)
def test_nothing_is_named_below_a_threshold(below):
    assert [one.cause for one in causes_of(below) if one.cause != "format collapse"] == []


def test_drift_is_named_whenever_it_came():
    (found, *_) = causes_of(with_metrics(rollout__token_drift=column(*[0.0] * 5, 8.0, *[0.0] * 4)))
    assert (found.cause, "token_drift reaches 8:" in found.seen) == ("wrong tokenizer", True)


def test_an_ignored_context_is_named_where_the_transfer_is_over_no_context_too():
    (of,) = suite(0.51, 0.5).values()
    hidden, other = of["figures"]["forward_transfer"]["success"], {"mean": 0.3, "ci95": [0.2, 0.4]}
    figures = {"forward_transfer": {"control": "no_context", "success": other}, "training_adds": {"trained": hidden}}
    assert [one.cause for one in causes_of(healthy(suites={"a": of | {"figures": figures}}))] == ["context ignored"]
    for damaged in (None, {"trained": hidden | {"ci95": [0.0, "x"]}}):
        assert causes_of(healthy(suites={"a": of | {"figures": figures | {"training_adds": damaged}}})) == []


@each(
    ("trained", "scripted", "begun", "named"),
    [(0.56, 0.58, 0.59, True), (0.65, 0.58, 0.59, False), (0.56, 0.9, 0.59, False), (0.56, None, 0.59, False)],
)
def test_a_warm_start_that_solves_what_scripted_play_does_leaves_nothing_to_learn(trained, scripted, begun, named):
    means = {"scripted": scripted, "warm_start": 0.4, "warm_start_t0.0": begun, "warm_start_blanked": 0.99}
    controls = {name: [{"success": mean}] * 4 for name, mean in means.items() if mean is not None}
    record = {"positions": [{"success": trained}] * 4, "controls": controls, "temperature": 1.0}
    best = {"paired": {"trained_minus_best_warm_start": {"best_temperature": 0.0}}}
    run = healthy(suites={"held_out": record | best})
    assert [one.cause for one in causes_of(run)] == ["demonstrations leave nothing"] * named


def test_siblings_whose_attempts_differ_are_no_dead_group():
    equal = played([[False, False]] * 4, steps=(0, 8, 9))
    assert [one.cause for one in causes_of(healthy(groups=equal))] == ["dead groups"]

    groups = []
    for step, one in equal:
        lives = tuple(with_attempts(life, attempt(0, k % 2 == 1)) for k, life in enumerate(one.lifecycles))
        groups.append(PlayedGroup(step, structs.replace(one, lifecycles=lives)))
    assert causes_of(healthy(groups=groups)) == []


@each(("at_0", "at_1", "dead"), [(True, False, True), (False, False, False), (True, None, True), (True, True, False)])
def test_attempts_are_compared_with_what_siblings_did_at_the_same_task(at_0, at_1, dead):
    groups = []
    for step, one in played([[True, False]] * 4, steps=(0, 8, 9)):
        lives = tuple(with_attempts(life, attempt(0, at_0), attempt(1, at_1)) for life in one.lifecycles)
        groups.append(PlayedGroup(step, structs.replace(one, lifecycles=lives)))
    assert [one.cause for one in causes_of(healthy(groups=groups))] == ["dead groups"] * dead


@each(
    "teacher", [{"critic": {"class_path": "ValueHead"}}, {"scorers": {"teacher": {"class_path": "CheckpointScorer"}}}]
)
def test_siblings_that_tie_are_no_dead_group_where_something_else_teaches(teacher):
    tied = HAVE["dead groups"]
    assert causes_of(replace(tied, config={**tied.config, "model": teacher})) == []


def test_a_finding_says_which_lifecycles_show_it():
    found = causes_of(HAVE["format collapse"])[0]
    assert str(found.shown_by[0]) == "step 9, pack p9.0, sibling 0, solve 0"
    assert found.shown_by[0].address == "pack=p9.0&sibling=0&step=9&episode=0"
    assert len(found.shown_by) == 3
    odd = replace(found.shown_by[0], pack="p\ud800\x1b")
    assert parse_qs(odd.address)["pack"] == ["p\ufffd\u241b"], "as the report names it"


def test_what_follows_from_a_cause_is_left_out_beside_it():
    dead = {"train/zero_variance_packs": column(*[1.0] * 10)}
    found = causes_of(healthy(groups=played(change=cut), metrics=healthy().metrics | dead))
    assert [one.cause for one in found] == ["truncated answers"]


def test_the_dependence_of_notes_is_the_diagonal_against_the_mean_of_its_row():
    logprobs = torch.randn(6, 6, generator=torch.Generator().manual_seed(0)) * 3
    found = dependence(logprobs)
    rows = logprobs.double().tolist()
    means = [torch.tensor(row, dtype=torch.float64).exp().mean().log().item() for row in rows]
    assert found.information == pytest.approx(sum(rows[i][i] - means[i] for i in range(6)) / 6)
    assert found.retrieved == sum(rows[i][i] == max(rows[i]) for i in range(6)) / 6
    assert dependence(torch.zeros(4, 4)).information == pytest.approx(0)


def test_one_note_of_each_pack_is_compared_the_latest_first():
    assert len(late_notes(healthy())) == 4
    assert late_notes(healthy(groups=played(change=unread))) == []


def test_the_latest_notes_come_first_whichever_rank_played_them_and_however_often_their_pack_came(tmp_path):
    for name, steps in (("train.jsonl", (0, 4, 8)), ("train.rank1.jsonl", (0, 4))):
        for step in steps:
            again = (
                group("again", MIXED, context=f"{name} {step}") if step in (0, 8) else group(f"{name} {step}", MIXED)
            )
            transcript.write(tmp_path / "lifecycles" / name, [again], step=step)
    notes = late_notes(read_evidence(tmp_path))
    assert len(notes) == 3
    assert notes[0].context_after == "train.jsonl 8"


def tiny_model():
    torch.manual_seed(0)
    policy = TinyPolicy(hidden_size=16, num_layers=2, num_heads=2, num_kv_heads=1, intermediate_size=32)
    return policy.model(policy.tokenizer(WordWorld().words())).eval()


def written(new_ids, action_ids):
    """An update episode with such a note."""
    one = structs.replace(turn(), new_ids=new_ids, action_ids=action_ids, behaviour_logprobs=(-0.1,) * len(action_ids))
    return structs.replace(late_notes(healthy())[0], turns=(one,))


def test_notes_are_scored_behind_every_prompt_as_the_whole_row_is():
    model, prompts, notes = tiny_model(), [(5,), (5, 6, 7), tuple(range(3, 20))], [(7, 8), (9,), (4, 5, 6, 7)]
    logprobs = torch.zeros(3, 3)
    for i, note in enumerate(notes):
        for j, prompt in enumerate(prompts):
            with torch.no_grad():
                rows = torch.log_softmax(model(input_ids=torch.tensor([[*prompt, *note]])).logits[0], dim=-1)
            logprobs[i, j] = sum(rows[len(prompt) - 1 + t, id_] for t, id_ in enumerate(note))
    found, expected = of_notes(model, list(map(written, prompts, notes))), dependence(logprobs)
    assert found.information == pytest.approx(expected.information, abs=1e-5)
    assert found.retrieved == expected.retrieved


def test_of_long_prompts_as_few_notes_are_compared_as_can_be_in_time(monkeypatch):
    monkeypatch.setattr("cod_lightning.diagnosis.notes._MOST_TOKENS", 2 * (30 + 24))
    notes = [written((5,) * 30, (number,)) for number in range(4)]
    assert of_notes(tiny_model(), notes).num_notes == 2


@each("ids", [(10**6,), (-1,), (2**70,)])
@each("of", ["new_ids", "action_ids"])
def test_notes_of_a_foreign_run_with_ids_that_the_model_lacks_are_refused(of, ids):
    model = tiny_model()
    notes = [structs.replace(one, turns=(turn(),)) for one in late_notes(healthy())]
    assert of_notes(model, notes).num_notes == 4
    assert (
        of_notes(model, [structs.replace(one, turns=(structs.replace(turn(), new_ids=()),)) for one in notes]) is None
    )
    damaged = structs.replace(turn(), **{of: ids, "behaviour_logprobs": (-0.1,) * len(ids)})
    with pytest.raises(DataError, match=rf"token id {ids[0]}, and the last checkpoint"):
        of_notes(model, [*notes, structs.replace(notes[0], turns=(damaged,))])


def test_numbers_as_large_as_can_be_are_looked_at_like_others():
    largest = column(*[1e308] * 10)
    run = healthy(metrics=dict.fromkeys(healthy().metrics, largest))
    assert late_mean(run.metrics, "train/entropy") == float("inf")
    assert causes_of(run)


@each("size", ["eight", [8], -1, 0])
def test_a_config_of_other_kinds_of_values_says_nothing(size):
    run = replace(HAVE["baseline without siblings"], config={"data": {"packs_per_rollout": size}})
    assert causes_of(run) == []


def test_rows_of_metrics_before_one_that_cannot_be_read_count(tmp_path):
    (tmp_path / "metrics.csv").write_text(f"step,train/entropy\n0,0.5\n1,{'9' * 200_000}\n2,0.1\n")
    assert read_evidence(tmp_path).metrics["train/entropy"] == {0: 0.5}


@each("name", ["config.yaml", "evaluation.json", "lifecycles/train.jsonl"])
def test_what_is_no_file_is_not_waited_for(tmp_path, name):
    (tmp_path / "metrics.csv").write_text("step,train/entropy\n0,0.5\n")
    (tmp_path / "lifecycles").mkdir()
    os.mkfifo(tmp_path / name)
    assert num_updates(read_evidence(tmp_path).metrics) == 1


def test_the_doctor_says_what_it_could_not_read(tmp_path, capsys):
    (tmp_path / "metrics.csv").write_text(f"step,train/entropy\n0,0.5\nx,0.4\n1,{'9' * 200_000}\n2,0.1\n")
    (tmp_path / "config.yaml").write_text("model: [")
    assert main(["doctor", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "note: config.yaml cannot be read" in said
    assert "note: metrics.csv was read in part only" in said
    assert "note: 1 rows of metrics.csv have no step" in said


def test_of_a_run_without_metrics_the_last_quarter_of_its_lifecycles_is_late(tmp_path):
    for step in range(0, 40, 4):
        transcript.write(tmp_path / "lifecycles" / "train.jsonl", [group(f"p{step}", MIXED)], step=step)
    run = read_evidence(tmp_path)
    assert num_updates(run.metrics) == 37
    assert [one.step for one in run.late_groups] == [28, 32, 36]


def test_a_run_of_a_config_that_this_version_refuses_is_examined_all_the_same(tmp_path, capsys):
    (tmp_path / "config.yaml").write_text("data: {key_of_another_version: 1}")
    transcript.write(tmp_path / "lifecycles" / "train.jsonl", [group("p", MIXED)], step=0)
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "last.ckpt").touch()
    assert main(["doctor", str(tmp_path)]) == 0
    said = capsys.readouterr()
    assert "key_of_another_version" in said.err
    assert "1 groups read" in said.out
    assert "note: Whether notes depend on what was seen was not looked at" in said.out


def test_a_folder_without_a_training_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"metrics\.csv or lifecycles/train\.jsonl"):
        read_evidence(tmp_path)


def test_a_long_file_is_read_at_both_ends(tmp_path, monkeypatch):
    path = tmp_path / "lifecycles" / "train.jsonl"
    for step in range(40):
        transcript.write(path, [group(f"p{step}", MIXED)], step=step)
    size = path.stat().st_size
    monkeypatch.setattr("cod_lightning.diagnosis.evidence._HEAD", size // 10)
    monkeypatch.setattr("cod_lightning.diagnosis.evidence._TAIL", size // 10)
    steps = {one.step for one in read_evidence(tmp_path).groups}
    assert {0, 1, 38, 39} <= steps
    assert 20 not in steps
    assert len(list(LifecycleFile(path).groups())) == 40
