"""What `data` refuses by its keys alone; combinations with the objective are in `modules/checks.py`."""

import copy
from collections.abc import Sequence
from functools import partial
from typing import Any

from cod_lightning.contexts.base import Budget, ContextMechanism
from cod_lightning.engines.base import Engine, Served
from cod_lightning.envs.base import TextEnv, Tools, beside
from cod_lightning.envs.checks import MOST_PACKS, check_num_tasks
from cod_lightning.envs.own_loop import own_loop
from cod_lightning.errors import ConfigError, answering, check_at_least
from cod_lightning.lifecycles import Program, asks, outline
from cod_lightning.models.base import Policy
from cod_lightning.rewards import Rewards, SiblingReward
from cod_lightning.rollout.asked import first_ids
from cod_lightning.rollout.boundaries import see_known, see_sentences
from cod_lightning.rollout.chat import Chat
from cod_lightning.rollout.dialogue import thought_marks
from cod_lightning.rollout.episode import check_hooks
from cod_lightning.training.frozen import FrozenRole
from cod_lightning.training.packs import PackSource
from cod_lightning.types import EpisodeKind, Pack, Split, Task


def check_sizes(
    pack_size: int, group_size: int, packs: int, updates: int, rollouts: int, val_packs: int, max_new_tokens: int
) -> None:
    """Every count is large enough, and packs can be shared out between updates."""
    for key, value, least, why in (
        ("pack_size", pack_size, 2, "credit for a context needs a later task"),
        ("group_size", group_size, 1, "a pack is played"),
        ("packs_per_rollout", packs, 1, "a rollout has packs"),
        ("updates_per_rollout", updates, 1, "a rollout is trained on"),
        ("rollouts_per_epoch", rollouts, 1, "an epoch has rollouts"),
        ("val_packs", val_packs, 1, "validation has packs"),
        ("max_new_tokens", max_new_tokens, 1, "a response has tokens"),
    ):
        if not least <= value <= MOST_PACKS:
            expected = f"at least {least}, since {why}, and at most {MOST_PACKS:,}"
            raise ConfigError(f"data.{key}", value, expected, "Change it.")
    check_num_tasks("data.pack_size", pack_size)
    if packs % updates:
        nearest = next(d for d in range(updates, 0, -1) if packs % d == 0)
        expected = f"a divisor of data.packs_per_rollout={packs}"
        raise ConfigError("data.updates_per_rollout", updates, expected, f"The nearest is {nearest}.")


def check_reuse(passes: int, resample: int) -> None:
    """How often tokens are trained on, and packs replaced."""
    check_at_least("data.passes_per_rollout", passes, 1, "1 looks at every token once.")
    check_at_least("data.resample_packs", resample, 0, "0 keeps packs without signal.")


def check_comparing(rewards: Rewards, program: Program) -> None:
    """No part compares siblings where attempts, which are no sibling's, are compared with their episodes."""
    name = type(program).__name__
    for key, part in rewards.items():
        if isinstance(part, SiblingReward) and program.beside:
            expected = (
                f"none beside data.program={name}, whose attempts are compared with episodes and have no siblings"
            )
            raise ConfigError(f"data.rewards.{key}", type(part).__name__, expected, "Leave out one of the two.")


def check_rounds(program: Program, pack_size: int, rewards: Rewards, source: PackSource | None) -> None:
    """Where the program plays tasks again: nothing needs the pack's own task at each position, or packs of another size, and a
    context is used."""
    played = {step.task for step in outline(program, pack_size) if step.kind is EpisodeKind.SOLVE}
    if len(played) == pack_size:
        return
    unfit: list[tuple[str, object]] = [
        (f"data.rewards.{name}", type(part).__name__)
        for name, part in rewards.items()
        if isinstance(part, SiblingReward)
    ]
    unfit += [("data.program", "with attempts")] if program.beside else []
    unfit += [("data.source.num_tasks", "set")] if source is not None and source.changes_size else []
    for key, value in unfit:
        expected = (
            f"none with data.program={type(program).__name__}, where siblings may play other tasks than the pack's own"
        )
        raise ConfigError(key, value, expected, "Leave it out, or choose program=ConnectTheDots.")
    if len(played) == 1:
        expected = f"more than the {pack_size} solve episodes of one task, since no later task would use a context"
        raise ConfigError("data.pack_size", pack_size, expected, f"Set it to {2 * pack_size}, or change data.program.")


