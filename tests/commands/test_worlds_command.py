"""`worlds`, and how commands build the world that is named."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from cod_lightning.cli import main
from cod_lightning.commands.worlds import description, parse_world, shipped_worlds, world_parser
from cod_lightning.envs.base import TextEnv
from cod_lightning.types import Split

ROOT = Path(__file__).parents[2]

NEEDS = {"reasoning_gym": "reasoning_gym"}
"""Modules that worlds of others need, by the beginning of their names."""


def _world(*argv: str) -> TextEnv:
    return parse_world(world_parser("play", ""), argv).env


def test_the_list_names_every_world_with_a_line(capsys):
    assert main(["worlds"]) == 0
    shown = capsys.readouterr().out
    for name, path in shipped_worlds().items():
        assert name in shown
        assert 20 < len(description(path)) < 200, f"{path} needs a comment line that says what it is"


@pytest.mark.parametrize("name", shipped_worlds())
def test_a_shipped_world_is_built_by_its_name_and_draws_packs(name, tmp_path):
    if module := next((NEEDS[begin] for begin in NEEDS if name.startswith(begin)), None):
        pytest.importorskip(module, reason=f"pip install 'cod-lightning[{module.replace('_', '-')}]'")
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(f'{{"prompt": "q{n}", "answer": "a{n}", "group": {n // 2}}}\n' for n in range(20)))
    more = ("--env.path", str(rows)) if name == "dataset" else ()
    env = _world("--env", name, *more)
    pack = env.sample_pack(split=Split.TEST, index=0, num_tasks=2)
    env.reset(options={"task": pack.tasks[0]})
    assert env.rules
    assert bool(env.words()) == ("protocol: compact" in shipped_worlds()[name].read_text())


def test_parameters_follow_the_name(tmp_path):
    assert _world("--env", "levers", "--env.max_turns", "5").max_turns == 5
    assert _world("--env=env/levers.yaml", "--env.max_turns=4").max_turns == 4
    assert _world("--env", "cod_lightning.envs.levers.Levers", "--env.max_turns", "3").max_turns == 3
    own = tmp_path / "mine.yaml"
    own.write_text(yaml.safe_dump({"class_path": "cod_lightning.envs.levers.Levers", "init_args": {"max_turns": 7}}))
    assert _world("--env", str(own)).max_turns == 7


def test_a_world_that_does_not_exist_is_named_with_the_nearest_one(capsys):
    assert main(["play", "--env", "lever"]) == 2
    assert "Did you mean levers?" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["worlds"], ["play", "--env", "levers", "--policy", "scripted", "--index", "1"]])
def test_worlds_and_play_start_without_torch_and_fast(command):
    code = (
        "import sys; from cod_lightning.cli import main; status = main(sys.argv[1:]); "
        "loaded = {'torch', 'transformers', 'lightning'} & set(sys.modules); "
        "raise SystemExit(f'loaded {loaded}' if loaded else status)"
    )
    begun = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code, *command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert time.perf_counter() - begun < 5, "about 0.4 s on a quiet machine"
