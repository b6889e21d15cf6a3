"""The model card."""

import copy
import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml
from markdown_it import MarkdownIt

from cod_lightning.reports.card import Facts, render, settings
from tests.cases import each

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SPEC = {"class_path": "pkg.Thing", "init_args": {"size": 3}}
CONFIG: dict[str, Any] = {
    "seed_everything": 1,
    "warm_start": None,
    "trainer": {"precision": None},
    "model": {
        "policy": {"class_path": "cod_lightning.models.PretrainedPolicy", "init_args": {"path": "Qwen/Qwen3-8B"}},
        **{"loss": SPEC, "credit": SPEC, "baseline": SPEC, "reweight": None, "lr": 1e-6, "terms": None},
    },
    "data": {
        **{"env": SPEC, "context": SPEC, "engine": SPEC, "pack_size": 8, "group_size": 8, "packs_per_rollout": 32},
        **{"updates_per_rollout": 2, "max_new_tokens": 512, "enable_thinking": False},
    },
}
HOSTILE = "x](http://evil) <script>alert(1)</script> | `a` ```\n# free {{ 7 * 7 }}\r\n---\n'''\"\"\""


def position(success: float | None) -> dict[str, Any]:
    bounds = None if success is None else [success - 0.02, success + 0.02]
    return {"reward": success, "reward_ci95": bounds, "success": success, "success_ci95": bounds, "n": 100}


def evaluation(folder: Path, name: str = "held_out", **suite: Any) -> Path:
    record = {
        **{"env": "lake", "packs": 100, "pack_size": 2, "temperature": 1.0, "cod_gain": 0.3},
        "positions": [position(0.5), position(0.8)],
        "controls": {
            "blanked_context": [position(0.5), position(None)],
            "warm_start_t0.3": [position(0.4), position(0.6)],
        },
        "paired": {"trained_minus_best_warm_start": None, "gain_ci95": [0.25, 0.35], "blanked_max_deviation": 0.01},
    } | suite
    path = folder / "evaluation.json"
    path.write_text(json.dumps({"suites": {name: record, "second": record}}))
    return path


def facts(**changes: Any) -> Facts:
    message: dict[str, Any] = {
        **{"name": "ours", "run": "lake-8b", "checkpoint": "last.ckpt", "updates": 1200, "written": NOON},
        **{"config": CONFIG, "world": "lake", "num_parameters": 8_000_000_000, "dtype": "bfloat16", "window": 12_000},
        **{"prompt": (("system", "rules"), ("user", "a lake")), "evaluation": None, "evaluated": None},
        **{"written_by": {"cod_lightning": "0.1.0"}, "exported_by": {"torch": "2.13"}},
    }
    return Facts(**(message | changes))


def html(card: str) -> str:
    """The page, as CommonMark with tables shows the card behind its header."""
    return MarkdownIt("commonmark").enable("table").render(card.split("\n---\n", 1)[1])


def test_every_suite_is_there_with_its_controls_and_intervals(tmp_path: Path) -> None:
    card = render(facts(evaluation=evaluation(tmp_path), evaluated=NOON + timedelta(minutes=5)))
    assert "### held\\_out" in card
    assert "### second" in card
    assert card.count("| trained T=1 | 0.50 [0.48, 0.52] | 0.80 [0.78, 0.82] | 0.65 | +0.30 |") == 2
    assert "| blanked context | 0.50 [0.48, 0.52] | - | - | - |" in card
    assert "| warm start T=0.3 | 0.40 [0.38, 0.42] | 0.60 [0.58, 0.62] | 0.50 | +0.20 |" in card
    assert "rises from position 0 to 1" in card
    assert "not evaluated" not in card
    assert "older than the checkpoint" not in card


def test_numbers_of_another_checkpoint_in_the_run_s_folder_or_of_other_weights_say_so(tmp_path: Path) -> None:
    tested = evaluation(tmp_path, checkpoint="/home/ada/runs/lake-8b/checkpoints/update-00000003.ckpt")
    card = render(facts(evaluation=tested, evaluated=NOON + timedelta(minutes=5)))
    assert card.count("packs of 2 from lake, by lake-8b/checkpoints/update-00000003.ckpt") == 2
    assert "/home/ada" not in card
    path = evaluation(tmp_path)
    assert "older than the checkpoint" in render(facts(evaluation=path, evaluated=NOON - timedelta(minutes=5)))
    later = facts(evaluation=path, evaluated=NOON + timedelta(minutes=5), checkpoint="epoch=3.ckpt")
    assert "may be an earlier one" in render(later)


