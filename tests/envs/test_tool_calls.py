"""Tool calls of four families: what their chat templates write is read, and nothing else."""

import json
import time

import jinja2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cod_lightning.envs.apps.actions import MOST_CALLS, ToolCalls
from cod_lightning.envs.apps.world import Apps
from cod_lightning.envs.tool_calls import STYLES, BadCalls, ToolCall
from tests.cases import each
from tests.envs.apps.played import specs

TEMPLATES = {
    "qwen": (
        "{%- for call in calls %}{%- if not loop.first %}{{ '\\n' }}{%- endif %}"
        "{{ '<tool_call>\\n{\"name\": \"' + call.name + '\", \"arguments\": ' + (call.arguments | tojson) + '}\\n</tool_call>' }}"
        "{%- endfor %}"
    ),
    "llama": "{{ '{\"name\": \"' + calls[0].name + '\", \"parameters\": ' + (calls[0].arguments | tojson) + '}' }}",
    "mistral": (
        "{{ '[TOOL_CALLS][' }}{%- for call in calls %}"
        '{{ \'{"name": "\' + call.name + \'", "arguments": \' + (call.arguments | tojson) + \', "id": "abcdefghi"}\' }}'
        "{%- if not loop.last %}{{ ', ' }}{%- endif %}{%- endfor %}{{ ']' }}"
    ),
    "gpt_oss": (
        "{{ '<|start|>assistant to=functions.' + calls[0].name + '<|channel|>commentary json<|message|>' "
        "+ (calls[0].arguments | tojson) + '<|call|>' }}"
    ),
}
"""What the families' templates make of an assistant's tool calls, re-created from their documented formats."""
CALLS = [ToolCall("mail.send", {"to": "a@b", "subject": "x", "body": 'say "hi";\n{}'}), ToolCall("user.done", {})]
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**53), 2**53), st.text(st.characters(codec="utf-8"))),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
)
NAMES = st.from_regex(r"[a-z_]+\.[a-z_]+", fullmatch=True)
MARKS = ("</tool_call>", "<|call|>")


def tojson(value):
    return json.dumps(value, ensure_ascii=False)


@each("family", TEMPLATES)
def test_what_the_familys_template_writes_is_read(family):
    environment = jinja2.Environment()
    environment.filters["tojson"] = tojson
    calls = CALLS[:1] if family in ("llama", "gpt_oss") else CALLS
    text = environment.from_string(TEMPLATES[family]).render(calls=calls)
    style = STYLES[family]
    assert style.calls(style.begin(text)) == calls
    if family in ("qwen", "llama"):
        assert style.spelled(calls) == text


@pytest.mark.parametrize("name", STYLES)
@given(
    calls=st.lists(
        st.builds(ToolCall, NAMES, st.dictionaries(st.text(max_size=5), JSON, max_size=3)), min_size=1, max_size=4
    )
)
def test_calls_are_read_as_they_were_spelled(name, calls):
    style = STYLES[name]
    text = style.spelled(calls)
    if any(mark in json.dumps([call.arguments for call in calls]) for mark in MARKS):
        return
    assert style.calls(style.begin(text)) == calls


THOUGHT = "I will look first.\n"


@each(
    ("name", "text"),
    [
        ("qwen", THOUGHT + STYLES["qwen"].spelled(CALLS)),
        ("llama", "<|python_tag|>" + STYLES["llama"].spelled(CALLS)),
        ("llama", STYLES["llama"].spelled(CALLS) + ";\n"),
        ("mistral", THOUGHT + STYLES["mistral"].spelled(CALLS) + "\n"),
        ("gpt_oss", "<|channel|>analysis<|message|>Look.<|end|><|start|>assistant" + STYLES["gpt_oss"].spelled(CALLS)),
        ("gpt_oss", STYLES["gpt_oss"].spelled(CALLS).removesuffix("<|call|>")),
        ("gpt_oss", " to=functions.mail.send<|channel|>commentary <|constrain|>json<|message|>" + json.dumps(CALLS[0].arguments)),
    ],
)  # fmt: skip
def test_reasoning_before_and_ends_of_turns_are_allowed(name, text):
    actions = ToolCalls(name)
    read, complaint = actions.read(text)
    assert not complaint
    assert actions.style.calls(read) == CALLS[: len(actions.style.calls(read))]


