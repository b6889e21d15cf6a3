"""Reward over checkpoints as curves of a report."""

import json
import re

from cod_lightning.reports.curves import checkpoint_curves
from cod_lightning.reports.run import read_run
from cod_lightning.reports.suites import read_evaluation
from tests.reports.test_card import evaluation, position


def evaluated(folder, *checkpoints, lost=()):
    """Of each checkpoint the suites `near` and `far`, whose rewards are unlike in every place, null where `lost` has it."""

    def suite(number, base):
        rewards = [base + number / 100 + place / 10 for place in range(2)]
        rewards = [None if (number, n) in lost else one for n, one in enumerate(rewards)]
        return record["suites"]["second"] | {"positions": [position(0.5) | {"reward": one} for one in rewards]}

    record = json.loads(evaluation(folder).read_text())

    found = {
        at: {"near": suite(number, 0.5), "far": suite(number, 0.1)} for number, at in enumerate(checkpoints, start=1)
    }
    (folder / "evaluation.json").write_text(json.dumps(record | {"checkpoints": found}))
    return checkpoint_curves(read_evaluation(folder).checkpoints)


def test_reward_by_position_is_drawn_over_the_checkpoints_of_a_run_in_the_order_of_their_updates(tmp_path):
    kept = [f"/runs/lake/checkpoints/update-{updates:08d}.ckpt" for updates in (20, 3, 100)]
    panels = evaluated(tmp_path, *kept, "/runs/lake/checkpoints/last.ckpt")
    assert list(panels) == ["near: reward over checkpoints", "far: reward over checkpoints"]
    first, second = panels["far: reward over checkpoints"]
    assert (first.label, first.x, first.y) == ("position 0", [3, 20, 100], [0.1 + n / 100 for n in (2, 1, 3)])
    assert (second.label, second.y) == ("position 1", [0.1 + n / 100 + 0.1 for n in (2, 1, 3)])
    assert list(read_run(tmp_path, "lake").panels)[:2] == list(panels)


def test_of_several_runs_each_has_lines_of_its_own_and_a_single_checkpoint_makes_no_curve(tmp_path):
    two = [f"/runs/{run}/checkpoints/update-{updates:08d}.ckpt" for run in "ab" for updates in (1, 2)]
    (lines, _) = evaluated(tmp_path, *two).values()
    assert [line.label for line in lines] == [f"position {place}, {run}" for run in "ab" for place in range(2)]
    assert evaluated(tmp_path, two[0]) == {}


def test_runs_whose_folders_have_one_name_have_lines_of_their_own(tmp_path):
    two = [f"/{sweep}/run/checkpoints/update-{updates:08d}.ckpt" for sweep in "ab" for updates in (1, 2)]
    lines = evaluated(tmp_path, *two)["far: reward over checkpoints"]
    assert [line.label for line in lines] == [f"position {place}, {run}/run" for run in "ab" for place in range(2)]
    assert [line.y[0] for line in lines] == [0.1 + number / 100 + place / 10 for number in (1, 3) for place in range(2)]


def test_a_reward_that_is_missing_leaves_the_other_points(tmp_path):
    kept = [f"/runs/lake/checkpoints/update-{updates:08d}.ckpt" for updates in (1, 2, 3)]
    first, second = evaluated(tmp_path, *kept, lost=[(2, 0)])["far: reward over checkpoints"]
    assert (first.x, second.x) == ([1, 3], [1, 2, 3])
    (only,) = evaluated(tmp_path, *kept, lost=[(number, 0) for number in (1, 2, 3)])["far: reward over checkpoints"]
    assert only.label == "position 1"


def test_an_evaluation_that_cannot_be_read_has_no_curves(tmp_path):
    assert read_evaluation(tmp_path).checkpoints == {}
    evaluated(tmp_path, "update-1.ckpt", "update-2.ckpt")
    content = (tmp_path / "evaluation.json").read_text()
    for damaged in ("1e400", f"{10**400}", '"high"', "[]"):
        (tmp_path / "evaluation.json").write_text(re.sub(r'("reward": )[\d.]+', rf"\g<1>{damaged}", content))
        assert checkpoint_curves(read_evaluation(tmp_path).checkpoints) == {}
