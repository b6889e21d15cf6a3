"""The display lives through rollouts, fits its terminal, and leaves plain lines in a log."""

import io
import re
import sys
import time
from pathlib import Path

import pytest
import torch
from rich.console import Console

from cod_lightning.callbacks.progress import Display, Progress, success_text
from cod_lightning.callbacks.weight_sync import WeightSync
from cod_lightning.modules import GRPOModule
from tests.played_run import PlayedData, PlayedModule, trainer
from tests.records import lifecycle
from tests.small_fit import quiet_trainer, small_data, small_policy


def progress(*, terminal: bool, width: int = 80) -> tuple[Progress, io.StringIO]:
    file, callback = io.StringIO(), Progress()
    callback.console = Console(file=file, force_terminal=terminal, width=width, color_system=None)
    return callback, file


def test_a_log_gets_one_plain_line_for_each_epoch_and_validation(tmp_path: Path) -> None:
    callback, file = progress(terminal=False)
    trainer(tmp_path, [callback]).fit(PlayedModule(), PlayedData())
    lines = [re.sub(r"\d+:\d\d:\d\d, \d+:\d\d:\d\d left", "TIME", line) for line in file.getvalue().splitlines()]
    rate = re.search(r"success (\.\d\d)", lines[0])
    assert rate
    assert lines == [
        f"4/8 updates  TIME  validation: success {rate[1]} 1.00 1.00  gain +{1 - float(rate[1]):.2f}",
        "4/8 updates  TIME  train: reward .25  log-prob gap 2.0e-06  entropy 0.400",
        f"8/8 updates  TIME  validation: success {rate[1]} 1.00 1.00  gain +{1 - float(rate[1]):.2f}",
        "8/8 updates  TIME  train: reward .25  log-prob gap 2.0e-06  entropy 0.400",
    ]
    assert "\x1b" not in file.getvalue()


def test_a_log_says_within_a_long_update_how_far_rollout_and_training_are_and_seconds_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cod_lightning.callbacks.progress._LINE_EVERY_S", 0.0)
    callback, file = progress(terminal=False)
    torch.manual_seed(0)
    fitted = quiet_trainer(tmp_path, WeightSync(), callback, enable_progress_bar=True)
    fitted.fit(GRPOModule(small_policy(), lr=1e-2), small_data())
    lines = [re.sub(r"\d+:\d\d:\d\d", "TIME", line) for line in file.getvalue().splitlines()]
    rollout = r"0/4 updates  TIME  rollout train: \d+/32 tasks  TIME(, TIME left)?"
    assert any(re.fullmatch(rollout, line) for line in lines)
    trained = [line for line in lines if "update: " in line]
    assert re.fullmatch(r"0/4 updates  TIME  update: \d+/\d+ rows  TIME, TIME left", trained[0])
    assert any(line.startswith("1/4 updates  TIME, TIME left  train: ") for line in lines)


def test_a_validation_by_itself_is_one_batch_that_ends(tmp_path: Path) -> None:
    callback, file = progress(terminal=False)
    trainer(tmp_path, [callback]).validate(PlayedModule(), PlayedData(), verbose=False)
    (line,) = file.getvalue().splitlines()
    assert line.startswith("1/1 batches")


def test_conditions_are_counted_over_all_passes_of_an_evaluation(tmp_path: Path) -> None:
    callback, file = progress(terminal=False)
    tested = trainer(tmp_path, [callback])
    callback._num_conditions = lambda: 4
    for _ in range(2):
        tested.test(PlayedModule(), PlayedData(), verbose=False)
    assert [line.split("  ")[0] for line in file.getvalue().splitlines()] == [f"{n}/4 conditions" for n in (1, 2, 3, 4)]
    alone, file = progress(terminal=False)
    trainer(tmp_path, [alone]).test(PlayedModule(), PlayedData(), verbose=False)
    assert [line.split("  ")[0] for line in file.getvalue().splitlines()] == ["1/2 conditions", "2/2 conditions"]


