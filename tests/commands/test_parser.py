"""Answers to keys that are not there, and to modules that raise."""

import pytest

from cod_lightning.commands.parser import OneLine
from cod_lightning.contexts import ContextMechanism
from cod_lightning.envs.base import TextEnv
from cod_lightning.errors import ConfigError
from tests.cases import each


def answered(capsys, *argv):
    parser = OneLine(prog="x")
    parser.add_argument("--num_packs", type=int, default=1)
    parser.add_argument("--config", action="config")
    parser.add_subclass_arguments(TextEnv, "env", required=False)
    parser.add_subclass_arguments(ContextMechanism, "context", required=False)
    with pytest.raises(SystemExit) as ended:
        parser.parse_args(list(argv))
    assert ended.value.code == 2
    return capsys.readouterr().err


LEVERS, GRID = "--env=cod_lightning.envs.levers.Levers", "--env=cod_lightning.envs.grid.GridNavigation"


@each(
    ("argv", "meant"),
    [
        (["--num_packz=3"], "num_packs"),
        (["--nun_packs", "3"], "num_packs"),
        ([LEVERS, "--env.max_trns", "3"], "max_turns"),
        ([GRID, "--env.side_mn", "3"], "side_min"),  # which another class declares
    ],
)
def test_a_key_that_is_not_there_is_met_with_the_nearest_that_is(capsys, argv, meant):
    assert f"Did you mean {meant}?" in answered(capsys, *argv)


def test_a_key_like_no_other_gets_no_guess(capsys):
    assert "Did you mean" not in answered(capsys, "--zzz", "3")


def test_a_class_that_is_not_there_is_met_with_the_nearest_of_its_kind(capsys):
    assert "HintKontext (Did you mean HintContext?" in answered(capsys, "--context", "HintKontext")


def test_code_that_raises_while_a_value_is_read_is_named_with_its_line():
    def looked_up(text: str) -> int:
        raise RuntimeError("no database")

    parser = OneLine(prog="x")
    parser.add_argument("--env", type=looked_up)
    with pytest.raises(ConfigError, match=r"test_parser\.py:\d+; expected .*RuntimeError: no database"):
        parser.parse_args(["--env=shop.Shop"])


def test_a_class_that_is_not_finished_is_named_as_abstract(capsys, tmp_path, monkeypatch):
    (tmp_path / "half_of_a_world.py").write_text(
        "from cod_lightning.envs.base import TextEnv\n\n\nclass Half(TextEnv):\n    rules = success = status = ''\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    said = answered(capsys, "--env", "half_of_a_world.Half")
    assert "but is abstract - " in said
    assert "Name a class that has the whole contract, as in --env NAME" in said
