"""`check` as it is typed beside a world of one's own."""

import re
import subprocess
import sys

import pytest

from cod_lightning.cli import main
from cod_lightning.commands.check import _shown
from cod_lightning.commands.parser import OneLine
from cod_lightning.evaluation.verdicts import Verdict
from cod_lightning.rewards import Reward
from cod_lightning.terminal import Screen

WORLD = '''
from cod_lightning.envs.base import Vocabulary
from cod_lightning.envs.levers import Levers


class Mine(Levers):
    """A world of one's own."""


class Nameless(Levers):
    def __init__(self):
        super().__init__()
        del self.name


class BrokenVocabulary(Vocabulary):
    def words(self):
        raise LookupError("no words")


class Broken(Levers):
    companions = (BrokenVocabulary, *Levers.companions)
'''


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "own_levers.py").write_text(WORLD)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_the_last_line_says_how_many_remarks_a_person_should_look_at(folder, capsys):
    assert main(["check", "--env", "own_levers.Mine", "--num_packs", "4"]) == 0
    assert capsys.readouterr().out.endswith("No rule is broken. Look at 1 remark: it may be a mistake.\n")


@pytest.mark.parametrize(("name", "said"), [("Nameless", "name is None"), ("Broken", "LookupError: no words")])
def test_what_the_command_itself_needs_of_a_world_is_a_broken_rule(folder, capsys, name, said):
    assert main(["check", "--env", f"own_levers.{name}"]) == 1
    shown = capsys.readouterr().out
    assert said in " ".join(shown.split())
    assert shown.endswith("1 rule is broken.\n")


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["--env", "own_levers.Yours"], "'own_levers.Yours': module 'own_levers' has no attribute 'Yours' ("),
        (["--env", "no_levers.Mine"], "'no_levers.Mine': No module named 'no_levers' ("),
        (["--env", "levers", "--env.max_turnz", "3"], "Option 'max_turnz' is not accepted (Did you mean max_turns? "),
    ],
)
def test_what_is_wrong_with_a_class_is_said_once(folder, capsys, typed, said):
    with pytest.raises(SystemExit):
        main(["check", *typed])
    shown = capsys.readouterr().err
    assert said in shown
    assert not {"Union", "path but"} & set(re.findall("Union|path but", shown))


def test_a_module_that_raises_is_answered_by_its_file_and_line_where_a_key_may_be_null_too(folder, capsys):
    (folder / "own_rewards.py").write_text("class Mine(Reward):\n    pass\n")
    parser = OneLine()
    parser.add_argument("--part", type=Reward | None)
    with pytest.raises(SystemExit):
        parser.parse_args(["--part", "own_rewards.Mine"])
    shown = capsys.readouterr().err
    assert "name 'Reward' is not defined" in shown
    assert f"(Raised at {folder / 'own_rewards.py'}:1. " in shown


def test_a_long_file_name_in_what_breaks_a_rule_is_not_cut_off(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    name = f"/{'x' * 90}.py:7"
    list(_shown(Screen(), "world", [Verdict("step answers", broken=(name,))]))
    assert name in re.sub(r"\s", "", capsys.readouterr().out)


def test_a_context_of_null_is_the_usual_one(folder):
    assert main(["check", "--env", "own_levers.Mine", "--context", "null", "--num_packs", "4"]) == 0


@pytest.mark.slow
def test_a_shipped_context_is_found_by_its_class_s_name_in_a_process_that_has_not_imported_it(folder):
    typed = [sys.executable, "-m", "cod_lightning", "check", "--context", "NotebookContext"]
    done = subprocess.run(typed, cwd=folder, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
