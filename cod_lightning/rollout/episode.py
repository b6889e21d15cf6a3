"""One solve episode and one update episode; whatever lies beyond a boundary raises becomes the episode's status."""

from functools import partial
from typing import Any

from msgspec import structs

from cod_lightning.contexts.base import Answer, ContextMechanism, ContextUpdate, InTask, TokenView, UpdateDialogue
from cod_lightning.envs.base import TextEnv, Tools, Vocabulary, beside
from cod_lightning.envs.own_loop import OwnLoop, own_loop
from cod_lightning.errors import ConfigError, ContextFailure, EnvironmentFailure, note_fault
from cod_lightning.lifecycles import Shown
from cod_lightning.rollout.asked import ToolDialogue, opened
from cod_lightning.rollout.boundaries import (
    FAULTS,
    answered,
    blame,
    check_history,
    check_intervention,
    check_prepared,
    check_reward,
    check_update,
    checked_observation,
    checked_opening,
    checked_text,
    context_text,
    crossing,
    see_known,
)
from cod_lightning.rollout.deadlines import episode_limit
from cod_lightning.rollout.dialogue import Dialogue, close, sampled_turn
from cod_lightning.rollout.setting import Setting
from cod_lightning.types import Episode, EpisodeKind, EpisodeStatus, Message, Role, StopReason, Task, Turn

MOST_INTERVENTIONS = 64
"""Turns of a solve episode that a mechanism may answer in the environment's place; after that it is not asked any more."""
MOST_UPDATE_TURNS = 32
"""Turns of an update episode; a mechanism that asks for more has failed."""


async def run_solve_episode(
    env: TextEnv,
    task: Task,
    state: Any,
    setting: Setting,
    identity: str,
    position: int,
    pack_ends: float | None = None,
    shown: Shown = Shown.OWN,
    note: str = "",
) -> Episode:
    """All turns of one task in `env`, given the context that earlier tasks left, and a note that follows the rules."""
    sampler, solving = setting.sampler_of(EpisodeKind.SOLVE), _Solving(env, task, state, setting, position, shown)
    try:
        async with episode_limit(sampler.deadlines, pack_ends):
            sampler.liveness.at(identity, "environment")
            observation, rules = await _begun(env, task)
            see_known(observation.content, sampler.chat, env, "reset()")
            rules = f"{rules}{note}"
            see_known(rules, sampler.chat, env, "rules")
            system = solving.prepared(rules, observation.content)
            see_known(system, sampler.chat, setting.mechanism, "prepare()")
            if loop := own_loop(env):
                return await solving.left_to(loop, system, identity)
            tools = crossing(EnvironmentFailure, lambda: beside(env, Tools).schemas)
            dialogue = opened(sampler, identity, system, observation, tools)
            try:
                return await solving.played(dialogue, rules)
            finally:
                close(dialogue)
    except FAULTS as error:
        note_fault(error)
        return solving.ended(EpisodeStatus.FAILED, None, error=f"{type(error).__name__}: {error}")
    finally:
        sampler.liveness.over(identity)


