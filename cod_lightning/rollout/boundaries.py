"""Where a failure comes from, and what it costs: environment, engine and context mechanism each have a boundary here.

Whatever code beyond a boundary raises, `sys.exit()`, `KeyboardInterrupt` and cancellations of its own included, becomes one of
`FAULTS`, which costs the lifecycle that met it. What is really meant for the run passes.
"""

import asyncio
import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NoReturn, TypeVar

from msgspec import structs

from cod_lightning.contexts.base import ContextMechanism, ContextUpdate, History, Intervention, Words
from cod_lightning.engines.base import Completion
from cod_lightning.envs.base import TextEnv, Tools, Vocabulary, beside
from cod_lightning.errors import (
    BadCompletion,
    CodLightningError,
    ConfigError,
    ContextFailure,
    EngineFailure,
    EnvironmentFailure,
    EpisodeTimeout,
    ForgedRole,
    described,
    ends_the_run,
    note_fault,
)
from cod_lightning.lifecycles.base import Program
from cod_lightning.markdown import visible
from cod_lightning.rewards.base import LARGEST
from cod_lightning.rollout.chat import Chat
from cod_lightning.rollout.deadlines import Limited, in_thread
from cod_lightning.types import Episode, EpisodeStatus, Image, Message, Part, Role, StopReason, Text, text_of

_T = TypeVar("_T")
FAULTS = (EngineFailure, EnvironmentFailure, ContextFailure, ForgedRole, EpisodeTimeout)
"""They cost their lifecycle; anything else ends the run."""
_LONGEST_TEXT = 1_000_000
"""Characters of an observation, of rules, of a system text or a message of an update; longer ones would fill the memory."""
_MOST_PARTS, _LARGEST_IMAGE, _LONGEST_SIDE = 32, 2**20, 4096
"""Parts of an observation, bytes of an image, pixels of a side: what reads an image unpacks it."""
_PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"
"""The first bytes of the file; width and height follow, four bytes each."""
_IDS, _LOGPROBS = frozenset({int}), frozenset({float, int})
"""Types of what is in a completion: no booleans, no arrays' scalars."""
_LISTS_WORDS = {
    TextEnv: ("data.env", "'s companion Vocabulary"),
    ContextMechanism: ("data.context", "'s companion Words"),
    Program: ("data.program", ""),
}
"""The key of what speaks to a policy, and which companion of it lists its words."""
_ROUNDING = 1e-2
"""nats by which a log-probability may exceed 0 in low precision."""


def blame(kind: type[CodLightningError], error: BaseException, who: object = None) -> NoReturn:
    """Raise `kind`, which names the error and whose it is; or the error itself where it is a `kind` already or ends the run."""
    if isinstance(error, kind) or ends_the_run(error):
        raise error
    raise kind(f"{'' if who is None else f'{type(who).__name__} raised '}{described(error)}") from error


def crossing(kind: type[CodLightningError], call: Callable[[], _T], who: object = None) -> _T:
    """The call's result; whatever it raises is blamed."""
    try:
        return call()
    except BaseException as error:
        blame(kind, error, who)


async def answered(env: TextEnv, call: Callable[[], Any], *, bounded: bool = True) -> Any:
    """What a call of the environment gives: from a thread where it blocks, awaited where it is asynchronous; the caller blames."""
    blocking = env.traits.blocking
    found = await in_thread(partial(crossing, EnvironmentFailure, call), bounded=bounded) if blocking else call()
    return await found if asyncio.isfuture(found) else found


async def closed(env: TextEnv, limit_s: float | None) -> None:
    """Close the environment. Raises `EnvironmentFailure`, also where that takes longer than `limit_s` seconds.

    A blocking one in a thread that is not counted: all that are may wait in calls that only closing ends.
    """
    try:
        async with Limited(
            limit_s, lambda: EnvironmentFailure(f"not closed after data.deadlines.episode_s={limit_s:g} s")
        ):
            await answered(env, env.close, bounded=False)
    except BaseException as error:
        blame(EnvironmentFailure, error)


def check_reward(reward: float, env: TextEnv) -> None:
    """Raise `EnvironmentFailure` for a reward that is not finite, or outside the environment's range."""
    low, high = env.traits.reward_range
    low, high = max(low, -LARGEST), min(high, LARGEST)
    if not low <= reward <= high:
        raise EnvironmentFailure(f"{type(env).__name__} gave reward {reward}, outside its range [{low}, {high}]")


def checked_text(text: object, who: object, kind: type[CodLightningError] = EnvironmentFailure) -> str:
    """The text. Raises `kind` for what no tokenizer takes: no string, half of a surrogate pair, more than a million characters."""
    if type(text) is str and len(text) <= _LONGEST_TEXT and text.isascii():
        return text
    if not isinstance(text, str):
        raise kind(f"{type(who).__name__} showed a {type(text).__name__}, not a string")
    text = str.__str__(text)  # of a class of its own, whose methods are not asked
    if len(text) > _LONGEST_TEXT:
        raise kind(f"{type(who).__name__} showed {len(text):,} characters; at most {_LONGEST_TEXT:,} are read")
    if not text.isascii():
        text.encode()
    return text