def test_a_terminal_shows_tasks_and_success_by_position(tmp_path: Path) -> None:
    callback, file = progress(terminal=True)
    trainer(tmp_path, [callback]).fit(PlayedModule(), PlayedData())
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", file.getvalue())
    last = text[text.rindex("fit ") :]
    assert "8/8 updates" in last
    assert "24/24 tasks" in last
    assert "validation" in last
    assert "pos1 1.00" in last
    assert "gain +" in last
    assert callback.display is None


def test_a_rollout_that_breaks_gives_the_terminal_back(tmp_path: Path) -> None:
    callback, file = progress(terminal=True)
    stdout = sys.stdout
    with pytest.raises(RuntimeError, match="broken"):
        trainer(tmp_path, [callback]).fit(PlayedModule(), PlayedData(raise_in="train"))
    assert callback.display is None
    assert sys.stdout is stdout
    assert file.getvalue().rstrip().endswith("\x1b[?25h")  # the cursor is back


@pytest.mark.slow
def test_the_display_moves_while_a_rollout_runs(tmp_path: Path) -> None:
    callback, file = progress(terminal=True)
    callback._start("fit", "updates", 8)
    callback.begin("train", 4, 2)
    for finished in (1, 2):
        one = lifecycle("p", (True, True))
        for episode in one.episodes:
            callback.episode(episode)
        callback.lifecycle(one)
        deadline = time.monotonic() + 5
        while f"{2 * finished}/8 tasks" not in file.getvalue() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert f"{2 * finished}/8 tasks" in file.getvalue()
    callback.teardown(None, None, "fit")  # pyright: ignore


def test_a_rank_above_0_shows_and_watches_nothing(tmp_path: Path) -> None:
    callback, file = progress(terminal=True)
    callback.disable()
    data = PlayedData()
    trainer(tmp_path, [callback]).fit(PlayedModule(), data)
    assert file.getvalue() == ""
    assert callback not in data.runner._observers


def test_a_run_without_an_end_has_no_total(tmp_path: Path) -> None:
    callback, file = progress(terminal=False)
    run = trainer(tmp_path, [callback], max_epochs=-1)
    run.fit_loop.epoch_loop.max_steps = 4
    run.fit(PlayedModule(), PlayedData())
    assert "4/4 updates" in file.getvalue()
    display = Display(Console(file=io.StringIO()))
    display.begin("fit", "updates", None, done=7)
    assert display.so_far("fit") == "7 updates  0:00:00"


def test_time_left_is_reckoned_from_where_this_process_began() -> None:
    display = Display(Console(file=io.StringIO()))
    display.begin("fit", "updates", 100, done=50)
    display.tasks[0].start_time -= 20
    display.update(display.tasks[0].id, completed=60)
    assert display.so_far("fit") == "60/100 updates  0:00:20, 0:01:20 left"
    display.begin("rollout", "tasks", 32)  # each of which the program solves twice
    display.tasks[1].start_time -= 20
    display.advance(display.bars["rollout"], 48)
    assert display.so_far("rollout") == "48/32 tasks  0:00:20, 0:00:00 left"


def test_success_is_that_of_the_same_lifecycles_at_every_position() -> None:
    callback, _ = progress(terminal=False)
    callback._start("fit", "updates", 8)
    callback.begin("train", 3, 3)
    ended, cut_short = lifecycle("p", (True, False, True)), lifecycle("p", (False, None, None))
    for episode in (*ended.episodes, *lifecycle("p", (True, True, True)).episodes[:1]):  # the second is still under way
        callback.episode(episode)
    assert callback.display.lines["success"] == "pos0  -   pos1  -   pos2  - "
    callback.lifecycle(ended)
    callback.lifecycle(cut_short)
    assert callback.display.lines["success"] == "pos0 .50  pos1 .00  pos2 1.00"
    assert success_text([[True, False], []]) == "pos0 .50  pos1  - "
