"""What may differ between a checkpoint's config and that of the run which goes on from it."""

import re
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
import yaml

from cod_lightning.checkpoints.changes import check_changes, check_same_policy, check_same_warm_start
from cod_lightning.checkpoints.checkpoint import Checkpoint, read_checkpoint
from cod_lightning.commands.phase import WarmStart
from cod_lightning.errors import ConfigError
from cod_lightning.seeds import derive_seed
from tests.cases import each

CONFIG = {
    "seed_everything": 1,
    "sampled_token_budget": None,
    "trainer": {"max_epochs": 3, "devices": 1, "precision": None, "logger": None},
    "model": {
        "lr": 0.002,
        "policy": {"class_path": "a.TinyPolicy", "init_args": {"hidden_size": 64}},
        "reweight": None,
    },
    "data": {
        "env": {"class_path": "b.Levers", "init_args": {"max_turns": 2}},
        "context": {"class_path": "c.Hint", "init_args": {}},
        "max_new_tokens": 8,
        "program": {"class_path": "d.ConnectTheDots", "init_args": {"every": 1}},
        "enable_thinking": False,
        "rewrite_history": None,
        "pack_size": 4,
        "rollouts_per_epoch": 10,
        "suites": [{"name": "held_out"}],
    },
}


def kept(folder: Path, **more) -> Path:
    content = {"cod_lightning": {"version": "0"}}
    torch.save(content | {"run_config": {"config": CONFIG, "num_processes": 1}} | more, folder / "k.ckpt")
    return folder / "k.ckpt"


def changed(**values) -> str:
    """The config with other values at `a__b` keys."""
    config = yaml.safe_load(yaml.safe_dump(CONFIG))
    for key, value in values.items():
        at = config
        *path, name = key.split("__")
        for part in path:
            at = at[part]
        at[name] = value
    return yaml.safe_dump(config)


def test_how_long_where_and_what_is_logged_may_change(tmp_path, capsys):
    lengths = {"trainer__max_epochs": 9, "sampled_token_budget": 1000}
    config = changed(**lengths, trainer__logger=False, trainer__devices="auto", data__suites=None)
    check_changes(read_checkpoint(kept(tmp_path)), config, 1, accepted=False)
    assert capsys.readouterr().err == ""


OF_THE_POLICY = [
    ({"model__policy__init_args": {"hidden_size": 32}}, "model.policy.hidden_size: 64 -> 32"),
    ({"data__program__init_args": {"every": 2}}, "data.program.every: 1 -> 2"),
    ({"data__enable_thinking": True}, "data.enable_thinking: False -> True"),
    ({"data__rewrite_history": True}, "data.rewrite_history: null -> True"),
    ({"data__env": {"class_path": "b.FrozenLake", "init_args": {}}}, "data.env: Levers -> FrozenLake"),
    ({"data__env__init_args": {"max_turns": 3}}, "data.env.max_turns: 2 -> 3"),
    ({"data__max_new_tokens": 7}, "data.max_new_tokens: 8 -> 7"),
    ({"data__context": {"class_path": "c.Notebook", "init_args": {}}}, "data.context: Hint -> Notebook"),
    ({"model__policy": {"class_path": "a.PretrainedPolicy", "init_args": {}}}, "model.policy: TinyPolicy -> Pretrain"),
]
"""What decides how a checkpoint's policy acts."""
OF_THE_TRAINING = [
    ({"data__pack_size": 8}, "data.pack_size: 4 -> 8"),
    ({"seed_everything": 2}, "seed_everything: 1 -> 2"),
    ({"model__reweight": {"trigger": 1.0}}, "model.reweight: null -> {'trigger': 1.0}"),
    ({"trainer__precision": "bf16-true"}, "trainer.precision: null -> bf16-true"),
]


@each(("change", "said"), [*OF_THE_POLICY, *OF_THE_TRAINING])
def test_another_training_is_refused_with_what_changed(change, said, tmp_path):
    with pytest.raises(ConfigError, match="Undo the changes, or add --accept_changes true") as refused:
        check_changes(read_checkpoint(kept(tmp_path)), changed(**change), 1, accepted=False)
    assert said in str(refused.value)