def check_asks(
    program: Program,
    env: TextEnv,
    pack: Pack,
    chat: Chat,
    context: ContextMechanism,
    window: int,
    max_new_tokens: int,
) -> None:
    """Texts for which the program asks have a meaning in the environment, and are asked for in words that the policy knows, as many
    as fit into its window."""
    for ask in asks(program, len(pack)):
        name = type(ask).__name__
        with answering(partial(unplayable, env), "an environment that begins a task"):
            world = copy.deepcopy(env)
            observation, _ = world.reset(options={"task": pack.tasks[0]})
            ask.check(world)
            rules, message = world.rules, ask.message(world, observation)
            world.close()
        if not isinstance(message, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise unplayable(env, f"an environment whose {name} is text, not a {type(message).__name__}")
        see_known(ask.request, chat, program, "words()")
        see_known(message, chat, env, name)
        prompt = len(first_ids(chat, _first_system(context, rules, message), message, ()))
        made = f"{name} makes a prompt of {prompt} tokens, and"
        _see_room(prompt, window, max_new_tokens, made, f"Raise the window, or shorten the {name}.")


def check_staleness(data: Any, ranks: int) -> None:
    """What rollouts that are played beside training need of the RolloutDataModule."""
    max_staleness, engine, resample = data.max_staleness, data.engine, data.resample_packs
    check_at_least("data.max_staleness", max_staleness, 0, "0 waits for every rollout, 1 plays the next one meanwhile.")
    if max_staleness and engine.sleeps:
        expected = "0 with data.engine.sleep, since the engine serves while training goes on"
        raise ConfigError("data.max_staleness", max_staleness, expected, "Leave one of them out.")
    if max_staleness and data.packs.collects:
        expected = f"0 with {type(data.packs.source).__name__}, whose lifecycles another process plays"
        raise ConfigError("data.max_staleness", max_staleness, expected, "Leave one of them out.")
    alike = copy.copy(engine)
    alike.max_staleness = max_staleness  # which the engine itself learns in `fit`
    if not data.in_order and (data.buffer is not None or not alike.in_flight):
        expected = (
            "true, except with engine=VLLMServerEngine and data.max_staleness above 1: others wait for all groups"
        )
        raise ConfigError("data.in_order", False, expected, "Leave it out.")
    if max_staleness > 1 and resample:
        expected = (
            f"0 or 1 with data.resample_packs={resample}, since only a rollout that is over tells which pack is next"
        )
        raise ConfigError("data.max_staleness", max_staleness, expected, "Lower it, or leave resample_packs out.")
    if data.buffer is not None and (max_staleness < 2 or data.packs.learns):
        expected = "null with data.max_staleness below 2, or with a source that learns of every rollout in its order"
        raise ConfigError("data.buffer", "PriorityBuffer", expected, "Set data.max_staleness 5 and source=Uniform.")
    if max_staleness and resample and ranks > 1:
        expected = f"0 with data.resample_packs={resample} on {ranks} ranks, which settle together what is replaced"
        raise ConfigError("data.max_staleness", max_staleness, expected, "Leave one of them out.")


def check_trainable(engine: Engine) -> None:
    """Refuse an engine that has neither the policy's weights nor log-probabilities of what it sampled."""
    if not engine.has_weights:
        expected = (
            "one with the policy's weights in `fit`, since training needs them and the log-probs of sampled tokens"
        )
        remedy = "Use test, validate, predict or deploy; or choose engine=TransformersEngine and a policy with weights."
        raise ConfigError("data.engine", type(engine).__name__, expected, remedy)


def check_pair(engine: Engine, policy: Policy, frozen: FrozenRole | None = None) -> None:
    """Engine and policy both have weights, or both have none; all adapters are served, and none is without episodes to play."""
    if engine.has_weights != policy.has_weights:
        expected = f"an engine {'with' if policy.has_weights else 'without'} weights, as {type(policy).__name__} is"
        remedy = "Choose engine=OpenAIEngine together with model.policy=EndpointPolicy, or neither."
        raise ConfigError("data.engine", type(engine).__name__, expected, remedy)
    if policy.adapter_kinds and not engine.serves_several_adapters:
        expected = "an engine that serves several adapters, with model.policy.adapters=by_role"
        remedy = "Choose engine=TransformersEngine or engine=VLLMEngine, or set model.policy.adapters to shared."
        raise ConfigError("data.engine", type(engine).__name__, expected, remedy)
    if frozen is not None and policy.adapter_kinds:
        expected = "null with model.policy.adapters=by_role, whose own adapter plays these episodes"
        remedy = "Leave it out: model.trained_kinds keeps the other adapter as it is. Or set adapters to shared."
        raise ConfigError("data.frozen.kind", str(frozen.kind), expected, remedy)


def check_served(engine: Engine, policy: Policy) -> None:
    """The engine has on this machine what it needs to serve the policy."""
    engine.check(asked_of(policy))


def asked_of(policy: Policy) -> Served:
    """What an engine is to serve of the policy."""
    dtype = str(policy.dtype).removeprefix("torch.")
    return Served(adapter_rank=policy.adapter_rank, four_bit=policy.four_bit, dtype=dtype, config=policy.config)


def check_sampling(temperature: float, top_p: float) -> None:
    """Training samples from the policy itself."""
    why = "exactly 1 in training, since otherwise the ratio of policy to behaviour is biased"
    for key, value in (("temperature", temperature), ("top_p", top_p)):
        if value != 1:
            raise ConfigError(f"data.{key}", value, why, "Leave it out; suites choose their own temperature.")


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


def check_turns(
    stop_strings: tuple[str, ...], budget: int | None, most: int, chat: Chat, engine: Engine, env: TextEnv
) -> None:
    """What ends a turn, and a thought, can be written by the policy and seen by the engine."""
    for text in stop_strings:
        if not text or chat.unknown_word(text):
            expected = "texts that the policy can write, none of them empty"
            raise ConfigError("data.stop_strings", repr(text), expected, "Leave it out.")
    if budget is None:
        return
    if not 1 <= budget < most:
        expected = f"at least 1 and below data.max_new_tokens={most}, so that an answer can follow"
        raise ConfigError("data.thinking_budget", budget, expected, f"Half of it, {max(1, most // 2)}, is one.")
    if not chat.enable_thinking or not engine.has_weights:
        expected = "null without data.enable_thinking, and for a model behind an endpoint"
        raise ConfigError("data.thinking_budget", budget, expected, "Leave it out, or set data.enable_thinking=true.")
    thought_marks(chat)
    if own_loop(env):
        expected = "null, since the environment leaves its turns to a program of its own"
        raise ConfigError("data.thinking_budget", budget, expected, "Leave it out.")


def unplayable(part: TextEnv | ContextMechanism, expected: str) -> ConfigError:
    """The refusal of an environment or a context mechanism that raises before anything is trained."""
    name = "env" if isinstance(part, TextEnv) else "context"
    return ConfigError(f"data.{name}", type(part).__name__, expected, f"`check --{name}` says what it breaks.")


def first_pack(env: TextEnv, num_tasks: int, seed: int) -> Pack:
    """The first pack of the training."""
    return _pack(env, 0, num_tasks, seed)


def check_ids(env: TextEnv, first: Pack, seed: int) -> None:
    """The pack after the first one has another id, by which packs are known."""
    if first.id == _pack(env, 1, len(first), seed).id:
        expected = f"an environment whose packs have ids of their own; the first two are both {first.id!r:.80}"
        raise ConfigError("data.env", type(env).__name__, expected, "Put split, seed and index into the Pack's id.")


def _pack(env: TextEnv, index: int, num_tasks: int, seed: int) -> Pack:
    with answering(partial(unplayable, env), "an environment that draws packs"):
        pack = env.sample_pack(split=Split.TRAIN, index=index, num_tasks=num_tasks, seed=seed)
        if not isinstance(pack, Pack):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"sample_pack() gave a {type(pack).__name__}, not a Pack")
        return pack