class _Solving:
    """A solve episode under way: its turns so far, and what the mechanism has made of its context."""

    def __init__(self, env: TextEnv, task: Task, state: Any, setting: Setting, position: int, shown: Shown) -> None:
        self.env, self.task, self.position, self.shown = env, task, position, shown
        self.setting, self.mechanism, self.chat = setting, setting.mechanism, setting.sampler.chat
        self.turns: list[Turn] = []
        self.state_before = self.state = state
        self.context_before = self.context_after = ""
        self.inside: Any = None
        """The state within the task: that of the lifecycle, or one that begins empty and is dropped at the end."""
        self.hooked = False
        """Whether the mechanism is asked before and after turns."""

    def prepared(self, rules: str, observation: str) -> str:
        """The system text. Raises `ContextFailure`."""
        try:
            self.context_before = self.context_after = context_text(self.mechanism, self.state)
            if self.shown is Shown.RULES:
                return rules
            state = self.state if self.shown is Shown.OWN else self.mechanism.empty()
            prepared = self.mechanism.prepare(state, rules, observation)
            check_prepared(prepared, self.mechanism)
            self.inside = prepared.state
            if self.shown is Shown.OWN:
                self.state = prepared.state
            self.hooked = bool(beside(self.mechanism, InTask).hooks())
            return prepared.system
        except BaseException as error:
            blame(ContextFailure, error, self.mechanism)

    async def left_to(self, loop: OwnLoop, system: str, identity: str) -> Episode:
        """The episode as the environment's own program plays it. Raises one of `FAULTS`."""
        from cod_lightning.rollout.own_loop import (  # an HTTP server, which other environments do without
            play,
            recorder_of,
        )

        check_hooks(loop, self.mechanism)
        recorder = recorder_of(loop, self.task, system, self.setting, identity)
        self.turns = recorder.turns
        found = await play(loop, system, recorder)
        if found is None:
            why = "The policy's window is full." if recorder.full else f"All {recorder.most_turns} turns are used up."
            return crossing(EnvironmentFailure, partial(self.ended, EpisodeStatus.TRUNCATED, 0.0, why))
        if len(loop.shown) == len(self.turns):
            texts = [checked_text(text, loop) for text in loop.shown]
            self.turns = [structs.replace(one, observation=t) for one, t in zip(self.turns, texts, strict=True)]
        return crossing(EnvironmentFailure, partial(self.ended, None, found[1], found[0]))

    async def played(self, dialogue: Dialogue, rules: str) -> Episode:
        """The episode, turn by turn to its end. Raises one of `FAULTS`."""
        env, mechanism, num_replies, num_responses = self.env, self.mechanism, 0, 0
        calls = dialogue if isinstance(dialogue, ToolDialogue) else None
        while True:
            turn = await sampled_turn(dialogue)
            self.turns += [turn] if dialogue.thought is None else [dialogue.thought, turn]
            num_responses += 1
            if turn.stop is StopReason.WINDOW:
                closed = beside(env, Vocabulary).words()  # and has no words for it
                said = "" if closed else "The policy's window is full."
                full = partial(self.ended, EpisodeStatus.TRUNCATED, 0.0, said)
                return crossing(EnvironmentFailure, full)
            action, reply = dialogue.response, None
            if calls is not None:
                action = calls.calls_of(structs.replace(turn, response=action))
            if self.hooked:
                inside, action, reply = _intervened(mechanism, self.inside, action, self.chat)
                self._carry(inside)
            if reply is None:
                observation, reward, over = await _stepped(env, action)
                see_known(observation.content, self.chat, env, "step()")
                if over:
                    return crossing(EnvironmentFailure, partial(self.ended, None, reward, observation.content))
                if self.task.max_turns is not None and num_responses - num_replies >= self.task.max_turns:
                    cut = partial(self.ended, EpisodeStatus.TRUNCATED, 0.0, observation.content)
                    return crossing(EnvironmentFailure, cut)
                if num_responses > MOST_INTERVENTIONS:
                    crossing(EnvironmentFailure, partial(_see_end, env, num_responses))
            else:
                observation, num_replies = Message(Role.USER, reply), num_replies + 1
                see_known(reply, self.chat, mechanism, "on_turn()")
            if self.hooked:
                self._carry(_went_on(dialogue, mechanism, self.inside, rules, observation))
                self.hooked = num_replies < MOST_INTERVENTIONS
            elif calls is not None:
                results = crossing(
                    EnvironmentFailure, lambda: [checked_text(text, env) for text in beside(env, Tools).results]
                )
                calls.say(observation.content, results=results)
            else:
                dialogue.say(observation.content, observation.parts)

    def ended(self, status: EpisodeStatus | None, reward: float | None, feedback: str = "", error: str = "") -> Episode:
        """The episode; without a status it has the environment's. Asks the environment where there is a reward."""
        return Episode(
            kind=EpisodeKind.SOLVE,
            position=self.position,
            status=EpisodeStatus(self.env.status) if status is None else status,
            turns=tuple(self.turns),
            reward=reward,
            success=None if reward is None else bool(self.env.success),
            feedback=feedback,
            context_before=self.context_before,
            context_after=self.context_before if reward is None else self.context_after,
            state_before=self.state_before,
            state_after=self.state_before if reward is None else self.state,
            error=error,
            repeat=self.task.repeat,
            reward_hidden=self.env.traits.hides_reward,
        )

    def _carry(self, inside: Any) -> None:
        """Go on with this state within the task; it is the lifecycle's, too, where that is what the task is shown."""
        self.inside = inside
        if self.shown is Shown.OWN and inside is not self.state:
            text = partial(context_text, self.mechanism, inside)
            self.context_after = crossing(ContextFailure, text, self.mechanism)
            self.state = inside


