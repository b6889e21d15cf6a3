"""Between messages and token ids, by the tokenizer's own chat template, so that a turn's prompt only ever grows.

The opening is rendered once. Every later user message becomes the ids that the template puts *between* the assistant's
words and its next words: rendering a dummy dialogue with placeholders tells what those are, whatever the template. The
history is not rendered again, so it cannot change.

Some templates change it, though: Qwen3's drops the thoughts of earlier turns, and the empty thought that it begins a turn with
where thinking is off. With `rewrite_history` each prompt is what the template makes of the whole dialogue; where that is more
than an extension, the dialogue begins a new segment.

Text from worlds, contexts and the model is hostile: a control token spelled in it is broken up before it is encoded. Then the
control tokens of every prompt are counted: there have to be just those of the template, whatever it or the tokenizer makes of the
texts. Tags of tools are no control tokens, since a world may ask for calls in that form.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from cod_lightning.errors import ConfigError, ForgedRole, answering
from cod_lightning.hostile_text import (
    CALLING,
    HARMLESS_TOOL,
    WIDELY_KNOWN,
    ControlTokens,
    blank_alike,
    harmless_message,
    shattered,
    with_texts,
)
from cod_lightning.text_cache import text_cache, word_ids
from cod_lightning.types import Message, Role

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_PROBES = (
    "",
    " x ",
    "\n\nx\n",
    "<think>\nx\n</think>\n\nx",
    "x</think>x",
    "<tool_call>\n{}\n</tool_call>",
    "<tool_response>\nx\n</tool_response>",
    "x /no_think",
    "{{ x }}{% x %}{# x #}",
    "<x>&amp;\"x'\\",
)
"""What a template might treat unlike other text."""
_SMALL = 2**23
"""Bytes of a cache whose results are numbers or short."""
_DAY = datetime(2024, 7, 26)
"""That of Llama 3's template where it cannot ask for the time."""
_SYSTEM, _ASSISTANT, _USER, _PLACE = "\ue000system\ue001", "\ue000assistant\ue001", "\ue000user\ue001", "\ue000"


