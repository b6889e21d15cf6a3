"""Configs by name, and which words of a command line are group choices."""

import json

import pytest
import yaml

from cod_lightning.commands import shipped
from cod_lightning.commands.config_files import expand, find_config
from cod_lightning.commands.shipped import composed, config_names, overlaid
from cod_lightning.errors import ConfigError

SMALL = """defaults: [_self_]
model: {loss: {class_path: cod_lightning.objective.losses.GRPO, init_args: {clip_low: 0.1}}}
data: {env: {class_path: cod_lightning.envs.levers.Levers, init_args: {protocol: compact}}}
"""


@pytest.fixture(autouse=True)
def _beside_a_config_that_is_composed_at_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(SMALL)


@pytest.mark.parametrize("name", ["smoke", "smoke.yaml", "configs/smoke.yaml", "configs/smoke"])
def test_a_shipped_config_is_found_from_any_folder(name):
    assert find_config(name).is_file()


def test_a_file_comes_before_a_shipped_config_of_that_name(tmp_path):
    (tmp_path / "smoke.yaml").write_text("model: {lr: 1.0}\n")
    assert find_config("smoke.yaml").resolve() == tmp_path / "smoke.yaml"


def test_groups_are_not_offered_as_configs():
    assert "quickstart" in config_names()
    assert not [name for name in config_names() if name.startswith(("env/", "model/", "recipe/"))]


@pytest.mark.parametrize(
    "words",
    [
        ["--ckpt_path", "epoch=3-step=100.ckpt"],
        ["--trainer.default_root_dir", "runs/lr=1e-4"],
        ["--trainer.default_root_dir=runs/lr=1e-4"],
    ],
)
def test_an_equals_sign_in_the_value_of_a_flag_is_no_group_choice(words):
    assert " ".join(expand(["--config", "small.yaml", *words]).argv[2:]).replace("=", " ") == " ".join(words).replace(
        "=", " "
    )


def composed_of(*typed):
    """The config that a command line becomes."""
    argv = expand(list(typed)).argv
    return yaml.safe_load(argv[argv.index("--config") + 1])


@pytest.mark.parametrize(("beside", "found"), [(["checkpoints", "metrics.csv"], "copy"), (["checkpoints"], "runs/a")])
def test_the_config_in_a_run_s_folder_means_that_folder_though_it_was_recorded_in_another(tmp_path, beside, found):
    (tmp_path / "copy").mkdir()
    for name in beside:
        (tmp_path / "copy" / name).mkdir()
    (tmp_path / "copy/config.yaml").write_text("trainer: {default_root_dir: runs/a, max_steps: 2}\n")
    assert composed_of("--config", "copy/config.yaml")["trainer"] == {"default_root_dir": found, "max_steps": 2}


LATER = '[{"name": "a"}, {"name": "b"}]'


@pytest.mark.parametrize("more", [["--data.suites", LATER], [f"data.suites={LATER}"], ["--config", "later.yaml"]])
def test_a_later_list_takes_nothing_from_the_one_that_it_replaces(tmp_path, more):
    (tmp_path / "later.yaml").write_text(f"data: {{suites: {LATER}}}\n")
    assert composed_of("--config", "experiment/endpoint", *more)["data"]["suites"] == yaml.safe_load(LATER)


def test_a_typed_list_of_mappings_takes_the_place_of_the_config_s(tmp_path):
    (tmp_path / "mine.yaml").write_text("model: {terms: [{class_path: KL, init_args: {coefficient: 0.5}}]}\n")
    found = composed_of("--config", "mine.yaml", "--model.terms", '[{"class_path": "EntropyBonus"}]')
    assert found["model"]["terms"] == [{"class_path": "EntropyBonus"}]


@pytest.mark.parametrize(
    ("more", "kept"),
    [
        (["env=own.World"], False),
        (["--data.env", "own.World", "--data.env.max_turns", "3"], False),
        (["--config", "later.yaml"], False),
        (["--data.env", "later_world.yaml"], False),
        (["--data.env", '{"class_path": "own.World", "init_args": {"max_turns": 3}}'], False),
        (["--data.env", "{max_turns: 3}"], True),
        (["--data.env", "options.yaml"], True),
        (["--data.env", "cod_lightning.envs.levers.Levers"], True),
    ],
)
def test_an_environment_of_another_class_takes_no_options_from_the_one_that_it_replaces(tmp_path, more, kept):
    (tmp_path / "later.yaml").write_text("data: {env: {class_path: own.World}}\n")
    (tmp_path / "later_world.yaml").write_text("class_path: own.World\n")
    (tmp_path / "options.yaml").write_text("max_turns: 3\n")
    env = composed_of("--config", "small.yaml", *more)["data"]["env"]
    assert ("protocol" in env.get("init_args", {})) is kept, "which a World with such an option would take"


