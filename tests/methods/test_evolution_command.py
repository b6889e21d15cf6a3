"""`evolve`: a first context from the command line, of a tiny policy and of a model behind an endpoint, and its use afterwards."""

import json
import os
import random
import traceback

import pytest

from cod_lightning.cli import main
from cod_lightning.commands import phase
from cod_lightning.contexts import HintContext
from cod_lightning.contexts.base import Scripted, Stored, beside
from cod_lightning.envs.levers import Levers
from cod_lightning.files import write_whole
from cod_lightning.methods import evolution_command
from cod_lightning.rollout.player import Player
from cod_lightning.types import Message, Role, Split
from tests.chat_server import ChatServer, said
from tests.methods.test_evolution import SECRET, Weak

pytestmark = pytest.mark.slow

TINY = ["--config", "smoke", "--warm_start", "null", "--torch_threads", "1", "--trainer.accelerator", "cpu"]
SUITE = "[{name: levers, num_packs: 4, controls: [], warm_start_temperatures: []}]"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_a_tiny_policy_evolves_and_what_came_of_it_is_what_test_begins_with(tmp_path, capsys, monkeypatch):
    written = []
    monkeypatch.setattr(
        evolution_command, "write_whole", lambda path, text: (written.append(path.name), write_whole(path, text))
    )
    assert main(["evolve", *TINY, "--out", "evolved", "--rounds", "2", "--num_packs", "4"]) == 0
    assert "best, mean reward" in capsys.readouterr().out
    record = json.loads((tmp_path / "evolved/evolution.json").read_text())
    assert written == ["best.json", "context.yaml", "evolution.json"] * 3, "the last one says that all are there"
    assert len(record["rounds"]) == 2
    assert len(record["candidates"][0]["rewards"]) == 4
    assert record["num_lifecycles"] >= 4 + 2 * 3
    state = beside(HintContext("compact"), Scripted).adopt("1=red 2=blue")
    (tmp_path / "evolved/best.json").write_text(beside(HintContext("compact"), Stored).dump(state))
    assert main(["test", *TINY, "--config", "evolved/context.yaml", "--data.suites", SUITE]) == 0
    played = json.loads((tmp_path / "runs/smoke/lifecycles/test_levers_trained.jsonl").read_text().splitlines()[0])
    assert played["episodes"][0]["context_before"] == "1=red 2=blue"
    assert main(["evolve", *TINY, "--out", "evolved"]) == 2
    assert "a folder without evolution.json" in capsys.readouterr().err


def test_a_standstill_ends_the_process_with_a_report(tmp_path):
    world = "{class_path: tests.faulty_worlds.FaultyLevers, init_args: {faults: [hangs], every: 1, split: VALIDATION}}"
    if not (child := os.fork()):
        try:
            main(["evolve", *TINY, "--data.env", world, "--out", "evolved", "--data.deadlines.stall_s", "2"])
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 70
    report = (tmp_path / "evolved/stalled.txt").read_text()
    assert "nothing has moved for 2 s in the evolution (data.deadlines.stall_s)" in report


def test_a_model_behind_an_endpoint_writes_its_own_first_context(tmp_path, monkeypatch, capsys):
    env = Levers()
    pack = env.sample_pack(split=Split.VALIDATION, index=0, num_tasks=4)
    player = Player(Weak(env, pack), HintContext())

    def answer(content):
        messages = [Message(Role(one["role"]), one["content"]) for one in content["messages"]]
        return said(player.reply(messages, random.Random(str(content))))

    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    with ChatServer(answer) as server:
        endpoint = ["--data.engine.init_args.model", "m", "--data.engine.init_args.base_url", server.url]
        argv = ["--config", "experiment/endpoint", "env=levers", "--data.env.init_args.protocol", "natural", *endpoint]
        more = ["--data.pack_size", "4", "--out", "evolved", "--rounds", "1", "--num_packs", "6"]
        assert main(["evolve", *argv, *more]) == 0
    out = capsys.readouterr().out
    assert "kept; candidate 1" in out
    assert SECRET in out
    assert f"m: {len(server.requests)} answers" in out
    assert beside(HintContext(), Stored).load((tmp_path / "evolved/best.json").read_text()).text == SECRET


def test_a_context_without_updates_is_refused_before_its_warm_start(monkeypatch, capsys):
    monkeypatch.setattr(phase, "ensure_warm_start", lambda *_: pytest.fail("a warm start begins"))
    assert main(["evolve", "--config", "smoke", "context=episodes_compact", "--out", "x"]) == 2
    assert "data.context is EpisodesContext; expected a mechanism" in capsys.readouterr().err
