"""Commands on a run's folder, and every command of the first pages, in processes of their own."""

import io
import json
import re
import shlex
import shutil
import sys

import pytest

from cod_lightning.cli import main
from cod_lightning.commands import phase
from cod_lightning.commands.train import TrainCLI
from cod_lightning.rollout.transcript import load
from tests.command_line import ROOT, cod
from tests.forked_fit import assert_alike, metrics
from tests.guides import blocks

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
WARM = "--warm_start.num_updates 60 --warm_start.num_packs 60"
SHORT = (
    f"--torch_threads 1 --trainer.max_epochs 1 --data.rollouts_per_epoch 2 --data.packs_per_rollout 8 --data.val_packs 8 {WARM} "
    "--data.suites null"
)


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    """The folder of a run of a few updates, its warm start included."""
    folder = tmp_path_factory.mktemp("short")
    done = cod("fit", "--config", "smoke", *SHORT.split(), cwd=folder, fresh=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder / "runs" / "smoke"


@pytest.mark.parametrize("extra", [(), pytest.param(("--model.token_budget", "700"), marks=pytest.mark.soak)])
def test_the_same_seed_gives_the_same_metrics(short, tmp_path, extra):
    root = ("--trainer.default_root_dir", str(tmp_path / "again"))
    done = cod("fit", "--config", "smoke", *SHORT.split(), *root, *extra, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    found = [metrics(folder) for folder in (short, tmp_path / "again")]
    if not extra:
        assert found[0] == found[1]
    assert_alike(*found)


def test_a_checkpoint_is_tested_on_named_suites(short, tmp_path):
    checkpoint = str(short / "checkpoints" / "last.ckpt")
    suites = [
        {"name": "loop", "num_packs": 2, "wrap": "ralph_loop", "warm_start_temperatures": [1.0]},
        {"name": "long", "num_packs": 2, "pack_size": 9, "warm_start_temperatures": [1.0]},
    ]
    (tmp_path / "mine.yaml").write_text(json.dumps(suites))
    chosen = ("--ckpt_path", checkpoint, "--data.suites", "[mine.yaml]", "--trainer.default_root_dir", "t")
    done = cod("test", "--config", "smoke", *WARM.split(), *chosen, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    suites = json.loads((tmp_path / "t" / "evaluation.json").read_text())["suites"]
    assert list(suites) == ["loop", "long"]
    assert suites["loop"]["checkpoint"] == checkpoint
    assert {"warm_start", "oracle", "blanked_context"} <= suites["long"]["controls"].keys()


def test_a_checkpoint_plays_the_validation_packs(short, tmp_path):
    checkpoint = ("--ckpt_path", str(short / "checkpoints" / "last.ckpt"))
    root = ("--trainer.default_root_dir", "played", "--data.val_packs", "8")
    done = cod("validate", "--config", "smoke", *WARM.split(), *root, *checkpoint, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    recorded = list((tmp_path / "played" / "lifecycles").glob("*.jsonl"))
    assert len(recorded) == 1
    assert len(load(recorded[0].read_text().splitlines())) == 8


def typed_commands():
    """Those of the README and of the first hour, each once."""
    text = "".join((ROOT / page).read_text() for page in ("README.md", "docs/start.md"))
    blocks = re.findall(r"```bash\n(.*?)```", text, flags=re.S)
    lines = [line.partition("#")[0].strip() for block in blocks for line in block.splitlines()]
    return list(dict.fromkeys(line for line in lines if line.startswith("python -m cod_lightning")))


@pytest.mark.parametrize("command", typed_commands())
def test_a_command_of_the_first_pages_parses_and_builds(command, short, tmp_path):
    arguments = shlex.split(command)[3:]
    (tmp_path / "mine.yaml").write_text("model: {lr: 0.5}\n")
    (tmp_path / "runs").mkdir()
    for name in ("quickstart", "slower", "task_credit"):
        shutil.copytree(short, tmp_path / "runs" / name)
    plain = arguments[0] in ("worlds", "play", "check", "report")
    if arguments[0] == "sweep":
        arguments.append("--print_jobs")
    elif not plain and "--help" not in arguments and "--print_config" not in arguments:
        arguments.append("--print_config")
    done = cod(*arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout


GUIDES = ROOT / "docs" / "guides"
ABSENT = (
    "expected vLLM in this environment",
    "expected textworld in this environment",
    "expected an existing checkpoint",
    "expected a folder of transcripts",
    "expected a folder of a model, and there is none of this name",
    "expected a folder, hub name or GGUF file",
    "expected a vLLM server",
)
"""What is said where a command is right and this machine lacks something: an extra, a model, a server, an earlier run."""
BEHIND = {
    **dict.fromkeys(("deploy", "evolve", "plan", "serve"), "--print_config"),
    **{"sweep": "--print_jobs", "check": "--num_packs=2"},
}
"""What keeps a command of a guide short."""
NEEDS = {
    **dict.fromkeys(("wugs", "arc.yaml", "mastermind.yaml"), "a file of its page; tests/test_trained_on.py runs it"),
    "evolved/context.yaml": "what `evolve` writes",
    "--table": "a sweep that has run",
    "method=grpo,rec,loop,cispo": "seconds for each of its twelve jobs; others print theirs",
}


def guided():
    """Commands that the guides name, each once: what stands before, and the words from the command on."""
    pages = "".join(page.read_text() for page in sorted(GUIDES.glob("*.md")))
    lines = "".join(blocks("bash", pages)).replace("\\\n", " ")
    of = "|".join(("fit", "test", "export", "play", *BEHIND))
    found = re.findall(rf"^(.*)-m cod_lightning ((?:{of}) (?:'[^']*'|[^\n'#])*)", lines, flags=re.M)
    for before, typed in dict.fromkeys(found):
        why = next((f"needs {why}" for name, why in NEEDS.items() if name in typed), "")
        yield pytest.param(before, typed, marks=pytest.mark.skip(why) if why else ())


@pytest.mark.parametrize(("before", "typed"), [*guided()])
def test_a_command_of_a_guide_is_accepted_unless_this_machine_lacks_something(
    before, typed, tmp_path, monkeypatch, capsys
):
    def begins(*_):
        raise SystemExit(99)

    monkeypatch.setattr(TrainCLI, "act", begins)
    monkeypatch.setattr(phase, "ensure_warm_start", begins)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    monkeypatch.setenv("JUDGE_BASE_URL", "http://localhost:8000/v1")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rubric.txt").write_text("1: explores. 0: repeats.")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "my_programs.py").write_text("".join(blocks("python", (GUIDES / "programs.md").read_text())))
    for folder in ("short_notes", "topic_notes", "hidden_number", "vending_machine", "parcels"):
        monkeypatch.syspath_prepend(ROOT / "examples" / folder)
    monkeypatch.syspath_prepend(tmp_path)
    if "torchrun" in before:
        for name, value in {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "NODE_RANK": "0"}.items():
            monkeypatch.setenv(name, value)
    words = shlex.split(typed)
    try:
        code = main([*words, *BEHIND.get(words[0], "").split()])
    except SystemExit as ended:
        code = ended.code or 0
    said = capsys.readouterr().err
    assert code == (99 if words[0] in ("fit", "test") else 0) or any(one in said for one in ABSENT), said[-1000:]
