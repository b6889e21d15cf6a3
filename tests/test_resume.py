"""A run that was killed or stopped, anywhere, goes on as if nothing had happened."""

import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cod_lightning.cli import main
from cod_lightning.forward.packed import PackedForward
from cod_lightning.training.scorers import CheckpointScorer
from tests.forked import on_ranks
from tests.forked_fit import (
    EVERY,
    NUM_UPDATES,
    SHORT,
    assert_the_same,
    checkpoint,
    draws,
    fit,
    in_rollout,
    in_update,
    killed_after,
    metrics,
    noting_draws,
    said,
    send,
    with_a_teacher,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def noting_scores(folder: Path) -> None:
    """Every batch that a teacher scores leaves a letter in a file."""
    score = CheckpointScorer.score

    def noting(self, rows, forward):
        with folder.with_suffix(".scored").open("a") as file:
            file.write("x")
        return score(self, rows, forward)

    CheckpointScorer.score = noting


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    assert fit(folder, *EVERY, before=noting_draws(folder)) == 0, said(folder)
    return folder


@pytest.mark.parametrize("updates", [(1, 2, 5), pytest.param(range(1, NUM_UPDATES), marks=pytest.mark.soak)], ids=str)
def test_killed_after_updates_a_run_goes_on_bit_for_bit(whole, tmp_path, updates):
    folder = tmp_path / "run"
    for update in updates:
        assert fit(folder, *EVERY, "--ckpt_path", "auto", before=killed_after(update)) == -signal.SIGKILL
        assert checkpoint(folder)["global_step"] == update
    assert fit(folder, *EVERY, "--ckpt_path", "last") == 0, said(folder)
    assert_the_same(folder, whole)


def test_killed_in_the_middle_of_a_rollout_the_log_probs_of_a_teacher_go_on_too(whole, tmp_path):
    made = ["export", "--ckpt_path", str(whole / "checkpoints" / "last.ckpt"), "--out", str(tmp_path / "teacher")]
    assert on_ranks(1, lambda: main(made), tmp_path / "out") == [0]
    teacher = with_a_teacher(tmp_path / "teacher")
    straight, folder = tmp_path / "straight", tmp_path / "run"
    assert fit(straight, *EVERY, *teacher) == 0, said(straight)
    assert fit(folder, *EVERY, *teacher, before=killed_after(3)) == -signal.SIGKILL
    assert fit(folder, *EVERY, *teacher, "--ckpt_path", "last", before=lambda: noting_scores(folder)) == 0, said(folder)
    assert_the_same(folder, straight)
    for teacher_of in ("teacher", "privileged"):
        assert any(float(row[f"train/divergence_{teacher_of}"] or 0) > 0 for row in metrics(folder))
    assert folder.with_suffix(".scored").read_text() == "xx", (
        "updates 3 and 4 had one rollout, which was scored before the kill"
    )


@pytest.fixture(scope="module")
def stopped_everywhere(tmp_path_factory):
    """Stopped by signals in updates, rollouts and validations; nothing but the signals saves within an epoch."""
    folder = tmp_path_factory.mktemp("stopped") / "run"
    stops = [
        (in_rollout("train", send(signal.SIGTERM)), 0),
        (in_update(1, send(signal.SIGTERM)), 1),
        (in_rollout("train", send(signal.SIGINT)), 2),
        (in_update(4, send(signal.SIGTERM)), 4),
        (in_rollout("validation", send(signal.SIGTERM)), 4),
        (in_update(7, send(signal.SIGTERM)), 7),
        (in_update(8, send(signal.SIGINT)), 8),
    ]
    for before, saved in stops:
        code = fit(folder, "--ckpt_path", "auto", before=noting_draws(folder, before))
        assert code in (143, 130), said(folder)
        last = said(folder).splitlines()[-1]
        if saved:
            assert checkpoint(folder)["global_step"] == saved
            assert last.endswith(f"after update {saved}. To go on: the same command again")
        else:
            assert last == "Stopped by SIGTERM. To go on: the same command again."
    assert code == 130
    assert fit(folder, "--ckpt_path", "auto", before=noting_draws(folder)) == 0, said(folder)
    return folder


def test_stopped_by_signals_everywhere_a_run_goes_on_bit_for_bit(whole, stopped_everywhere):
    assert_the_same(stopped_everywhere, whole)


def test_with_validations_within_rollouts_too_a_run_goes_on_bit_for_bit(tmp_path):
    validating = (*EVERY, *SHORT, "--trainer.val_check_interval", "1", "--ckpt_path", "auto")
    assert fit(tmp_path / "whole", *validating) == 0, said(tmp_path / "whole")
    folder = tmp_path / "run"
    assert fit(folder, *validating, before=killed_after(1)) == -signal.SIGKILL
    in_the_second = in_rollout("validation", send(signal.SIGTERM), at_episode=2, rollout=2)
    assert fit(folder, *validating, before=in_the_second) == 143
    assert checkpoint(folder)["global_step"] == 3
    assert fit(folder, *validating) == 0, said(folder)
    assert_the_same(folder, tmp_path / "whole", num_updates=4)


def test_random_numbers_of_an_update_do_not_depend_on_interruptions(whole, stopped_everywhere):
    assert draws(stopped_everywhere) == draws(whole)
    assert len(set(draws(whole))) == NUM_UPDATES


def test_tensorboard_goes_on_without_repeats(whole, stopped_everywhere):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    steps = []
    for run in (whole, stopped_everywhere):
        events = EventAccumulator(str(run / "tensorboard"))
        events.Reload()
        steps.append([e.step for e in events.Scalars("train/gradient_norm")])
    assert steps[0] == steps[1] == list(range(NUM_UPDATES))


def test_a_second_signal_ends_a_run_at_once(tmp_path):
    def twice() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGTERM)

    folder = tmp_path / "run"
    assert fit(folder, before=in_update(1, twice)) == -signal.SIGTERM
    assert "SIGTERM: stopping after this update; once more stops at once" in said(folder)
    assert not list((folder / "checkpoints").glob("*"))