class Chat:
    """A tokenizer and its chat template as four small functions.

    Args:
        tokenizer: A fast tokenizer with a chat template.
        enable_thinking: Handed to the template; templates that do not know it ignore it.
        rewrite_history: Follow the template where it rewrites earlier turns; null does so while thinking is on.
        template_kwargs: Further variables for the template. Where it asks for the time, it is always one day: a run that goes on
            tomorrow has the prompts of today.
        system_prompt: Put before every system message.
    """

    system_prompt: str = ""

    def __init__(
        self,
        tokenizer: "PreTrainedTokenizerBase",
        enable_thinking: bool = False,
        rewrite_history: bool | None = None,
        template_kwargs: Mapping[str, Any] | None = None,
        system_prompt: str = "",
    ) -> None:
        if not tokenizer.chat_template:
            raise _another_template("missing", "one, as the tokenizers of instruct models have it")
        self.tokenizer, self.system_prompt = tokenizer, system_prompt
        self.template_kwargs = {"strftime_now": _DAY.strftime, **(template_kwargs or {})}
        self.backend: Any = getattr(tokenizer, "backend_tokenizer", None)
        """The same without its wrapper, which takes three times as long on short texts; None of a slow tokenizer."""
        if self.backend is not None:  # a tokenizer.json keeps lengths to which rows were cut and padded
            self.backend.no_truncation()
            self.backend.no_padding()
        self._word_ids = word_ids(self.backend)
        self._vocabulary = frozenset(tokenizer.get_vocab()) if self._word_ids else None
        """All words, where any other one would be read as an unknown one."""
        self.closed = self._vocabulary is not None
        """Whether the policy knows single words alone, as tiny ones do."""
        self.num_ids = len(tokenizer)
        """Ids of the tokenizer, special ones included."""
        self.enable_thinking = enable_thinking
        self.rewrite_history = enable_thinking if rewrite_history is None else rewrite_history
        added = tokenizer.added_tokens_decoder.items()
        special = {token.content for _, token in added if token.special} | set(tokenizer.all_special_tokens)
        ends: list[Any] = [tokenizer.bos_token_id, tokenizer.eos_token_id]
        # for any other word: no control token
        unknown = None if tokenizer.unk_token_id in ends else tokenizer.unk_token_id
        control = (i for i, token in added if token.special or WIDELY_KNOWN.first(token.content))
        self._control_ids = frozenset(i for i in control if i != unknown)
        self._in_responses, self._in_texts = ControlTokens(special, thoughts=False), ControlTokens(special)
        self._specials = re.compile("|".join(map(re.escape, sorted(special, key=len)[::-1])) or "(?!)")
        self._check_system_role()
        self._marks = self._role_marks() - {token.content for _, token in added}
        self._in_prompts = ControlTokens(special | self._marks)
        self._after_assistant, self._before_assistant = self._continuation_parts()
        self.end_of_turn = self._first_special(lambda: self._after_assistant)
        """Of an earlier turn."""
        own, self.stop_ids = self._stops()
        self.stop_id: int = min(self.stop_ids) if own is None else own
        """The token with which a scripted policy ends its turns."""
        self._ends = frozenset((self.end_of_turn, own)) - {None}
        after = self.encode(self._after_assistant)
        self._num_end = 0 if self.end_of_turn is None else 1 + after.index(self.end_of_turn)
        """Ids of a continuation up to the end of the turn before it."""
        self.pad_id = int(tokenizer.pad_token_id or 0)  # pyright: ignore[reportArgumentType]
        self.encode = text_cache(self.encode)
        self.decode = text_cache(self.decode)
        self.neutral = text_cache(self.neutral)
        self.unknown_word = text_cache(self.unknown_word, _SMALL)
        self._num_control_in = text_cache(self._num_control_in, _SMALL)
        self._continued = text_cache(lambda user_text: self.encode(self._between(user_text)))
        self._around = lru_cache(maxsize=64)(self._around)
        self._num_control = lru_cache(maxsize=64)(self._num_control)

    def _stops(self) -> tuple[int | None, frozenset[int]]:
        """The id that ends the last turn, where the template puts one there, and all that end any."""
        last, calls = self._first_special(self._after_last), self._first_special(self._after_calls)
        own: list[Any] = [self.end_of_turn if last is None else last, calls, self.tokenizer.eos_token_id]
        if not (ids := frozenset(i for i in own if isinstance(i, int))):
            raise ConfigError("model.policy", "a tokenizer with no end token", "an eos token", "Set one.")
        return own[0], ids

    def encode(self, text: str) -> tuple[int, ...]:
        """Token ids of text in which special tokens count as such."""
        if self._word_ids and None not in (ids := tuple(map(self._word_ids.get, text.split(" ")))):
            return ids  # pyright: ignore[reportReturnType]
        if self.backend is None:
            return tuple(self.tokenizer(text, add_special_tokens=False)["input_ids"])
        return tuple(self.backend.encode_batch_fast([text], add_special_tokens=False)[0].ids)  # no offsets

    def prefixed(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """The dialogue with the run's own words before its system message, unless they are there."""
        if not self.system_prompt or not messages:
            return tuple(messages)
        (first, *others), own = messages, f"{self.system_prompt}\n\n"
        if first.role is not Role.SYSTEM or first.content.startswith(own):
            return tuple(messages)
        return (Message(Role.SYSTEM, f"{own}{first.content}"), *others)

    def opening(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """The first prompt: the whole dialogue rendered, up to where the assistant begins. Raises `ForgedRole`."""
        roles = tuple(message.role for message in messages)
        if around := self._around(roles):
            text = self._joined(around, messages)
            if self._num_control_in(text) == self._num_control(roles):
                return self.encode(text)
        return self.encode(self.rendered(messages))

    def rendered(self, messages: Sequence[Message]) -> str:
        """What the template makes of the whole dialogue, up to where the assistant begins. Raises `ForgedRole`."""
        text = self._render(messages)
        if self._num_control_in(text) == self._num_control(tuple(message.role for message in messages)):
            return text
        harmless = [
            one if one.role is Role.ASSISTANT else Message(one.role, blank_alike(one.content)) for one in messages
        ]
        expected = self._num_control_in(self._render(harmless))
        return self._checked(lambda neutral: self._render(messages, neutral), expected)

    def continuation(self, user_text: str, last_action_id: int | None) -> tuple[int, ...]:
        """The ids to add after an action, so that the assistant answers `user_text` next. Raises `ForgedRole`.

        Where the action did not end with the template's end-of-turn token, the token is added here. The rest is encoded behind it
        either way: some take white space after them along, and some tokenizers put a space before the first word.
        """
        ids = self._continued(user_text)
        return ids[self._num_end :] if last_action_id in self._ends else ids

    def _between(self, user_text: str) -> str:
        """What comes between an assistant's words and its answer to `user_text`; rendered where the template looks into texts."""
        if self._around((Role.USER, Role.ASSISTANT, Role.USER)) is None:
            dialogue = [("user", "x"), ("assistant", "x"), ("user", user_text)]
            return self.after_response([{"role": role, "content": text} for role, text in dialogue], 1)
        before, after = self._after_assistant, self._before_assistant
        expected = self._num_control_in(f"{before}x{after}")
        return self._checked(lambda neutral: before + neutral(user_text) + after, expected)

    def extended(self, prompt: str, response: str, user_text: str) -> str:
        """The next prompt as text, where it goes on from this one and the response."""
        return prompt + self._in_responses.broken_up(response) + self._between(user_text)

    def asked(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] = ()) -> str:
        """What the template makes of a chat request, up to where the assistant begins. Raises `ForgedRole`, and what it raises.

        Args:
            messages: As templates take them: `role`, `content`, `tool_calls` with arguments as objects, `tool_call_id`.
            tools: Their schemas.
        """

        own = self._in_responses.broken_up
        said = [with_texts(one, own) if one["role"] == "assistant" else one for one in messages]

        def spelled(neutral: Callable[[str], str]) -> str:
            listed = [one if one["role"] == "assistant" else with_texts(one, neutral) for one in said]
            return self._template(listed, with_texts(tools, neutral))

        harmless = self._template(list(map(harmless_message, said)), [HARMLESS_TOOL] * len(tools))
        return self._checked(spelled, self._num_control_in(harmless))

    def after_response(self, messages: Sequence[Mapping[str, Any]], at: int) -> str:
        """What the template puts from the end of message `at`, the assistant's, to where the assistant begins again.

        Raises `ValueError` where that cannot be seen, `ForgedRole`, and what the template raises.
        """
        said, later = dict(messages[at]), messages[at + 1 :]
        if calls := said.get("tool_calls"):
            function = {**calls[-1]["function"], "arguments": {"x": _ASSISTANT}}
            said = {**said, "content": "", "tool_calls": [*calls[:-1], {**calls[-1], "function": function}]}
        else:
            said["content"] = _ASSISTANT

        def spelled(later: Sequence[Mapping[str, Any]]) -> str:
            _, found, after = self._template([{"role": "user", "content": "x"}, said, *later]).partition(_ASSISTANT)
            end = self._specials.search(after) if calls else None
            if not found or (calls and end is None):
                raise ValueError("the template does not show where the assistant's message ends")
            return after[end.start() :] if end else after

        expected = self._num_control_in(spelled(list(map(harmless_message, later))))
        return self._checked(lambda neutral: spelled(with_texts(later, neutral)), expected)

    def ids_after(self, text: str, last_action_id: int) -> tuple[int, ...]:
        """The ids of what comes after a response, whose own end of turn is not repeated."""
        ids, end = self.encode(text), self._first_special(lambda: text)
        ended = end is not None and (last_action_id == end or {last_action_id, end} <= self._ends)
        return ids[ids.index(end) + 1 :] if ended else ids

    def decode(self, action_ids: tuple[int, ...]) -> str:
        """The action as text without its final stop token; any other special token stays visible."""
        ids = action_ids[:-1] if action_ids and action_ids[-1] in self.stop_ids else action_ids
        return self.text(ids)

    def count(self, text: str) -> int:
        """Tokens that a text of others takes in a prompt."""
        return len(self.encode(self.neutral(text)))

    def neutral(self, text: str) -> str:
        """The text with every control token spelled in it, and all that marks a role, broken up by a zero-width space."""
        return self._in_prompts.broken_up(text)

    def unknown_word(self, text: str) -> str:
        """The first word that a closed vocabulary does not have; empty if there is none."""
        if self._vocabulary is None:
            return ""
        return next((word for word in text.split() if word not in self._vocabulary), "")

    def control_token(self, text: str) -> str:
        """The first control token that the text spells, or that the tokenizer reads in it; empty if there is none."""
        spelled = self._in_texts.first(text)
        return spelled or next((self.text((i,)) for i in self.encode(text) if i in self._control_ids), "")

    def _checked(self, spell: Callable[[Callable[[str], str]], str], num_control: int) -> str:
        """What `spell` makes with texts that are broken up as far as it needs to have so many control tokens."""
        for neutral in (self.neutral, lambda text: shattered(self.neutral(text))):
            if self._num_control_in(text := spell(neutral)) == num_control:
                return text
        raise ForgedRole(
            "a text would begin or end a message in the policy's prompt: this tokenizer, or its chat template, puts control "
            "tokens together again that were broken up"
        )

    def _num_control_in(self, text: str) -> int:
        """Control tokens, and marks of roles in plain characters, in what is encoded."""
        ids = self.encode(text)
        num = sum(map(self._control_ids.__contains__, ids))
        return num + self._in_prompts.count(self.text(ids)) if self._marks else num

    def _num_control(self, roles: tuple[Role, ...]) -> int:
        """Control tokens in a prompt of harmless messages of these roles."""
        return self._num_control_in(self._render([Message(role, "x") for role in roles]))

    def text(self, ids: Sequence[int]) -> str:
        """Of any ids, control tokens included."""
        if self.backend is not None:
            return str(self.backend.decode(ids, skip_special_tokens=False))
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def _render(self, messages: Sequence[Message], neutral: Callable[[str], str] | None = None) -> str:
        """By the template, up to where the assistant begins."""
        return self._template(
            [{"role": one.role.value, "content": self._content(one, neutral or self.neutral)} for one in messages]
        )

    def _template(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] = (), *, begins: bool = True
    ) -> str:
        rendered = self.tokenizer.apply_chat_template(
            list(messages),  # pyright: ignore[reportArgumentType]
            tools=list(tools) or None,
            tokenize=False,
            add_generation_prompt=begins,
            enable_thinking=self.enable_thinking,
            **self.template_kwargs,
        )
        return str(rendered)

    def _content(self, message: Message, neutral: Callable[[str], str]) -> str:
        """A message as the template gets it."""
        own = message.role is Role.ASSISTANT
        return self._in_responses.broken_up(message.content) if own else neutral(message.content)

    def _around(self, roles: tuple[Role, ...]) -> tuple[str, ...] | None:
        """What the template puts before, between and after messages of these roles; None where it looks into them.

        Rendering takes longer than everything else that an opening needs. A template that trims, or that takes thoughts and the
        answers of tools apart, shows it on the probes, and then renders every opening itself.
        """
        marks = _messages(roles, [f"\ue000{n}\ue001" for n in range(len(roles))])
        parts = re.split("\ue000[0-9]+\ue001", self._render(marks))
        if len(parts) != len(roles) + 1:
            return None
        for messages in [marks, *(_messages(roles, [probe] * len(roles)) for probe in _PROBES)]:
            if self._joined(parts, messages) != self._render(messages):
                return None
        return tuple(parts)

    def _joined(self, around: Sequence[str], messages: Sequence[Message]) -> str:
        """Messages' texts within what is around them."""
        parts = [around[0]]
        for message, after in zip(messages, around[1:], strict=True):
            parts += self._content(message, self.neutral), after
        return "".join(parts)

    def _role_marks(self) -> set[str]:
        """What the template spells around messages in plain characters, such as [INST] or USER:, letters alone left out."""
        marks = set[str]()
        for roles in ((Role.SYSTEM, Role.USER, Role.ASSISTANT, Role.USER), (Role.USER, Role.ASSISTANT, Role.USER)):
            try:
                first, *others = self._render([Message(role, _PLACE) for role in roles], neutral=str).split(_PLACE)
            except Exception:  # `_continuation_parts` refuses it
                continue
            for line in [*first.splitlines()[-1:], *"\n".join(others).splitlines()]:
                pieces = (piece.strip() for piece in self._specials.split(line))
                marks.update(one for one in pieces if re.search(r"\w", one) and re.search(r"[^\w\s]", one))
        return marks

    def _first_special(self, shown: Callable[[], str]) -> int | None:
        """The special token with which that begins, after white space if any; None where the template does not show it."""
        try:
            first = self.encode(shown().lstrip())[:1]
        except Exception:  # templates raise what they like
            return None
        return first[0] if self._specials.fullmatch(self.text(first)) else None

    def _after_calls(self) -> str:
        """What the template puts after calls of tools; GPT-OSS's token is one of its own."""
        return self.after_response([CALLING, {"role": "user", "content": "x"}], 0)

    def _after_last(self) -> str:
        """What ends a policy's turn: mostly the token that ends earlier ones, but GPT-OSS's ends each message of a turn."""
        dialogue = [{"role": "user", "content": "x"}, {"role": "assistant", "content": _ASSISTANT}]
        return self._template(dialogue, begins=False).partition(_ASSISTANT)[2]

    def _check_system_role(self) -> None:
        """Raise `ConfigError` for a template that takes no system message, or leaves it out: rules and contexts stand there."""
        opening = [Message(Role.SYSTEM, _SYSTEM), Message(Role.USER, _USER)]
        expected = "one with a system role, where rules and contexts stand"
        with answering(partial(_another_template, "one that raises"), "one that renders a dialogue"):
            self._render(opening[1:], neutral=str)
        with answering(partial(_another_template, "one that raises"), expected):
            text = self._render(opening, neutral=str)
        if _SYSTEM not in text:
            raise _another_template("one that leaves system messages out", expected)

    def _continuation_parts(self) -> tuple[str, str]:
        """What the template puts between an assistant's words and the next user's, and from there to the assistant."""
        dummy = [Message(Role.USER, "x"), Message(Role.ASSISTANT, _ASSISTANT), Message(Role.USER, _USER)]
        with answering(lambda expected: _another_template("one that raises", expected), "one that renders a dialogue"):
            text = self._render(dummy)
        if text.count(_ASSISTANT) != 1 or text.count(_USER) != 1:
            raise _another_template("one that drops or repeats messages", "one that shows each once")
        between, _, after = text.partition(_ASSISTANT)[2].partition(_USER)
        return between, after


def _another_template(found: str, expected: str) -> ConfigError:
    return ConfigError("model.policy's chat template", found, expected, "Use another.")


def _messages(roles: Sequence[Role], texts: Sequence[str]) -> list[Message]:
    return [Message(role, text) for role, text in zip(roles, texts, strict=True)]
