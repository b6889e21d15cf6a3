"""The config of a run is found beside its checkpoint."""

import yaml

from cod_lightning.commands.from_run import config_of_run


def test_a_run_of_earlier_versions_that_named_its_warm_start_is_read_without_that_name(tmp_path):
    checkpoint = tmp_path / "run" / "checkpoints" / "last.ckpt"
    checkpoint.parent.mkdir(parents=True)
    checkpoint.touch()
    for named, kept in (("warm_start/levers", {}), ({"num_updates": 3}, {"warm_start": {"num_updates": 3}})):
        (tmp_path / "run" / "config.yaml").write_text(yaml.safe_dump({"warm_start": named, "model": {"lr": 1}}))
        assert config_of_run(str(checkpoint)) == {"model": {"lr": 1}} | kept