ONE = '{"name": "user.apps", "arguments": {}}'
DEEP = f'{{"name": "user.apps", "arguments": {{"x": {"[" * 300}{"]" * 300}}}}}'
BROKEN = {
    "json": [f"{ONE} {ONE}", f"{ONE},", "x" + ONE, '{"name": "user.apps", "parameters": {}}', '{"arguments": {}}', "[]", "1",
             DEEP],
    "qwen": [
        f"<tool_call>{ONE}", f"<tool_call>{ONE}</tool_call> and so on", f"<tool_call>{ONE}{ONE}</tool_call>",
        "<tool_call></tool_call>",
        f"<tool_call>{ONE}</tool_call>{ONE}</tool_call>", f"<tool_call><tool_call>{ONE}</tool_call></tool_call>",
        "<tool_call>user.apps()</tool_call>", '<tool_call>{"name": 1, "arguments": {}}</tool_call>',
        '<tool_call>{"name": "user.apps", "arguments": "{}"}</tool_call>', "<tool_call>" + "[" * 3000,
    ],
    "llama": [
        '{"name": "user.apps", "arguments": {}}', '{"name": "user.apps", "parameters": {}} ok',
        '{"name": "user.apps", "parameters": {}} {"name": "user.apps", "parameters": {}}', "<|python_tag|>user.apps()",
        '{"name": "user.apps", "parameters": {"x": NaN}}', "{" * 3000,
    ],
    "mistral": [
        f"[TOOL_CALLS]{ONE}", f"[TOOL_CALLS][{ONE}] ok", f"[TOOL_CALLS][{ONE},]", f"[TOOL_CALLS][{ONE}][TOOL_CALLS][{ONE}]",
        "[TOOL_CALLS]user.apps{}", "[TOOL_CALLS]" + "[" * 3000,
    ],
    "gpt_oss": [
        "<|channel|>commentary to=functions.user.apps<|message|>{}<|call|>",
        "<|channel|>commentary to=functions.user.apps <|constrain|>json<|message|>{}<|call|>ok",
        "<|channel|>commentary to=functions.user.apps <|constrain|>json<|message|>{} {}",
        '<|channel|>commentary to=functions.user.apps <|constrain|>json<|message|>{}, "id": "x"',
        '<|channel|>commentary to=functions.user.apps", "id": "x <|constrain|>json<|message|>{}',
        "<|channel|>commentary to=functions.user.apps <|constrain|>json<|message|>[]",
    ],
}  # fmt: skip


@each(("name", "text"), [(name, text) for name, texts in BROKEN.items() for text in texts])
def test_what_is_not_just_as_the_style_wants_it_is_refused_and_nothing_is_done(name, text):
    env = Apps(actions=name)
    (task,) = specs(env, 1)
    actions, server = ToolCalls(name), task.server(patience=1)
    with pytest.raises(BadCalls):
        actions.style.calls(text)
    assert actions.run(text, server).startswith("refused: ")
    assert server.calls == 0


@each("name", STYLES)
def test_a_response_without_a_call_is_malformed(name):
    for text in ("", "I am done.", "<answer></answer>"):
        assert ToolCalls(name).read(text)[1]


@each("name", STYLES)
@each("letter", ["\n", " ", "{", "<tool_call>", "[TOOL_CALLS]", "<|channel|>"])
def test_where_calls_begin_is_found_at_once_whatever_the_policy_repeats(name, letter):
    begun = time.perf_counter()
    STYLES[name].begin(letter * 20_000)
    assert time.perf_counter() - begun < 1


@each("name", STYLES)
def test_several_calls_a_turn_are_bounded_and_the_first_error_stops_the_rest(name):
    (task,) = specs(Apps(), 1)
    actions, server = ToolCalls(name), task.server(patience=1)
    calls = [ToolCall("user.apps", {}), ToolCall("mail.nothing", {}), ToolCall("user.apps", {})]
    first, second = actions.run(actions.style.spelled(calls), server).splitlines()
    assert json.loads(first)["mail"]
    assert second.startswith("error 404")
    assert actions.run(actions.style.spelled(calls * MOST_CALLS), server).startswith("refused: expected 1 to 20 calls")
