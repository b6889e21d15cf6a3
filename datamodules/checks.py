"""What `data` refuses by its keys alone; combinations with the objective are in `combinations.py`."""

import copy
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any

from cod_lightning.contexts.base import Budget, ContextMechanism
from cod_lightning.engines.base import Engine, Served
from cod_lightning.envs.base import TextEnv, Tools, beside
from cod_lightning.errors import ConfigError, answering
from cod_lightning.lifecycles import Program, asks, outline
from cod_lightning.models.base import Policy
from cod_lightning.rewards import SiblingReward
from cod_lightning.rewards.base import Rewards
from cod_lightning.rollout.boundaries import see_known, see_sentences
from cod_lightning.rollout.chat import Chat
from cod_lightning.rollout.episode import check_hooks
from cod_lightning.rollout.transcript import see_kept
from cod_lightning.types import EpisodeKind, Pack, Split, text_of

_OF_RENDERING = frozenset(
    {"messages", "conversation", "add_generation_prompt", "tokenize", "enable_thinking", "chat_template", "tools"}
)


def check_variables(variables: Mapping[str, Any]) -> None:
    """No variable of the chat template is one that is set elsewhere."""
    if taken := sorted(_OF_RENDERING & variables.keys()):
        expected = f"variables of the template other than {', '.join(sorted(_OF_RENDERING))}, which are set elsewhere"
        remedy = "Leave it out; data.enable_thinking is a key of its own."
        raise ConfigError("data.chat_template_kwargs", taken[0], expected, remedy)


def check_siblings(rewards: Rewards, program: Program, pack_size: int) -> None:
    """No part compares siblings where attempts, which have none, count beside them, or where siblings do not solve the tasks of a
    pack in their order: each proposes its own, or solves one again."""
    solves = [step for step in outline(program, pack_size) if step.kind is EpisodeKind.SOLVE]
    others = any(ask.chooses_task for ask in asks(program, pack_size))
    others = others or any(step.task != step.position for step in solves)
    for key, part in rewards.items():
        if isinstance(part, SiblingReward) and (program.beside or others):
            expected = f"none with data.program={type(program).__name__}, whose attempts or tasks siblings do not share"
            raise ConfigError(f"data.rewards.{key}", type(part).__name__, expected, "Leave out one of the two.")


def check_staleness(data: Any) -> None:
    """What rollouts that are played beside training need of the RolloutDataModule."""
    staleness, resample = data.max_staleness, data.resample_packs
    source, shown = type(data.packs.source).__name__, type(data.buffer).__name__ if data.buffer else staleness
    for refuses, expected in (
        (data.engine.sleeps, "0 with data.engine.sleep, since the engine serves while training goes on"),
        (data.packs.collects, f"0 with {source}, whose lifecycles another process plays"),
        (data.buffer and data.packs.learns, f"a number with {source}, which learns of every rollout in its order"),
        (resample, f"0 with data.resample_packs={resample}: packs are replaced once a rollout is over"),
    ):
        if staleness and refuses:
            raise ConfigError("data.max_staleness", shown, expected, "Lower it, or leave the other out.")


def check_trainable(engine: Engine) -> None:
    """Refuse an engine that has neither the policy's weights nor log-probabilities of what it sampled."""
    if not engine.has_weights:
        expected = (
            "one with the policy's weights in `fit`, since training needs them and the log-probs of sampled tokens"
        )
        remedy = "Use test, validate or deploy; or choose engine=TransformersEngine and a policy with weights."
        raise ConfigError("data.engine", type(engine).__name__, expected, remedy)


def check_pair(engine: Engine, policy: Policy) -> None:
    """Engine and policy both have weights, or both have none."""
    if engine.has_weights != policy.has_weights:
        expected = f"an engine {'with' if policy.has_weights else 'without'} weights, as {type(policy).__name__} is"
        remedy = "Choose engine=OpenAIEngine together with model.policy=EndpointPolicy, or neither."
        raise ConfigError("data.engine", type(engine).__name__, expected, remedy)


def check_media(engine: Engine, env: TextEnv, key: str = "data.engine") -> None:
    """Refuse an engine that reads no images where an environment shows them."""
    if env.traits.shows_images and not engine.takes_media:
        expected = f"an engine that takes media, since {type(env).__name__} shows images"
        raise ConfigError(
            key, type(engine).__name__, expected, "OpenAIEngine is one; or choose an environment in text."
        )


def check_window(window: int, config: Any) -> None:
    """No dialogue goes on beyond the positions that a checkpoint with this config, if there is one, was made for."""
    longest = (config and getattr(config.get_text_config(), "max_position_embeddings", None)) or window
    if window > longest:
        expected = f"at most {longest}, the positions that the policy was made for"
        raise ConfigError("model.policy.window", window, expected, f"Set it to {longest}.")


