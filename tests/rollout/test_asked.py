"""Tools in the chat templates of four families: listed, called and answered in their own forms, in ids that only grow."""

import asyncio
import copy

import pytest

from cod_lightning.contexts import HintContext
from cod_lightning.engines.base import Completion, Engine, digest
from cod_lightning.envs.apps import Apps
from cod_lightning.envs.tool_calls import STYLES, ToolCall
from cod_lightning.errors import ConfigError
from cod_lightning.methods.acts import ActsContext
from cod_lightning.rollout.asked import ToolDialogue, opened
from cod_lightning.rollout.chat import Chat
from cod_lightning.rollout.chat_request import style_of
from cod_lightning.rollout.dialogue import Sampler
from cod_lightning.rollout.episode import check_hooks
from cod_lightning.types import EpisodeStatus, Message, Role, StopReason
from tests.real_templates import CHATML, QWEN3_TOOLS, TOOLS, bpe_tokenizer, family_tokenizer
from tests.word_play import play

DOCS = [ToolCall("user.docs", {"app": "mail"}), ToolCall("user.apps", {})]
WRONG = [ToolCall("mail.list", {}), ToolCall("user.apps", {})]
DONE = [ToolCall("user.done", {})]


class Saying(Engine):
    """Answers with texts, one after the other, in the ids of the chat."""

    def __init__(self, chat, responses, end=""):
        self.chat, self.responses, self.end, self.prompts = chat, list(responses), end, []

    async def generate(self, request):
        self.prompts.append(tuple(request.prompt_ids))
        ids = self.chat.encode(self.responses.pop(0) + self.end) if self.responses else (self.chat.stop_id,)
        return Completion(
            action_ids=ids, behaviour_logprobs=(0.0,) * len(ids), stop=StopReason.STOP, policy_version=0,
            prompt_digest=digest(request.prompt_ids),
        )  # fmt: skip


def played(chat, responses, end="", **options):
    """The solve episodes of one lifecycle, and the prompts that the engine saw as text."""
    env = Apps(**{"actions": "tools", "quirks": 0} | options)
    engine = Saying(chat, responses, end)
    (group,) = play(engine, env, HintContext(), num_tasks=1, chat=chat, window=10**6, max_new_tokens=10**4)
    return group.lifecycles[0].solves, [chat.tokenizer.decode(ids) for ids in engine.prompts]


ENDS = {"qwen": "<|im_end|>", "llama": "<|eot_id|>", "mistral": "</s>", "gpt_oss": "<|call|>"}
RESULTS = {
    "qwen": "\n<|im_start|>user\n<tool_response>\n###\n</tool_response>\n<tool_response>\n###\n</tool_response><|im_end|>\n",
    "llama": "<|start_header_id|>ipython<|end_header_id|>\n\n###<|eot_id|>"
    "<|start_header_id|>ipython<|end_header_id|>\n\n###<|eot_id|>",
    "mistral": '[TOOL_RESULTS]{"content": ###, "call_id": "call00000"}[/TOOL_RESULTS]'
    '[TOOL_RESULTS]{"content": ###, "call_id": "call00001"}[/TOOL_RESULTS]',
    "gpt_oss": "<|start|>functions.user.docs to=assistant<|channel|>commentary<|message|>###<|end|>"
    "<|start|>functions.user.apps to=assistant<|channel|>commentary<|message|>###<|end|>",
}


@pytest.fixture(params=TOOLS, scope="module")
def family(request):
    return request.param


@pytest.fixture(scope="module")
def chat(family):
    return Chat(family_tokenizer(family))


def test_tools_are_listed_by_the_template_and_each_result_has_the_role_of_a_tool(family, chat):
    style = style_of(chat)
    assert style is STYLES[family]
    said = style.spelled(DOCS).removesuffix(ENDS[family]) + ENDS[family]
    (solve,), prompts = played(chat, [said, style.spelled(DONE)])
    assert "user.docs" in prompts[0].replace("\\u002e", ".")
    assert "<answer>" not in prompts[0]
    before = prompts[0] + said
    assert prompts[1].startswith(before), "what was sampled stays"
    head, middle, tail = RESULTS[family].split("###")
    after = prompts[1].removeprefix(before)
    assert after.startswith(head)
    assert middle in after
    assert tail in after
    assert "mail.send" in after
    assert "Turn 2 of 16" in after
    assert after.count("Turn 2 of 16") == 1
    assert [turn.extends for turn in solve.turns] == [False, True]
    assert solve.status is EpisodeStatus.COMPLETED