@pytest.mark.parametrize("before", [["--print_config"], ["--data.context.init_args.penalty", "-1"]])
def test_a_group_choice_may_stand_anywhere_else(before):
    argv = expand(["--config", "smoke", *before, "env=frozen_lake_3x3"]).argv
    assert " ".join(argv[2:]).replace("=", " ") == " ".join(before).replace("=", " ")
    assert yaml.safe_load(argv[1])["data"]["env"]["class_path"] == "cod_lightning.envs.frozen_lake.FrozenLakeObscure"


@pytest.mark.parametrize("typed", ["env=doors", "--env doors", "--data.env=env/doors.yaml"])
def test_every_way_to_name_a_shipped_world_says_the_same(typed):
    assert composed_of("--config", "small.yaml", *typed.split())["data"]["env"] == yaml.safe_load(
        find_config("env/doors").read_text()
    )


LEVELS = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30)]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ('{"class_path": "Levers", "init_args": ' + '{"a":' * 5000 + "1" + "}" * 5001, "recursion"),
        ("{a0: &a0 [x, x], " + ", ".join(LEVELS) + "}", "100,000 values where its aliases are written out"),
        ('{"class_path": "Levers", "init_args": {"max_turns": 1' + "0" * 5000 + "}}", "1,000 digits"),
    ],
    ids=["deep", "aliases that multiply", "a number of 5,000 digits"],
)
def test_a_typed_world_that_no_config_can_hold_is_refused_in_a_line_that_fits_a_screen(value, said):
    with pytest.raises(ConfigError, match=said) as refused:
        expand(["--config", "smoke", f"--data.env={value}"])
    assert len(str(refused.value)) < 500


@pytest.mark.parametrize("typed", ["env=", "env=[", "--config="])
def test_a_name_that_no_file_can_have_is_shown_by_its_first_letters_alone(typed):
    with pytest.raises(ConfigError, match=r"is .?xxx") as refused:
        expand(["--config", "smoke", typed + "x" * 100_000])
    assert len(str(refused.value)) < 1000


def test_a_world_in_json_is_no_path_however_long_it_is():
    levers = {"class_path": "cod_lightning.envs.levers.Levers", "init_args": {"protocol": "compact"}}
    world = {
        "class_path": "cod_lightning.envs.mixture.Mixture",
        "init_args": {"worlds": {f"w{n}": levers for n in range(4)}},
    }
    assert composed_of("--config", "small.yaml", "--data.env", json.dumps(world))["data"]["env"] == world


@pytest.mark.parametrize("typed", ["loss=GSPO", "--model.loss GSPO"])
def test_a_class_by_its_name_takes_no_options_from_the_one_that_it_replaces(typed):
    assert composed_of("--config", "small.yaml", *typed.split())["model"]["loss"] == {"class_path": "GSPO"}


@pytest.mark.parametrize(
    "typed",
    ["policy=LoRAPolicy policy.rank=4", "--model.policy.rank=4 --model.policy=LoRAPolicy", "model.policy.rank=4 policy=LoRAPolicy"],
)  # fmt: skip
def test_a_policy_is_chosen_before_its_options_wherever_these_are_typed(typed):
    argv = expand(["--config", "small.yaml", "policy=TinyPolicy", *typed.split()]).argv
    assert argv[2:] == ["--model.policy=TinyPolicy", "--model.policy=LoRAPolicy", "--model.policy.rank=4"]


@pytest.mark.parametrize(
    ("before", "after", "kept"),
    [
        ("cod_lightning.envs.levers.Levers", "Levers", True),
        ("Levers", "cod_lightning.envs.levers.Levers", True),
        ("cod_lightning.envs.levers.Levers", "own.Levers", False),
        ("cod_lightning.envs.levers.Levers", "evers", False),
    ],
)
def test_a_class_keeps_its_options_where_it_is_named_again_and_a_namesake_has_none_of_them(before, after, kept):
    made = overlaid({"class_path": before, "init_args": {"max_turns": 2}}, {"class_path": after})
    assert ("init_args" in made) is kept