def asked_of(policy: Policy) -> Served:
    """What an engine is to serve of the policy."""
    dtype = str(policy.dtype).removeprefix("torch.")
    return Served(adapter_rank=policy.adapter_rank, four_bit=policy.four_bit, dtype=dtype, config=policy.config)


def check_baseline(baseline: Engine | None) -> None:
    """Refuse an engine that would take the policy's weights."""
    if baseline is not None and baseline.has_weights:
        expected = "an engine whose model is somewhere else, such as cod_lightning.engines.openai.OpenAIEngine"
        raise ConfigError("data.baseline", type(baseline).__name__, expected, "data.engine is the policy's own.")


def check_names(suites: Sequence[str]) -> None:
    """Refuse two suites of one name."""
    if twice := sorted({name for name in suites if suites.count(name) > 1}):
        remedy = "Rename one: evaluation.json keeps them by name."
        raise ConfigError("data.suites", ", ".join(twice), "names that occur once", remedy)


def unplayable(part: TextEnv | ContextMechanism, expected: str) -> ConfigError:
    """The refusal of an environment or a context mechanism that raises before anything is trained."""
    name = "env" if isinstance(part, TextEnv) else "context"
    return ConfigError(f"data.{name}", type(part).__name__, expected, f"`check --{name}` says what it breaks.")


def drawn_pack(env: TextEnv, num_tasks: int, seed: int, index: int = 0, split: Split = Split.TRAIN) -> Pack:
    """A pack of the environment's. Raises `ConfigError` where it draws none that a record can hold."""
    with answering(partial(unplayable, env), "an environment that draws packs"):
        pack = env.sample_pack(split=split, index=index, num_tasks=num_tasks, seed=seed)
        if not isinstance(pack, Pack):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"sample_pack() gave a {type(pack).__name__}, not a Pack")
        return see_kept(pack)


def first_pack(env: TextEnv, num_tasks: int, seed: int) -> Pack:
    """The first training pack, after which comes one of another id, by which packs are known."""
    first, second = (drawn_pack(env, num_tasks, seed, index) for index in range(2))
    if first.id == second.id:
        expected = f"an environment whose packs have ids of their own; the first two are both {first.id!r:.80}"
        raise ConfigError("data.env", type(env).__name__, expected, "Put split, seed and index into the Pack's id.")
    return first


def check_first_pack(data: Any, chat: Chat, window: int) -> None:
    """First prompts of the DataModule, of a task and of texts for which its program asks, are in words that the policy knows, and
    fit with a response and what the context budgets into the window."""
    from cod_lightning.rollout.asked import first_ids  # needed once the DataModule is set up

    env, context, program, max_new_tokens = data.env, data.context, data.program, data.max_new_tokens
    pack = first_pack(env, data.pack_size, data.seed)
    beside(context, Budget).check(window, max_new_tokens)
    check_hooks(env, context)
    with answering(partial(unplayable, env), "an environment that begins a task"), closing(copy.deepcopy(env)) as world:
        begun, _ = world.reset(options={"task": pack.tasks[0]})
        observation = text_of(begun)
        rules, tools = world.rules, beside(world, Tools).schemas
        texts = [("reset()", observation), ("rules", rules)]
        for ask in asks(program, len(pack)):
            ask.check(world)
            see_known(ask.request, chat, program, "words()")
            texts.append((type(ask).__name__, ask.message(world, observation)))
        for name, text in texts:
            if not isinstance(text, str):
                raise TypeError(f"{name} gave a {type(text).__name__}, not a text")
    for name, text in texts:
        see_known(text, chat, env, name)
    see_sentences(env, context, chat)
    if word := chat.unknown_word(chat.system_prompt):
        expected = f"words that the policy knows, not {word!r}"
        raise ConfigError("data.system_prompt", chat.system_prompt, expected, "Leave it out for a tiny policy.")
    asked = [(f"the prompt for {name}", text, ()) for name, text in texts[2:]]
    for what, text, schemas in [("a first prompt", observation, tools), *asked]:
        with answering(partial(unplayable, context), "a context mechanism that shows its empty state"):
            system = context.prepare(context.empty(), rules, text).system
        see_known(system, chat, context, "prepare()")
        prompt = len(first_ids(chat, system, text, schemas))
        if (needed := prompt + max_new_tokens) > window:
            expected = f"at least {needed}: {what} of {prompt} tokens and data.max_new_tokens={max_new_tokens}"
            raise ConfigError("model.policy.window", window, expected, "Raise it, or lower data.max_new_tokens.")