async def _begun(env: TextEnv, task: Task) -> tuple[Message, str]:
    """The first observation and the rules. Raises `EnvironmentFailure`."""
    try:
        observation, _ = await answered(env, lambda: env.reset(options={"task": task}))
        return checked_observation(observation, env), checked_text(env.rules, env)
    except BaseException as error:
        blame(EnvironmentFailure, error)


async def _stepped(env: TextEnv, response: str) -> tuple[Message, float, bool]:
    """The next observation, the reward, and whether the task is over. Raises `EnvironmentFailure`."""
    try:
        observation, reward, terminated, truncated, _ = await answered(env, lambda: env.step(response))
        check_reward(float(reward), env)
        return checked_observation(observation, env), float(reward), bool(terminated or truncated)
    except BaseException as error:
        blame(EnvironmentFailure, error)


def _see_end(env: TextEnv, num_turns: int) -> None:
    """Raise `EnvironmentFailure` for a task that goes on and on; a window may be too large to end it."""
    if num_turns >= env.max_turns + MOST_INTERVENTIONS:
        raise EnvironmentFailure(
            f"{type(env).__name__} goes on after {num_turns} turns; its max_turns is {env.max_turns}"
        )


def check_hooks(env: TextEnv, mechanism: ContextMechanism) -> None:
    """Raise `ConfigError` for a mechanism that acts within tasks whose turns are a program's own, or calls of tools."""
    turns = "takes calls of tools" if beside(env, Tools).schemas else ""
    if own_loop(env):
        turns = "leaves its turns to a program"
    if turns and beside(mechanism, InTask).hooks():
        expected = f"a mechanism that does nothing within a task, since {type(env).__name__} {turns}"
        raise ConfigError("data.context", type(mechanism).__name__, expected, "HintContext is one.")


def _intervened(
    mechanism: ContextMechanism, state: Any, response: str, tokens: TokenView
) -> tuple[Any, str, str | None]:
    """State after a response, what the environment sees of it, and the mechanism's reply to it. Raises `ContextFailure`."""
    try:
        found = beside(mechanism, InTask).on_turn(state, response, tokens)
        if found is None:
            return state, response, None
        check_intervention(found, mechanism)
        return found.state, response if found.action is None else found.action, found.reply
    except BaseException as error:
        blame(ContextFailure, error, mechanism)


def _went_on(dialogue: Dialogue, mechanism: ContextMechanism, state: Any, rules: str, asked: Message) -> Any:
    """Put the next user message, in the dialogue that the mechanism wants; its state from here on. Raises `ContextFailure`."""
    chat = dialogue.sampler.chat
    try:
        messages = (*dialogue.messages, asked)
        found = beside(mechanism, InTask).before_turn(state, rules, messages, chat)
        if found is not None:
            check_history(found, mechanism, messages)
    except BaseException as error:
        blame(ContextFailure, error, mechanism)
    if found is None:
        dialogue.say(asked.content, asked.parts)
        return state
    for message in found.messages:
        if message.role is not Role.ASSISTANT:
            see_known(message.content, chat, mechanism, "before_turn()")
    dialogue.go_on(found.messages)
    return found.state