def checked_observation(shown: object, env: TextEnv) -> Message:
    """The user's message that shows it, neighbouring texts joined. Raises `EnvironmentFailure`, also for images undeclared."""
    if not isinstance(shown, tuple):
        return Message(Role.USER, checked_text(shown, env))
    who = type(env).__name__
    if len(shown) > _MOST_PARTS:
        raise EnvironmentFailure(f"{who} showed {len(shown):,} parts at once; at most {_MOST_PARTS} are read")
    parts = [_checked_part(part, env) for part in shown]
    text = checked_text(text_of(tuple(parts)), env)
    if not any(isinstance(part, Image) for part in parts):
        return Message(Role.USER, text)
    if not env.traits.shows_images:
        raise EnvironmentFailure(f"{who} showed an image; set traits = Traits(shows_images=True)")
    if beside(env, Tools).schemas:
        raise EnvironmentFailure(f"{who} showed an image beside tools, whose results are text alone")
    joined: list[Part] = []
    for part in parts:
        if isinstance(part, Text) and joined and isinstance(joined[-1], Text):
            joined[-1] = Text(joined[-1].text + part.text)
        else:
            joined.append(part)
    return Message(Role.USER, text, tuple(joined))


def _checked_part(part: object, env: TextEnv) -> Part:
    """The part. Raises `EnvironmentFailure` for what is none, is no PNG, or is too large."""
    who = type(env).__name__
    if type(part) is Text:
        return Text(checked_text(part.text, env))
    if type(part) is not Image:
        raise EnvironmentFailure(f"{who} showed a {type(part).__name__} among its parts; expected Text or Image")
    png: object = part.png
    if part.media_type != "image/png" or type(png) is not bytes or not png.startswith(_PNG):
        raise EnvironmentFailure(f"{who} showed an image that is no PNG")
    sides = [int.from_bytes(png[at : at + 4]) for at in (len(_PNG), len(_PNG) + 4)]
    if len(png) > _LARGEST_IMAGE or not 1 <= min(sides) <= max(sides) <= _LONGEST_SIDE:
        found = f"of {len(png):,} bytes and {sides[0]:,} x {sides[1]:,} pixels"
        most = f"{_LARGEST_IMAGE:,} bytes and {_LONGEST_SIDE:,} pixels a side"
        raise EnvironmentFailure(f"{who} showed an image {found}; at most {most} are read")
    return Image(png, checked_text(part.alternative, env))


def see_known(text: str, chat: Chat, who: TextEnv | ContextMechanism | Program, method: str) -> None:
    """Raise `ConfigError` for a word that a policy with a closed vocabulary would read as an unknown one."""
    if word := chat.unknown_word(text):
        name = type(who).__name__
        key, lists = next(where for kind, where in _LISTS_WORDS.items() if isinstance(who, kind))
        raise ConfigError(
            key,
            f"{name}, whose {method} says the word '{visible(word):.100}'",
            "only words that the words() of environment, context or program list, since the policy reads any other as <unk>",
            f"Add it to words() of {name}{lists}, set a protocol to compact, or choose a model with an open vocabulary.",
        )


def see_sentences(env: TextEnv, mechanism: ContextMechanism, chat: Chat, key: str = "data.env") -> None:
    """Raise `ConfigError` where a language model would meet an environment in single words beside a context in sentences."""
    if not chat.closed and beside(env, Vocabulary).words() and not beside(mechanism, Words).words():
        found = f"{type(env).__name__} in single words, which are for tiny policies"
        expected = f"an environment in sentences for a language model, as {type(mechanism).__name__} is"
        remedy = "Set data.env.protocol=natural, or choose context=hint_compact if single words are meant."
        raise ConfigError(key, found, expected, remedy)


def checked_messages(
    found: Iterable[Any], mechanism: ContextMechanism, before: Sequence[Message] = ()
) -> tuple[Message, ...]:
    """The messages. Raises for what are none, and for images that the messages before do not have."""
    messages = tuple(
        Message(Role(one.role), checked_text(one.content, mechanism, ContextFailure), one.parts) for one in found
    )
    if not messages:
        raise ContextFailure(f"{type(mechanism).__name__} gave no messages")
    if any(one.parts != () and one not in before for one in messages):
        raise ContextFailure(f"{type(mechanism).__name__} showed an image that the dialogue does not have")
    return messages


def checked_state(mechanism: ContextMechanism, state: Any) -> Any:
    """The state. Raises `ContextFailure` for one that is not the mechanism's own, which no record may hold."""
    if not isinstance(state, mechanism.State):
        name = type(mechanism).__name__
        raise ContextFailure(f"{name} gave a {type(state).__name__} as its state, not a {mechanism.State.__name__}")
    return state


