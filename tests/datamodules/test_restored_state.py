"""What a checkpoint keeps of the data, restored or refused."""

from types import SimpleNamespace
from typing import Any

import pytest

from cod_lightning.datamodules.rollout import SCHEMA, RolloutDataModule
from cod_lightning.errors import ConfigError, DataError
from tests.cases import each
from tests.small_fit import small_data


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


def test_one_of_the_version_before_without_a_rollout_ahead_is_gone_on_from():
    data = small_data()
    state = data.state_dict()
    data.load_state_dict(state | {"schema": SCHEMA - 1})
    assert data.state_dict() == state
