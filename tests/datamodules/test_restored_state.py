"""What a checkpoint keeps of the data, restored or refused."""

from types import SimpleNamespace
from typing import Any

import pytest

from cod_lightning.datamodules import RolloutDataModule
from cod_lightning.errors import ConfigError, DataError
from cod_lightning.rollout.transcript import SCHEMA
from tests.cases import each


@each("value", [None, {}, [], 10**400, "x", {"stream": 3}])
def test_a_state_that_cannot_be_restored_is_refused_in_one_line(value):
    data: Any = RolloutDataModule.__new__(RolloutDataModule)
    data.trainer = None
    data.stream = SimpleNamespace(restore=lambda kept: kept["at"])
    with pytest.raises(ConfigError, match="ckpt_path is a damaged checkpoint") as refused:
        data.load_state_dict({"schema": SCHEMA, "rollouts": {}, "stream": value})
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("kept", [{"stream": {}, "rollouts": {}}, {"schema": SCHEMA - 1, "stream": {}, "rollouts": {}}])
def test_a_checkpoint_of_an_earlier_version_is_refused_with_what_to_do(kept):
    data: Any = RolloutDataModule.__new__(RolloutDataModule)
    data.trainer = None
    with pytest.raises(DataError, match=r"go on with that version, or begin a new run"):
        data.load_state_dict(kept)