def test_what_a_foreign_checkpoint_differs_by_is_listed_in_a_line_that_ends(tmp_path):
    many = {f"data__{'x' * 300}{n}": n for n in range(1000)}
    with pytest.raises(ConfigError, match=r"data\.x{195}: null -> 0; .*; and 970 more\. Undo") as refused:
        check_changes(read_checkpoint(kept(tmp_path)), changed(**many), 1, accepted=False)
    assert len(str(refused.value)) < 10_000


def test_accepted_changes_are_told(tmp_path, capsys):
    config = changed(data__pack_size=8, data__rollouts_per_epoch=5)
    check_changes(read_checkpoint(kept(tmp_path)), config, 2, accepted=True)
    said = capsys.readouterr().err
    for change in ("data.pack_size: 4 -> 8", "data.rollouts_per_epoch: 10 -> 5", "number of processes: 1 -> 2"):
        assert change in said


def test_a_checkpoint_without_a_config_is_taken_with_a_warning(tmp_path, capsys):
    check_changes(read_checkpoint(kept(tmp_path, run_config=None)), changed(), 1, accepted=False)
    assert "does not hold its config" in capsys.readouterr().err


def played(folder: Path, words=("a", "b"), accepted=False, **change) -> None:
    """Play a checkpoint whose run had the words a and b."""
    run = {"config": CONFIG, "num_processes": 1, "vocabulary": derive_seed("vocabulary", "a", "b")}
    checkpoint = read_checkpoint(kept(folder, run_config=run))
    check_same_policy(checkpoint, yaml.safe_load(changed(**change)), words, accepted=accepted)


def test_a_policy_is_played_as_it_was_trained_however_it_was_built_and_trained(tmp_path, capsys):
    more = {
        "class_path": "a.TinyPolicy",
        "init_args": {"hidden_size": 64, "weights": "x", "gradient_checkpointing": True},
    }
    unknown_then = "a key that the version of then did not have"
    played(tmp_path, model__policy=more, data__pack_size=9, model__lr=1.0, data__chat_template_kwargs=unknown_then)
    assert capsys.readouterr().err == ""


@each(("change", "said"), OF_THE_POLICY)
def test_another_environment_context_plan_policy_or_form_of_dialogues_is_refused_unless_it_is_accepted(
    change, said, tmp_path, capsys
):
    with pytest.raises(ConfigError, match="add --accept_changes true to play it all the same") as refused:
        played(tmp_path, **change)
    assert said in str(refused.value)
    played(tmp_path, accepted=True, **change)
    assert said in capsys.readouterr().err


@each("words", [("b", "a"), ("a", "c"), ("a",), ()])
def test_another_vocabulary_is_refused_in_any_case(words, tmp_path):
    with pytest.raises(ConfigError, match=r"its run had other words \(with this config\)\. .* has changed since"):
        played(tmp_path, words, accepted=True)


def begun(**more):
    """A config with a warm start."""
    begun = {"warm_start": asdict(WarmStart()), "trainer": {"accelerator": "cpu", "precision": None}}
    return CONFIG | begun | {"seed_everything": 1} | more


def compared(run, asked):
    """Take the warm start of this config for that which a checkpoint of the run began with."""
    check_same_warm_start(Checkpoint(Path("a.ckpt"), {"run_config": {"config": run}}), asked)


def test_a_checkpoint_is_compared_with_the_warm_start_that_it_began_with():
    compared(begun(), begun(torch_threads=3))
    compared(begun(), begun(trainer={"accelerator": "auto", "precision": None}))
    check_same_warm_start(Checkpoint(Path("a.ckpt"), {}), begun())


@each(
    ("run", "said"),
    [
        ({"warm_start": "warm_start/levers"}, "warm_start: warm_start/levers -> "),
        ({"warm_start": None}, "warm_start: null -> "),
        ({"warm_start": {}}, "warm_start.num_updates: null -> 1500"),
        ({"seed_everything": 2}, "seed_everything: 2 -> 1"),
        ({"data": CONFIG["data"] | {"pack_size": 8}}, "data.pack_size: 8 -> 4"),
    ],
)
def test_a_checkpoint_that_began_with_another_warm_start_is_refused(run, said):
    with pytest.raises(ConfigError, match=re.escape(said)) as refused:
        compared(begun(**run), begun())
    assert "--warm_start null" in str(refused.value)