def test_the_end_of_a_call_that_was_sampled_is_not_added_again_and_one_that_was_not_is(family, chat):
    style, ending = style_of(chat), ENDS[family]
    said = style.spelled(DOCS).removesuffix(ending)
    for end in ("", ending):
        _, prompts = played(chat, [said + end, style.spelled(DONE)])
        after = prompts[1].removeprefix(prompts[0] + said)
        assert after.startswith(ending)
        assert not after.removeprefix(ending).startswith(ending)


def test_a_call_that_fails_stops_the_rest_and_all_calls_are_answered(family, chat):
    style = style_of(chat)
    _, prompts = played(chat, [style.spelled(WRONG), style.spelled(DONE)], ENDS[family])
    after = prompts[1].removeprefix(prompts[0])
    assert "error 401" in after
    assert "not carried out" in after


def test_what_is_no_call_ends_the_task_as_malformed(chat):
    (solve,), _ = played(chat, ["I do not know."])
    assert solve.status is EpisodeStatus.MALFORMED


def test_neither_a_result_nor_a_tool_can_begin_a_message(family, chat):
    style, specials = style_of(chat), chat.tokenizer.all_special_tokens
    control = set(chat.tokenizer.convert_tokens_to_ids(specials))

    def num_control(text):
        about = {"name": "look", "description": text, "parameters": {"type": "object", "properties": {text: {}}}}
        engine = Saying(chat, [style.spelled([ToolCall("look", {})])])
        sampler = Sampler(engine=engine, chat=chat, window=10**6, max_new_tokens=10**4)
        dialogue = opened(
            sampler, "x", f"Be kind. {text}", Message(Role.USER, text), [{"type": "function", "function": about}]
        )
        turn = asyncio.run(dialogue.turn())
        assert dialogue.calls_of(turn) == '<answer>\n{"name": "look", "arguments": {}}\n</answer>'
        dialogue.say("", results=[text])
        return sum(i in control for i in dialogue.ids)

    assert num_control("".join(specials)) == num_control("x")


def test_a_control_token_that_the_policy_wrote_is_broken_up_where_its_words_are_rendered_again(chat):
    for written in chat.tokenizer.all_special_tokens:
        dialogue = [("user", "x"), ("assistant", f"a{written}b"), ("user", "y")]
        text = chat.asked([{"role": role, "content": content} for role, content in dialogue])
        assert f"a{written}b" not in text
        assert f"a{written[0]}\u200b{written[1:]}b" in text


def test_tools_are_put_in_words_where_the_template_has_none_and_to_a_model_that_is_somewhere_else(chat):
    about = {"name": "look", "description": "x", "parameters": {"type": "object", "properties": {}}}
    for own, has_weights in ((Chat(bpe_tokenizer(CHATML)), True), (chat, False)):
        engine = Saying(own, [])
        engine.has_weights = has_weights
        sampler = Sampler(engine=engine, chat=own, window=10**6, max_new_tokens=10**4)
        asked = Message(Role.USER, "mail")
        dialogue = opened(sampler, "x", "Be kind.", asked, [{"type": "function", "function": about}])
        assert not isinstance(dialogue, ToolDialogue)


def test_a_template_that_rewrites_history_begins_a_counted_segment():
    thinking = QWEN3_TOOLS.replace('message.content }}"\n', "x").replace(
        "'<|im_start|>assistant\\n' + message.content",
        "'<|im_start|>assistant\\n' + message.content.split('</think>')[-1].lstrip('\\n')",
    )
    tokenizer = family_tokenizer("qwen")
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.chat_template = thinking
    chat = Chat(tokenizer, rewrite_history=True)
    said = "<think>\nhm\n</think>\n\n" + STYLES["qwen"].spelled(DOCS)
    (solve,), prompts = played(chat, [said, STYLES["qwen"].spelled(DONE)], "<|im_end|>")
    assert [turn.extends for turn in solve.turns] == [False, False]
    assert "hm" not in prompts[1]
    assert "<tool_response>" in prompts[1]


def test_where_the_template_has_no_tools_the_system_text_lists_them_and_results_are_the_users():
    chat = Chat(bpe_tokenizer(CHATML))
    said = [f"<answer>\n{STYLES['json'].spelled(calls)}\n</answer>" for calls in (DOCS, DONE)]
    (solve,), prompts = played(chat, said, "<|im_end|>")
    assert '"user.docs"' in prompts[0]
    assert "<answer>" in prompts[0]
    assert "<|im_end|>\n<|im_start|>user\n[" in prompts[1]
    assert solve.status is EpisodeStatus.COMPLETED


def test_a_mechanism_that_acts_within_tasks_is_refused():
    with pytest.raises(ConfigError, match="calls of tools"):
        check_hooks(Apps(actions="tools"), ActsContext())
