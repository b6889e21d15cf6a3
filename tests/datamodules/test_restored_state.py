"""What a checkpoint keeps of the data, restored or refused."""

from types import SimpleNamespace
from typing import Any

import pytest

from cod_lightning.errors import ConfigError
from datamodules import RolloutDataModule


@pytest.mark.parametrize("value", [None, {}, [], 10**400, "x", {"stream": 3}])
def test_a_state_that_cannot_be_restored_is_refused_in_one_line(value):
    data: Any = RolloutDataModule.__new__(RolloutDataModule)
    data.trainer = None
    data.stream = SimpleNamespace(restore=lambda kept: kept["at"])
    with pytest.raises(
        ConfigError, match="ckpt_path is a damaged checkpoint; expected one whose state of the data"
    ) as refused:
        data.load_state_dict({"rollouts": {}, "stream": value, "last_rollout": value})
    assert "\n" not in str(refused.value)