def after_feedback(mechanism: ContextMechanism, solved: Episode) -> Episode:
    """The solve episode with the state that its reward left. Raises `ContextFailure`."""
    if solved.status is EpisodeStatus.FAILED or type(mechanism).feedback is ContextMechanism.feedback:
        return solved
    state = crossing(ContextFailure, lambda: mechanism.feedback(solved.state_after, solved), mechanism)
    text = crossing(ContextFailure, lambda: context_text(mechanism, state), mechanism)
    return structs.replace(solved, state_after=state, context_after=text)


async def run_update_episode(
    env: TextEnv,
    solved: Episode,
    setting: Setting,
    identity: str,
    pack_ends: float | None = None,
) -> Episode:
    """One rewrite of the context, given the solve episode that has just ended."""
    mechanism, sampler = setting.mechanism, setting.sampler_of(EpisodeKind.UPDATE)
    state, context = solved.state_after, solved.context_after
    unchanged = Episode(
        kind=EpisodeKind.UPDATE,
        position=solved.position,
        status=EpisodeStatus.SKIPPED,
        context_before=context,
        context_after=context,
        state_before=state,
        state_after=state,
    )
    turns: list[Turn] = []
    try:
        async with episode_limit(sampler.deadlines, pack_ends):
            rules = crossing(EnvironmentFailure, lambda: checked_text(env.rules, env))
            try:
                asking = mechanism.update(state, rules, solved, sampler.chat)
                opening = checked_opening(next(asking), mechanism)
            except BaseException as error:
                blame(ContextFailure, error, mechanism)
            for message in opening:
                see_known(message.content, sampler.chat, mechanism, "update()")
            dialogue = sampler.open(identity, opening)
            try:
                found, after, cut_off = await _rewritten(asking, dialogue, turns, mechanism)
            finally:
                close(dialogue)
    except FAULTS as error:
        note_fault(error)
        raised = f"{type(error).__name__}: {error}"
        return structs.replace(unchanged, status=EpisodeStatus.FAILED, turns=tuple(turns), error=raised)
    finally:
        sampler.liveness.over(identity)
    unparsed = EpisodeStatus.TRUNCATED if cut_off else EpisodeStatus.MALFORMED
    return structs.replace(
        unchanged,
        status=EpisodeStatus.COMPLETED if found.parsed else unparsed,
        turns=tuple(turns),
        reward=found.reward,
        success=found.parsed,
        feedback=found.reason,
        context_after=after,
        state_after=found.state,
    )


async def _rewritten(
    asking: UpdateDialogue, dialogue: Dialogue, turns: list[Turn], mechanism: ContextMechanism
) -> tuple[ContextUpdate, str, bool]:
    """What the mechanism makes of the policy's answers, its text, and whether the last answer was cut off. Raises one of `FAULTS`.

    The turns are put into `turns`, also those before a fault.
    """
    try:
        while True:
            turn = await sampled_turn(dialogue)
            turns += [turn] if dialogue.thought is None else [dialogue.thought, turn]
            num_tokens = len(turn.action_ids) + len(dialogue.thought.action_ids if dialogue.thought else ())
            cut_off = turn.stop is not StopReason.STOP
            if len(turns) > MOST_UPDATE_TURNS:
                raise ContextFailure(f"{type(mechanism).__name__} asks for more than {MOST_UPDATE_TURNS} turns")
            try:
                asked = asking.send(Answer(response=dialogue.response, num_tokens=num_tokens, cut_off=cut_off))
            except StopIteration as stop:
                check_update(stop.value, mechanism)
                return stop.value, context_text(mechanism, stop.value.state), cut_off
            asked = checked_text(asked, mechanism, ContextFailure)
            see_known(asked, dialogue.sampler.chat, mechanism, "update()")
            dialogue.say(asked)
    except (*FAULTS, ConfigError):
        raise
    except BaseException as error:
        blame(ContextFailure, error, mechanism)