def test_a_first_rollout_that_is_stopped_within_the_engine_says_two_lines_and_the_same_command_begins_again(tmp_path):
    def stopped_in_a_pass() -> None:
        passes, num = PackedForward.__call__, [0]

        def stopping(self, *arguments, **options):
            num[0] += 1
            if num[0] == 3:
                os.kill(os.getpid(), signal.SIGINT)
            return passes(self, *arguments, **options)

        PackedForward.__call__ = stopping

    folder = tmp_path / "run"
    assert fit(folder, before=stopped_in_a_pass) == 130
    assert said(folder).splitlines()[-2:] == [
        "SIGINT: stopping now; once more stops at once",
        "Stopped by SIGINT. To go on: the same command again.",
    ]
    assert "Traceback" not in said(folder)
    assert fit(folder) == 0, said(folder)


def test_a_damaged_checkpoint_costs_an_update_and_a_warning(whole, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(whole, folder, symlinks=True)
    newest = folder / "checkpoints" / f"update-{NUM_UPDATES:08}.ckpt"
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(content)
    assert fit(folder, *EVERY, "--ckpt_path", "last") == 0, said(folder)
    assert "checkpoints/last.ckpt is damaged: " in said(folder)
    assert f"Going on from the one before, {folder}/checkpoints/update-00000007.ckpt" in said(folder)
    assert_the_same(folder, whole)


def test_without_room_a_run_ends_with_a_message_and_its_checkpoint_of_before(whole, tmp_path):
    folder = tmp_path / "run"
    limit = (200_000, resource.RLIM_INFINITY)
    no_room = in_update(3, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit))
    assert fit(folder, *EVERY, before=no_room) == 1
    last = said(folder).splitlines()[-1]
    assert f"error: SaveFailed: no checkpoint could be written in {folder}/checkpoints (" in last
    assert " bytes are free. Those of before are whole. " in last
    assert last.endswith("go on with --ckpt_path auto."), "there may be no checkpoint yet"
    assert sorted(p.name for p in (folder / "checkpoints").iterdir()) == [
        "last.ckpt",
        "update-00000001.ckpt",
        "update-00000002.ckpt",
    ]
    assert fit(folder, *EVERY, "--ckpt_path", "auto") == 0, said(folder)
    assert_the_same(folder, whole)


