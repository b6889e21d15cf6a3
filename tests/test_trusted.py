"""A foreign run's config names classes; only those of this project are imported without `--trust`."""

import re
import sys
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import yaml

from cod_lightning.cli import main
from cod_lightning.commands.config_files import expand
from cod_lightning.commands.phase import WarmStart, ensure_warm_start
from cod_lightning.commands.train import config_of_run, model_of
from cod_lightning.diagnosis.evidence import read_evidence
from cod_lightning.errors import ConfigError
from cod_lightning.trusted import OWN, check_harmless, is_trusted, only_from, parsed
from tests.cases import each
from tests.checkpoints.made import content, model
from tests.records import group
from tests.reports.made_runs import write_run

PAYLOAD = "from pathlib import Path\nPath(__file__).with_name('proof').touch()\nclass Thing: pass\n"


@pytest.fixture
def foreign(tmp_path, monkeypatch):
    """A run's folder with a module beside its config, seen from within, where Python finds the module."""
    folder = write_run(tmp_path / "run", [group("a", [[True, False], [False, True]])])
    (folder / "payload.py").write_text(PAYLOAD)
    (folder / "checkpoints").mkdir()
    torch.save(content(model()), folder / "checkpoints" / "last.ckpt")
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    sys.modules.pop("payload", None)


@pytest.mark.parametrize(
    ("command", "shorthand", "key"),
    [
        ("export", True, "data.env"),
        *(
            pytest.param(*one, marks=pytest.mark.slow)
            for one in (
                ("deploy", False, "trainer.callbacks"),
                ("export", False, "model.loss"),
                ("deploy", True, "trainer.logger"),
            )
        ),
    ],
)
def test_a_policy_of_a_foreign_run_imports_no_foreign_module(foreign, capsys, command, shorthand, key):
    named = "payload.Thing" if shorthand else {"class_path": "payload.Thing"}
    section, name = key.split(".")
    (foreign / "config.yaml").write_text(yaml.safe_dump({section: {name: [named] if name == "callbacks" else named}}))
    where = ["--out", "out"] if command == "export" else ["--state", "state"]
    argv = [command, "--ckpt_path", str(foreign / "checkpoints" / "last.ckpt"), *where]
    with pytest.raises(SystemExit):
        main([*argv, "--trust=false"])
    with pytest.raises(SystemExit):
        main(argv)
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert "payload.Thing' is not allowed" in said
    assert "Add --trust if you trust the run as you would a program." in said
    assert not Path("proof").exists()
    with pytest.raises(SystemExit):  # it is no such class; but its module was run to see that
        main([*argv, "--trust"])
    assert Path("proof").exists()


JUDGE = {
    "class_path": "cod_lightning.rewards.JudgeReward",
    "init_args": {"rubric": "r.txt", "api_key_variable": "JUDGE_API_KEY"},
}
CODE = "cod_lightning.envs.dataset.scorers.CodeTests"
TESTED = {"class_path": "cod_lightning.envs.dataset.DatasetWorld", "init_args": {"path": "rows.jsonl", "scorer": CODE}}
SERVER = {"class_path": "cod_lightning.engines.vllm_server.engine.VLLMServerEngine"}

VERIFIED = {
    "class_path": "cod_lightning.envs.programs.VerifiersWorld",
    "init_args": {"env": {"taskset": {"id": "x"}}, "tokenizer": "x", "python": "sh"},
}
PLAYED = {
    "class_path": "cod_lightning.envs.programs.ProgramWorld",
    "init_args": {"command": ["sh", "-c", "touch proof"], "path": "rows.jsonl"},
}
SERVED_TOOLS = {
    "class_path": "cod_lightning.envs.mcp_world.McpWorld",
    "init_args": {"server": ["sh", "-c", "touch proof"], "path": "rows.jsonl"},
}
LEAST: dict = {
    "model": {"policy": {"class_path": "cod_lightning.models.TinyPolicy"}},
    "data": {
        "env": {"class_path": "cod_lightning.envs.levers.Levers", "init_args": {"protocol": "compact"}},
        "context": {"class_path": "cod_lightning.contexts.HintContext", "init_args": {"protocol": "compact"}},
        "engine": {"class_path": "cod_lightning.engines.transformers.TransformersEngine"},
    },
}


def judged(url, **more):
    return {"rewards": {"j": JUDGE | {"init_args": JUDGE["init_args"] | {"base_url": url, "model": "m"} | more}}}


def served(**options):
    return {"engine": SERVER | {"init_args": options}}


HARMFUL = [
    (judged("http://localhost@evil.example/v1"), "data.rewards.j.init_args.base_url", "no address of another machine"),
    ({"env": TESTED}, "data.env.init_args.scorer.class_path", "nothing that runs programs"),
    (served(local={"arguments": ["--trust-remote-code"]}), "data.engine.init_args.local.arguments", "no arguments"),
    (
        judged("http://localhost/v1", api_key_variable="AWS_KEY"),
        "data.rewards.j.init_args.api_key_variable",
        "one of JUDGE_API_KEY",
    ),
    (judged("http://evil.example/v1"), "data.rewards.j.init_args.base_url", "no address of another machine"),
    (served(urls=["http://evil.example"]), "data.engine.init_args.urls", "no address of another machine"),
    *(({"env": env}, "data.env.class_path", "nothing that runs programs") for env in (VERIFIED, PLAYED, SERVED_TOOLS)),
]