def test_a_card_of_weights_that_no_update_has_moved_says_so() -> None:
    assert "**Nothing was learnt.** None of the 1200 updates had a gradient" in render(facts(learnt=False))
    assert "Nothing was learnt" not in render(facts())


def test_without_an_evaluation_it_says_so(tmp_path: Path) -> None:
    alone = render(facts())
    assert "**It was not evaluated**" in alone
    missing = render(facts(evaluation=tmp_path / "evaluation.json"))
    assert "**It was not evaluated**" in missing
    assert "no evaluation.json" in missing
    (tmp_path / "evaluation.json").write_text("{")
    assert "DecodeError" in render(facts(evaluation=tmp_path / "evaluation.json"))


def test_the_header_names_a_base_model_of_the_hub_and_no_folder(tmp_path: Path, monkeypatch) -> None:
    header = yaml.safe_load(render(facts()).split("---\n")[1])
    assert header["base_model"] == "Qwen/Qwen3-8B"
    assert header["library_name"] == "transformers"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Qwen" / "Qwen3-8B").mkdir(parents=True)
    assert "base_model" not in yaml.safe_load(render(facts()).split("---\n")[1])


def test_hostile_texts_are_shown_and_do_nothing(tmp_path: Path) -> None:
    config = copy.deepcopy(CONFIG)
    config["model"]["policy"]["init_args"]["path"] = HOSTILE
    config["data"]["env"] = {"class_path": "pkg.Thing", "init_args": {"message": HOSTILE}}
    path = evaluation(tmp_path, HOSTILE, env=HOSTILE, controls={HOSTILE: [position(0.1), position(0.2)]})
    prompt = (("system", HOSTILE), ("user", HOSTILE))
    message = facts(name=HOSTILE, run=HOSTILE, world=HOSTILE, config=config, prompt=prompt, evaluation=path)
    page, plain = html(render(message)), html(render(facts(evaluation=evaluation(tmp_path))))
    assert "<script" not in page
    assert "evil" in page
    assert re.findall('href="([^"]*)"', page) == ["https://arxiv.org/abs/2606.20002"]
    for element in ("<h1", "<h2", "<pre", "<hr", "<img"):
        assert page.count(element) == plain.count(element), element
    assert "49" not in page


@each("text", ["one line", "two\nlines\n", HOSTILE, "\udcff \u2028 \x00 深", ""])
def test_the_programs_prompt_is_the_worlds(text: str) -> None:
    (program,) = re.findall(r"(`{3,})python\n(.*?)\n\1", render(facts(prompt=(("user", text),))), flags=re.S)
    assignment = program[1].partition("messages = ")[2].partition("options = ")[0]
    assert eval(assignment.strip()) == [{"role": "user", "content": text}]


def test_the_settings_are_those_of_the_config_and_a_policy_that_takes_no_folder_gets_no_commands() -> None:
    shown = yaml.safe_load(settings(CONFIG))
    assert shown["model"] == {key: CONFIG["model"][key] for key in CONFIG["model"] if key != "policy"}
    assert (shown["data"]["pack_size"], shown["seed_everything"]) == (8, 1)
    own = copy.deepcopy(CONFIG)
    own["model"]["policy"] = {"class_path": "mine.Policy"}
    assert "```bash" not in render(facts(config=own))
    assert "--model.policy.path DIR" in render(facts())


def test_an_engine_of_a_foreign_checkpoint_adds_no_command() -> None:
    config = copy.deepcopy(CONFIG)
    config["data"]["engine"], config["warm_start"] = {"class_path": "x; rm -rf ~\nrm -rf /"}, {"num_updates": "many"}
    text = render(facts(config=config))
    assert "--data.engine 'x; rm -rf ~\nrm -rf /' --state" in text