def context_text(mechanism: ContextMechanism, state: Any) -> str:
    """The state for readers. Raises `ContextFailure` for what is no text, and whatever the mechanism raises."""
    checked_state(mechanism, state)
    return checked_text(mechanism.text(state), mechanism, ContextFailure)


def checked_intervention(found: Intervention, mechanism: ContextMechanism) -> Intervention:
    """What a mechanism's `on_turn` gave. Raises unless it is what it has to be."""
    for text in (found.reply, found.action):
        if text is not None:
            checked_text(text, mechanism, ContextFailure)
    return Intervention(found.state, found.reply, found.action)


def checked_history(found: History, mechanism: ContextMechanism, before: Sequence[Message]) -> History:
    """What a mechanism's `before_turn` gave. Raises unless it is a dialogue that any chat template can render, with no images but
    those of the messages before."""
    messages = checked_messages(found.messages, mechanism, before)
    roles = [message.role for message in messages]
    if len(roles) % 2 or roles != [Role.SYSTEM, *[Role.USER, Role.ASSISTANT] * len(roles)][: len(roles)]:
        who = f"{type(mechanism).__name__}.before_turn"
        raise ContextFailure(
            f"{who} gave the roles {', '.join(roles)}; expected system, user, then assistant and user in turn"
        )
    return History(found.state, messages)


def checked_update(found: ContextUpdate, mechanism: ContextMechanism) -> ContextUpdate:
    """What a mechanism's `update` returned, in plain values. Raises unless it is what it has to be."""
    reason, reward = checked_text(found.reason, mechanism, ContextFailure), float(found.reward)
    if not abs(reward) <= LARGEST:
        raise ContextFailure(f"{type(mechanism).__name__}.update gave reward {reward}, not a finite number")
    return ContextUpdate(state=found.state, reward=reward, parsed=bool(found.parsed), reason=reason)


def failed_at_the_end(episodes: list[Episode], error: EnvironmentFailure) -> list[Episode]:
    """The episodes, the last one that took place failed: what an environment that cannot be closed has answered is not trusted."""
    note_fault(error)
    last = max((e for e, one in enumerate(episodes) if one.status is not EpisodeStatus.SKIPPED), default=None)
    if last is not None and episodes[last].status is not EpisodeStatus.FAILED:
        failed = structs.replace(
            episodes[last], status=EpisodeStatus.FAILED, reward=None, success=None, error=described(error)
        )
        return [*episodes[:last], failed, *episodes[last + 1 :]]
    return episodes


def check_completion(completion: object, *, max_new_tokens: int | None, num_ids: int, prompt_digest: int) -> Completion:
    """The completion, or `BadCompletion` that names what is wrong with it.

    Args:
        completion: What the engine returned.
        max_new_tokens: Most ids; None for an engine that counts in other tokens than the policy.
        num_ids: Ids are below it.
        prompt_digest: Of the ids that it had to go on from.
    """
    if not isinstance(completion, Completion):
        raise BadCompletion(f"a {type(completion).__name__} instead of a Completion")
    ids, logprobs = completion.action_ids, completion.behaviour_logprobs
    if not ids and completion.stop is not StopReason.WINDOW:
        raise BadCompletion("no tokens, where even silence has its end token")
    if max_new_tokens is not None and len(ids) > max_new_tokens:
        raise BadCompletion(f"{len(ids)} tokens where {max_new_tokens} were asked for")
    if len(logprobs) != len(ids):
        raise BadCompletion(f"{len(logprobs)} log-probs for {len(ids)} tokens")
    if not _IDS.issuperset(map(type, ids)):
        raise BadCompletion(f"token ids of type {_types(ids, _IDS)}")
    if ids and (min(ids) < 0 or max(ids) >= num_ids):
        wrong = next(i for i in ids if not 0 <= i < num_ids)
        raise BadCompletion(f"token id {wrong}, outside the vocabulary of {num_ids}")
    if not _LOGPROBS.issuperset(map(type, logprobs)):
        raise BadCompletion(f"log-probs of type {_types(logprobs, _LOGPROBS)}")
    if not math.isfinite(sum(logprobs)) or max(logprobs, default=0.0) > _ROUNDING:  # not finite if any is not
        wrong = next((p for p in logprobs if not (math.isfinite(p) and p <= _ROUNDING)), sum(logprobs))
        raise BadCompletion(f"log-prob {wrong}, where one is finite and at most 0")
    if not isinstance(completion.stop, StopReason) or not isinstance(completion.policy_version, int):
        raise BadCompletion(f"stop {completion.stop!r}, policy version {completion.policy_version!r}")
    if completion.prompt_digest != prompt_digest:
        raise BadCompletion("its digest shows that it continues other ids than those of the prompt")
    return completion


def _types(values: tuple[object, ...], allowed: frozenset[type]) -> str:
    """Names of the types that are not allowed."""
    return ", ".join(sorted(t.__name__ for t in set(map(type, values)) - allowed))