@each(("data", "key", "expected"), HARMFUL[:1] + HARMFUL[2:])
def test_a_config_that_sends_a_key_away_or_runs_a_program_is_harmful_unless_it_is_trusted(data, key, expected):
    with only_from(OWN, trust=False):
        with pytest.raises(ConfigError, match=f"{re.escape(key)} is .*{expected}"):
            check_harmless({"data": data})
        check_harmless({"data": judged("http://127.0.0.1:8000/v1")})
    with only_from(OWN, trust=True):
        check_harmless({"data": data})


@pytest.mark.parametrize(
    ("data", "key", "expected", "as_text"),
    [(*HARMFUL[0], False), pytest.param(*HARMFUL[1], True, marks=pytest.mark.slow)],
    ids=["plain", "YAML in a text"],
)
def test_a_foreign_run_sends_no_key_away_and_runs_no_program(foreign, capsys, data, key, expected, as_text):
    (foreign / "rows.jsonl").write_text('{"prompt": "p", "answer": [{"input": "", "output": "1"}]}\n' * 40)
    written = {name: yaml.safe_dump(value) if as_text else value for name, value in data.items()}
    (foreign / "config.yaml").write_text(yaml.safe_dump(LEAST | {"data": LEAST["data"] | written}))
    assert main(["deploy", "--ckpt_path", str(foreign / "checkpoints" / "last.ckpt"), "--state", "state"]) == 2
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert said.startswith(f"error: {key} is "), said
    assert expected in said
    assert said.endswith("Add --trust if you trust the run as you would a program.")


def begun(**warm_start):
    """A run's config with this warm start."""
    data = LEAST["data"] | {"program": {"class_path": "cod_lightning.lifecycles.ConnectTheDots"}, "pack_size": 2}
    return {
        **LEAST,
        **{"seed_everything": 1, "torch_threads": None, "trainer": {"accelerator": "cpu", "precision": None}},
        "warm_start": asdict(WarmStart(**warm_start)),
        "data": data | {"max_new_tokens": 8},
    }


def test_a_warm_start_in_another_environment_of_a_foreign_run_runs_no_program_either(foreign):
    (foreign / "rows.jsonl").write_text('{"prompt": "p", "answer": "a"}\n' * 40)
    with only_from(OWN, trust=False), pytest.raises(ConfigError, match="nothing that runs programs"):
        ensure_warm_start(begun(env=PLAYED))


@each("trusted", [False, True])
def test_a_foreign_run_s_warm_start_is_made_as_its_config_is_read(trusted):
    def make_warm_start(checkpoint):
        raise ConfigError("trusted", is_trusted(), "", "")

    run = {
        "trusted": trusted,
        "model": SimpleNamespace(policy=None),
        "datamodule": None,
        "read_checkpoint": lambda: None,
    }
    cli = SimpleNamespace(config=SimpleNamespace(ckpt_path=None), make_warm_start=make_warm_start, **run)
    with pytest.raises(ConfigError, match=f"trusted is {trusted}"):
        model_of(cli, None)


def test_a_foreign_run_s_config_is_not_composed_so_that_it_reads_no_environment_variable(foreign, monkeypatch):
    monkeypatch.setenv("SECRET", "sk-1")
    content = {"defaults": ["_self_"], "hydra": {"job": {}}, "run_name": "${oc.env:SECRET}"}
    (foreign / "config.yaml").write_text(yaml.safe_dump(content))
    argv = expand([], config_of_run(str(foreign / "checkpoints" / "last.ckpt"))).argv
    assert yaml.safe_load(argv[argv.index("--config") + 1]) == content


def test_aliases_that_multiply_are_refused_before_anything_walks_through_them(foreign, capsys):
    levels = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30)]
    (foreign / "config.yaml").write_text("\n".join(["a0: &a0 [x, x]", *levels]))
    (foreign / "metrics.csv").write_text("step\n0\n")
    assert "config.yaml cannot be read (ValueError)." in read_evidence(foreign).notes
    assert main(["export", "--ckpt_path", str(foreign / "checkpoints" / "last.ckpt"), "--out", "out"]) == 2
    assert "more than 100,000 values where its aliases are written out" in capsys.readouterr().err
    assert main(["fit", "--config", str(foreign / "config.yaml")]) == 2
    assert "where its aliases are written out" in capsys.readouterr().err


def test_a_config_is_refused_before_it_takes_more_memory_than_one_does():
    doubled = "\n".join(["a0: &a0 [x]", *(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 30)), "? *a29\n: x"])
    for written in (doubled, f"[{'x,' * 1_000_000}]"):
        with pytest.raises((ValueError, yaml.YAMLError), match=r"a key is a list|more than 100,000 values"):
            parsed(written.encode())


@pytest.mark.parametrize(
    "written",
    [
        *(b"[1, 2]", b"", b"\xff\xfe", b"[" * 1000, b"a: &a [*a]", b"a: !!python/name:os.system"),
        *(b"a: !!bool maybe", b"a: !!timestamp then", b"a: 0x" + b"f" * 5000, b"? [1]\n: 2"),
    ],
)
def test_a_run_whose_config_cannot_be_read_is_refused_in_one_line(foreign, capsys, written):
    (foreign / "config.yaml").write_bytes(written)
    assert main(["export", "--ckpt_path", str(foreign / "checkpoints" / "last.ckpt"), "--out", "out"]) == 2
    (said,) = capsys.readouterr().err.strip().splitlines()
    assert main(["report", str(foreign)]) == 0
    assert re.match(r"error: --config is .*config\.yaml; expected a YAML file", said)