def test_slurm_requeues_a_run_that_has_been_saved(whole, tmp_path):
    folder, calls = tmp_path / "run", tmp_path / "calls"
    scontrol = tmp_path / "bin" / "scontrol"
    scontrol.parent.mkdir()
    scontrol.write_text(f'#!/bin/sh\necho "$@" >> {calls}\nls {folder}/checkpoints >> {calls}\nkill -TERM $PPID\n')
    scontrol.chmod(0o755)
    slurm = {"SLURM_NTASKS": "1", "SLURM_JOB_ID": "1234", "SLURM_JOB_NAME": "train", "SLURM_NNODES": "1"}
    ranks = dict.fromkeys(("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID"), "0")

    def in_slurm(then: Callable[[], None]) -> Callable[[], None]:
        def before() -> None:
            os.environ.update(slurm | ranks | {"PATH": f"{scontrol.parent}:{os.environ['PATH']}"})
            then()

        return before

    code = fit(folder, "--ckpt_path", "auto", before=in_slurm(in_update(3, send(signal.SIGUSR1))))
    assert code in (128 + signal.SIGUSR1, -signal.SIGTERM), said(folder)  # Slurm ends what it requeues
    assert calls.read_text().split() == ["requeue", "1234", "last.ckpt", "update-00000003.ckpt"]
    assert fit(folder, "--ckpt_path", "auto", before=in_slurm(lambda: None)) == 0, said(folder)
    assert_the_same(folder, whole)


def test_a_checkpoint_of_elsewhere_is_no_leave_to_write_over_another_run_and_a_link_to_one_s_own_is_own(
    whole, tmp_path
):
    other, link = tmp_path / "other", tmp_path / "best.ckpt"
    shutil.copytree(whole, other, symlinks=True)
    longer = ("--trainer.max_epochs", "3")
    assert fit(other, *longer, "--ckpt_path", str(whole / "checkpoints" / "last.ckpt")) == 2
    assert "expected a folder without a run. Name another one, go on with --ckpt_path auto" in said(other)
    assert_the_same(other, whole)
    link.symlink_to(other / "checkpoints" / "last.ckpt")
    assert fit(other, *longer, "--ckpt_path", str(link)) == 0, said(other)
    assert metrics(other)[: len(metrics(whole))] == metrics(whole)
    assert (other / "checkpoints" / f"update-{NUM_UPDATES:08}.ckpt").exists()


@pytest.mark.soak
def test_changes_that_were_accepted_are_told_and_trained_with(whole, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(whole, folder, symlinks=True)
    more = ("--ckpt_path", "last", "--trainer.max_epochs", "3", "--model.loss.clip_low", "0.1")
    assert fit(folder, *more) == 2
    assert "changed model.loss.clip_low: 0.2 -> 0.1." in said(folder)
    assert fit(folder, *more, "--accept_changes", "true") == 0, said(folder)
    assert "with changes: model.loss.clip_low: 0.2 -> 0.1" in said(folder)
    assert checkpoint(folder)["global_step"] == NUM_UPDATES + 4
    assert checkpoint(folder)["run_config"]["config"]["accept_changes"] is False


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_runs_that_take_each_other_s_cores_are_the_same_on_two_threads(tmp_path):
    kept = {name: value for name, value in os.environ.items() if name != "MKL_CBWR"} | {"OMP_NUM_THREADS": "2"}
    line = [sys.executable, "-m", "cod_lightning", "fit", "--config", "smoke", "--data.suites", "[]"]
    folders = [tmp_path / name for name in "abc"]
    runs = [subprocess.Popen([*line, "--trainer.default_root_dir", str(one)], env=kept) for one in folders]
    assert [run.wait() for run in runs] == [0, 0, 0]
    first, *others = (metrics(folder) for folder in folders)
    assert all(other == first for other in others)