def check_first_prompt(
    env: TextEnv, context: ContextMechanism, task: Task, window: int, chat: Chat, max_new_tokens: int
) -> None:
    """A first prompt is in words that the policy knows, and fits with its response and what the context budgets into the window."""
    beside(context, Budget).check(window, max_new_tokens)
    check_hooks(env, context)
    with answering(partial(unplayable, env), "an environment that begins a task"):
        world = copy.deepcopy(env)
        observation, _ = world.reset(options={"task": task})
        rules = world.rules
        if not isinstance(observation, str) or not isinstance(rules, str):
            raise TypeError(
                f"reset() and rules gave {type(observation).__name__} and {type(rules).__name__}, not texts"
            )
    see_known(observation, chat, env, "reset()")
    see_known(rules, chat, env, "rules")
    system = _first_system(context, rules, observation)
    see_known(system, chat, context, "prepare()")
    see_sentences(env, context, chat)
    if word := chat.unknown_word(chat.system_prompt):
        expected = f"words that the policy knows, not {word!r}"
        raise ConfigError("data.system_prompt", chat.system_prompt, expected, "Leave it out for a tiny policy.")
    prompt = len(first_ids(chat, system, observation, beside(world, Tools).schemas))
    world.close()
    made = f"a first prompt of {prompt} tokens and"
    _see_room(prompt, window, max_new_tokens, made, "Raise the window or lower data.max_new_tokens.")


def _first_system(context: ContextMechanism, rules: str, observation: str) -> str:
    """The system text before anything is in the context."""
    with answering(partial(unplayable, context), "a context mechanism that shows its empty state"):
        return context.prepare(context.empty(), rules, observation).system


def _see_room(prompt: int, window: int, max_new_tokens: int, made: str, remedy: str) -> None:
    """A prompt of so many tokens, said by `made`, and a response go into the window."""
    needed = prompt + max_new_tokens
    if needed > window:
        expected = f"at least {needed}: {made} data.max_new_tokens={max_new_tokens}"
        raise ConfigError("model.policy.window", window, expected, remedy)
