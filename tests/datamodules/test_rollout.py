"""Which packs a run plays, what it refuses of a policy, and what a checkpoint keeps of the data."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from cod_lightning.callbacks.weight_sync import WeightSync
from cod_lightning.contexts import HintContext
from cod_lightning.datamodules.rollout import SCHEMA, RolloutDataModule
from cod_lightning.engines import TransformersEngine
from cod_lightning.envs.levers import Levers
from cod_lightning.errors import ConfigError, DataError
from cod_lightning.models import PretrainedPolicy
from cod_lightning.types import Split
from tests.cases import each
from tests.random_checkpoint import saved_checkpoint
from tests.small_fit import small_fit
from tests.stubs import WordWorld


def test_training_packs_go_by_the_run_s_seed_and_those_of_validation_are_the_same_in_every_run(tmp_path):
    drawn = set()

    class Noting(WordWorld):
        def sample_pack(self, *, split, index, num_tasks, seed=0):
            drawn.add((split, seed))
            return super().sample_pack(split=split, index=index, num_tasks=num_tasks, seed=seed)

    small_fit(tmp_path, WeightSync(), world=Noting(), seed=5, rollouts_per_epoch=1)
    assert drawn == {(Split.TRAIN, 5), (Split.VALIDATION, 0)}


@each("odd", [{"spec": object()}, {"repeat": "no"}, {"seed": 0.5}])
def test_a_world_whose_tasks_no_record_can_hold_is_refused_by_key(tmp_path, odd):
    class Odd(WordWorld):
        def sample_pack(self, **options):
            pack = super().sample_pack(**options)
            return replace(pack, tasks=tuple(replace(task, **odd) for task in pack.tasks))

    with pytest.raises(ConfigError, match=r"data\.env is Odd; .* that draws packs"):
        small_fit(tmp_path, WeightSync(), world=Odd())


def test_a_world_without_validation_packs_is_refused_by_key(tmp_path):
    class Training(WordWorld):
        def sample_pack(self, *, split, **options):
            return None if split is Split.VALIDATION else super().sample_pack(split=split, **options)

    with pytest.raises(ConfigError, match=r"data\.env is Training; .* that draws packs \(TypeError"):
        small_fit(tmp_path, WeightSync(), world=Training())


def test_a_window_beyond_the_positions_of_the_checkpoint_is_refused_by_key(tmp_path):
    data, folder = RolloutDataModule(Levers(), HintContext(), TransformersEngine()), str(saved_checkpoint(tmp_path))
    with pytest.raises(ConfigError, match=r"model\.policy\.window is 16385"):
        data.check_with(PretrainedPolicy(folder, window=16385))
    data.check_with(PretrainedPolicy(folder, window=16384))


@each("value", [None, {}, [], 10**400, "x", {"stream": 3}])
def test_a_state_that_cannot_be_restored_is_refused_in_one_line(value):
    data: Any = RolloutDataModule.__new__(RolloutDataModule)
    data.trainer = None
    data.stream = SimpleNamespace(restore=lambda kept: kept["at"])
    with pytest.raises(ConfigError, match="ckpt_path is a damaged checkpoint") as refused:
        data.load_state_dict({"schema": SCHEMA, "rollouts": {}, "stream": value})
    assert "\n" not in str(refused.value)


@each(
    ("schema", "rollouts"),
    [
        (None, {}),
        (3, {"ahead": []}),
        (4, {"ahead": [{"packs": [], "parts": []}]}),
        (4, {"ahead": [], "in_flight": [{"lines": None}]}),
        (4, {"ahead": [], "owed": {"rollouts": [1]}}),
    ],
)
def test_a_checkpoint_of_an_earlier_version_is_refused_with_what_to_do(schema, rollouts):
    data: Any = RolloutDataModule.__new__(RolloutDataModule)
    data.trainer = None
    with pytest.raises(DataError, match=r"go on with that version, or begin a new run"):
        data.load_state_dict({"schema": schema, "stream": {}, "rollouts": rollouts})
