"""What a run keeps of its lifecycles."""

import json
from pathlib import Path

import pytest

from cod_lightning.callbacks.transcripts import Transcripts
from cod_lightning.contexts import HintContext
from cod_lightning.envs.base import Players, Reference, TextEnv, beside
from cod_lightning.envs.levers import Levers
from cod_lightning.errors import FAULT_LOG
from cod_lightning.evaluation.references import scripted_sampler
from cod_lightning.rollout.group import run_groups
from cod_lightning.rollout.setting import Setting
from cod_lightning.rollout.transcript import read
from cod_lightning.types import Group, Split
from tests.played_run import PlayedData, PlayedModule, trainer


def fit(folder: Path, transcripts: Transcripts) -> None:
    trainer(folder, [transcripts]).fit(PlayedModule(), PlayedData())


def test_every_validation_lifecycle_and_whole_groups_of_training_ones_of_the_newest_run_are_kept(
    tmp_path: Path,
) -> None:
    for _ in range(2):
        fit(tmp_path, Transcripts(train_per_rollout=3))
    validation, train = (read(tmp_path / "lifecycles" / f"{name}.jsonl") for name in ("validation", "train"))
    assert len(validation) == 2 * 8  # two validations; the sanity check left out
    assert len(train) == 4 * 3
    assert all(len(one.lifecycles) == 2 for one in train)


def test_each_condition_has_a_file_of_its_first_packs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cod_lightning.callbacks.transcripts._TEST_PACKS", 5)
    run = trainer(tmp_path, [Transcripts()])
    run.test(PlayedModule(), PlayedData(), verbose=False)
    names = sorted(path.name for path in (tmp_path / "lifecycles").iterdir())
    assert names == ["test_heldout_blanked_context.jsonl", "test_heldout_trained.jsonl"]
    kept = read(tmp_path / "lifecycles" / names[0])
    assert [one.pack.id for one in kept] == [f"test_heldout_blanked_context/{i}" for i in range(5)]
    run.test(PlayedModule(), PlayedData(), verbose=False)
    assert len(read(tmp_path / "lifecycles" / names[0])) == 5  # a second pass replaces the first


def test_a_resumed_run_goes_on_with_its_files_and_lines_of_a_tested_checkpoint_have_its_updates(tmp_path: Path) -> None:
    def steps(name: str) -> list[int]:
        lines = (tmp_path / "lifecycles" / f"{name}.jsonl").read_text().splitlines()
        return [json.loads(line)["step"] for line in lines]

    run, last = trainer(tmp_path, [Transcripts()], max_epochs=1), tmp_path / "last.ckpt"
    run.fit(PlayedModule(), PlayedData())
    run.save_checkpoint(last)
    trainer(tmp_path, [Transcripts()]).test(PlayedModule(), PlayedData(), ckpt_path=last, verbose=False)
    assert set(steps("test_heldout_trained")) == {4}
    trainer(tmp_path, [Transcripts()]).fit(PlayedModule(), PlayedData(), ckpt_path=last)
    assert steps("validation") == [4] * 8 + [8] * 8


def test_a_new_run_of_an_object_that_has_seen_others_begins_its_files_anew_and_counts_from_0(tmp_path: Path) -> None:
    transcripts, last = Transcripts(), tmp_path / "last.ckpt"
    run = trainer(tmp_path, [transcripts])
    run.fit(PlayedModule(), PlayedData())
    run.save_checkpoint(last)
    run.test(PlayedModule(), PlayedData(), ckpt_path=last, verbose=False)
    fit(tmp_path, transcripts)
    lines = (tmp_path / "lifecycles" / "validation.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [4] * 8 + [8] * 8


def test_a_run_of_two_stages_listens_once_at_a_time(tmp_path: Path) -> None:
    data, transcripts = PlayedData(), Transcripts()
    run = trainer(tmp_path, [transcripts])
    run.fit(PlayedModule(), data)
    run.test(PlayedModule(), data, verbose=False)
    assert data.runner._observers == []
    assert len(read(tmp_path / "lifecycles" / "validation.jsonl")) == 2 * 8


def test_a_run_that_fails_leaves_the_next_one_in_the_process_alone(tmp_path: Path) -> None:
    class Fails(PlayedModule):
        def on_train_batch_start(self, *_: object) -> None:
            raise KeyError("a cell of a notebook")

    data, module, handlers = PlayedData(), Fails(), list(FAULT_LOG.handlers)
    module.row_listeners = []
    with pytest.raises(KeyError):
        trainer(tmp_path, [Transcripts()]).fit(module, data)
    assert (data.runner._observers, module.row_listeners, FAULT_LOG.handlers) == ([], [], handlers)


def hidden_database(name: str) -> None:
    raise KeyError(name)


def test_the_traceback_of_what_cost_a_lifecycle_is_in_the_run_s_folder_and_the_last_line_names_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Broken(Levers):
        def step(self, action: str):
            hidden_database("table\x1b[2J")

    transcripts = Transcripts()
    run = trainer(tmp_path, [transcripts])
    transcripts.setup(run, PlayedModule(), "fit")
    for _ in range(120):
        group = run_one(Broken())
        assert group.lifecycles[0].failed
    transcripts.teardown(run, PlayedModule(), "fit")
    path = tmp_path / "lifecycles" / "faults.log"
    text = path.read_text()
    assert text.count("in hidden_database") == 100, "the first hundred"
    assert "EnvironmentFailure: " in text
    assert "\x1b" not in text
    assert capsys.readouterr().err == f"120 faults; tracebacks: {path}\n"
    run_one(Broken())
    assert path.read_text() == text, "after the run nothing is logged"
    transcripts.setup(run, PlayedModule(), "fit")  # Lightning names the checkpoint that a run goes on from after that
    run_one(Broken())
    transcripts.teardown(run, PlayedModule(), "fit")
    assert path.read_text().startswith(text), "a run that goes on keeps what is there"


def run_one(world: TextEnv) -> Group:
    pack = world.sample_pack(split=Split.TRAIN, index=0, num_tasks=2)
    mechanism = HintContext()
    sampler = scripted_sampler(beside(world, Players).reference(Reference.RANDOM, pack), mechanism)
    return run_groups([pack], 1, Setting(env=world, mechanism=mechanism, sampler=sampler))[0]