def test_a_policy_in_braces_or_in_a_file_has_its_options_beside_its_class_as_other_classes_have(tmp_path):
    (tmp_path / "own.yaml").write_text("class_path: TinyPolicy\nhidden_size: 32\n")
    for typed in ("{class_path: TinyPolicy, hidden_size: 32}", "own.yaml"):
        (_, _, policy) = expand(["--config", "small.yaml", f"policy={typed}"]).argv
        chosen = json.loads(policy.removeprefix("--model.policy="))
        assert chosen == {"class_path": "TinyPolicy", "init_args": {"hidden_size": 32}}


def test_configs_are_merged_in_their_order_above_their_defaults_whatever_is_typed_between_them(tmp_path):
    (tmp_path / "one.yaml").write_text("model: {lr: 1.0, scale: group}\n")
    (tmp_path / "two.yaml").write_text("model: {lr: 2.0}\n")
    found = composed_of("--config", "one.yaml", "--model.lr=3", "--config", "two.yaml")
    assert found == {"model": {"lr": 2.0, "scale": "group"}}
    (tmp_path / "mine.yaml").write_text("defaults: [/smoke@_global_]\nmodel: {lr: 0.5}\n")
    assert composed_of("--config", "mine.yaml")["model"]["lr"] == 0.5


def test_a_group_that_a_config_has_not_chosen_from_is_added():
    path, choice = find_config("experiment/endpoint"), "context=notebook_compact"
    assert composed(path, [choice]) == composed(path, [f"+{choice}"])


@pytest.mark.parametrize(
    "typed",
    [["env.max_turns=3"], ["--env.max_turns", "3"], ["--env.max_turns=3"], ["data.env.max_turns=3"], ["--data.env.max_turns", "3"]],
)  # fmt: skip
def test_a_key_of_a_class_may_begin_with_its_group_or_with_its_full_key(typed):
    word = expand(["--config", "smoke", *typed]).argv[-1]
    assert word.replace("init_args.", "") == "--data.env.max_turns=3"


def test_a_context_of_ones_own_takes_no_options_from_that_of_its_recipe(tmp_path):
    path = tmp_path / "mine.yaml"
    context = "{class_path: my.Notes, init_args: {length: 3}}"
    path.write_text(f"defaults: [/recipe@_global_: tiny, _self_]\ndata: {{context: {context}}}\n")
    assert composed_of("--config", str(path))["data"]["context"] == {
        "class_path": "my.Notes",
        "init_args": {"length": 3},
    }
    path.write_text("defaults: [/recipe@_global_: tiny, _self_]\ndata: {context: {init_args: {max_tokens: 3}}}\n")
    arguments = composed_of("--config", str(path))["data"]["context"]["init_args"]
    assert arguments == {"protocol": "compact", "max_tokens": 3}


def test_arguments_that_defaults_give_to_no_class_in_particular_are_those_of_the_file_s_class():
    (env, policy) = (
        composed_of("--config", f"experiment/{name}")[part][key]
        for name, part, key in (("mixture", "data", "env"), ("one_80gb_full_1_7b", "model", "policy"))
    )
    assert set(env["init_args"]["worlds"]) == {"lake", "alchemy"}
    assert policy["init_args"]["window"] == 8192


def test_methods_and_programs_are_imported_where_a_command_line_or_a_config_names_their_classes(monkeypatch, tmp_path):
    imported = []
    monkeypatch.setattr(shipped, "import_module", imported.append)
    expand(["--config", "smoke", "--model.loss", "NFT", "--data.program", "BestOfN"])
    (tmp_path / "mine.yaml").write_text("data: {source: {class_path: Bandit}}\n")
    expand(["--config", str(tmp_path / "mine.yaml")])
    named = ("lifecycles.best_of_n", "methods.nft", "methods.bandit")
    assert imported == [f"cod_lightning.{name}" for name in named]


def test_what_is_no_file_is_not_advised(tmp_path):
    (tmp_path / "folder.yaml").mkdir()
    with pytest.raises(ConfigError) as refused:
        find_config(str(tmp_path / "folder.yaml"))
    assert "folder.yaml" not in refused.value.remedy
