"""`worlds`, and how commands build the world that is named."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from cod_lightning.cli import main
from cod_lightning.commands.shipped import files_of
from cod_lightning.commands.worlds import description, parse_world, protocol
from cod_lightning.envs.base import TextEnv, Vocabulary, beside
from cod_lightning.types import Split

ROOT = Path(__file__).parents[2]

NEEDS = {"reasoning_gym": "reasoning_gym", "textarena": "textarena", "textworld": "textworld"}
"""Modules that worlds of others need, by the beginning of their names."""


def _world(*argv: str) -> TextEnv:
    return parse_world("play", "", argv).env


def test_the_list_names_every_world_with_a_line(capsys):
    assert main(["worlds"]) == 0
    shown = capsys.readouterr().out
    for name, path in files_of("env").items():
        assert name in shown
        assert 20 < len(description(path)) < 200, f"{path} needs a comment line that says what it is"


def test_questions_on_disk_are_described_and_checked(tmp_path, capsys):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(f'{{"ask": "q{n}", "answer": "a{n}", "group": {n // 4}}}\n' for n in range(20)))
    more = ["--env.prompt", "ask", "--num_packs", "3"]
    assert main(["check", "--env", "dataset", "--env.path", str(path), *more]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "ask, answer, group" in shown
    assert "20 rows" in shown
    assert "5 groups of 4 tasks" in shown
    assert "No rule is broken." in shown
    path.write_text(path.read_text() + '{"ask": "q", "answer": "a", "group": 9}\n')
    assert main(["check", "--env", "dataset", "--env.path", str(path), *more]) == 1
    assert "group 9 has one row" in " ".join(capsys.readouterr().out.split())


def _worlds():
    """All, and in the default tests the first of each kind."""
    seen = set()
    for name in files_of("env"):
        kind = name.partition("_")[0]
        yield pytest.param(name, marks=[pytest.mark.slow] * (kind in seen))
        seen.add(kind)


@pytest.mark.parametrize("name", list(_worlds()))
def test_a_shipped_world_is_built_by_its_name_and_draws_packs(name, tmp_path):
    if module := next((NEEDS[begin] for begin in NEEDS if name.startswith(begin)), None):
        pytest.importorskip(module, reason=f"pip install -e '.[{module.replace('_', '-')}]'")
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(f'{{"prompt": "q{n}", "answer": "a{n}", "group": {n // 2}}}\n' for n in range(20)))
    more = ("--env.path", str(rows)) if name == "dataset" else ()
    env = _world("--env", name, *more)
    pack = env.sample_pack(split=Split.TEST, index=0, num_tasks=2)
    env.reset(options={"task": pack.tasks[0]})
    assert env.rules
    assert bool(beside(env, Vocabulary).words()) == (protocol(files_of("env")[name]) == "compact")


def test_parameters_follow_the_name(tmp_path):
    assert _world("--env", "levers", "--env.max_turns", "5").max_turns == 5
    assert _world("--env=env/levers.yaml", "--env.max_turns=4").max_turns == 4
    assert _world("--env", "cod_lightning.envs.levers.Levers", "--env.max_turns", "3").max_turns == 3
    own = tmp_path / "mine.yaml"
    own.write_text(yaml.safe_dump({"class_path": "cod_lightning.envs.levers.Levers", "init_args": {"max_turns": 7}}))
    assert _world("--env", str(own)).max_turns == 7


@pytest.mark.slow
def test_worlds_and_play_start_without_torch_and_fast():
    code = (
        "from cod_lightning.cli import main; "
        "status = main(['worlds']) or main('play --env levers --policy scripted --index 1'.split()); "
        "import sys; loaded = {'torch', 'transformers', 'lightning'} & set(sys.modules); "
        "raise SystemExit(f'loaded {loaded}' if loaded else status)"
    )
    begun = os.times()
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    ended = os.times()
    assert ended.children_user - begun.children_user < 3, "about 0.4 s of computing"


def test_every_key_may_be_an_assignment_and_a_value_may_look_like_one():
    options = {"index": (int, 0, ""), "note": (str, "", "")}
    parsed = parse_world("play", "", ["env=levers", "env.max_turns=4", "index=3", "--note", "epoch=3.ckpt"], options)
    assert (parsed.env.max_turns, parsed.index, parsed.note) == (4, 3, "epoch=3.ckpt")
