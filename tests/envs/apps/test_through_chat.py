"""Tool calls through real templates and tokenizers, in which the families' marks are tokens of their own."""

import copy

from cod_lightning.contexts import HintContext
from cod_lightning.engines.scripted import ScriptedEngine
from cod_lightning.envs.apps import Apps
from cod_lightning.envs.base import Players, Reference, beside
from cod_lightning.rollout.chat import Chat
from cod_lightning.rollout.dialogue import Sampler
from cod_lightning.rollout.group import run_groups
from cod_lightning.rollout.player import Player
from cod_lightning.rollout.setting import Setting
from cod_lightning.types import Split
from tests.cases import each
from tests.real_templates import CHATML, LLAMA3, QWEN3, bpe_tokenizer

FAMILIES = {
    "qwen": (QWEN3, ["<tool_call>", "</tool_call>"]),
    "llama": (LLAMA3, ["<|python_tag|>"]),
    "mistral": (CHATML, ["[TOOL_CALLS]"]),
    "gpt_oss": (CHATML, ["<|channel|>", "<|message|>", "<|constrain|>", "<|call|>", "<|start|>"]),
}


@each("family", FAMILIES)
def test_a_familys_calls_come_through_as_they_were_made_and_every_task_is_one_row(family):
    template, marks = FAMILIES[family]
    tokenizer = copy.deepcopy(bpe_tokenizer(template))
    tokenizer.add_tokens(marks, special_tokens=True)
    chat, mechanism, env = Chat(tokenizer), HintContext(response_limit=None), Apps(actions=family, quirks=3)
    packs = [env.sample_pack(split=Split.TRAIN, index=index, num_tasks=2) for index in range(3)]
    for pack in packs:
        player = Player(beside(env, Players).reference(Reference.ORACLE, pack), mechanism)
        engine = ScriptedEngine(player.reply, chat.encode, chat.stop_id)
        sampler = Sampler(engine=engine, chat=chat, window=10**6, max_new_tokens=10**4, seed=0)
        (group,) = run_groups([pack], 1, Setting(env=env, mechanism=mechanism, sampler=sampler))
        for solve in group.lifecycles[0].solves:
            assert solve.success, solve.feedback
            assert all(turn.extends for turn in solve.turns[1:])
            assert [mark for mark in marks[:1] if mark in solve.turns[0].response] == marks[: family != "llama"]
