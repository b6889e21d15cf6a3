"""An episode under way, and one of the kinds: a task. What fails beyond a boundary becomes the episode's status."""

from collections.abc import Awaitable, Callable
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import structs

from cod_lightning.contexts.base import ContextMechanism, InTask, Prepared, beside
from cod_lightning.envs.base import TextEnv, Tools, Vocabulary
from cod_lightning.envs.own_loop import OwnLoop, own_loop
from cod_lightning.errors import ConfigError, ContextFailure, EnvironmentFailure, EpisodeTimeout, described, note_fault
from cod_lightning.rollout.boundaries import (
    FAULTS,
    answered,
    blame,
    check_reward,
    checked_history,
    checked_intervention,
    checked_observation,
    checked_state,
    checked_text,
    context_text,
    crossing,
    see_known,
)
from cod_lightning.rollout.deadlines import Limited
from cod_lightning.rollout.dialogue import Dialogue
from cod_lightning.rollout.setting import Setting
from cod_lightning.types import Episode, EpisodeKind, EpisodeStatus, Message, Role, StopReason, Task, Turn

if TYPE_CHECKING:
    from cod_lightning.rollout.asked import ToolDialogue

MOST_INTERVENTIONS = 64
"""Turns of a solve episode that a mechanism may answer in the environment's place; after that it is not asked any more."""


class UnderWay:
    """An episode under way: its turns so far, and the record that it leaves if it fails now."""

    def __init__(
        self, kind: EpisodeKind, position: int, state: Any, context: str, setting: Setting, identity: str
    ) -> None:
        self.mechanism, self.identity = setting.mechanism, identity
        self.sampler = setting.by_kind.get(kind, setting.sampler)
        self.chat = self.sampler.chat
        self.turns: list[Turn] = []
        self.record = Episode(
            kind=kind,
            position=position,
            status=EpisodeStatus.SKIPPED,
            context_before=context,
            context_after=context,
            state_before=state,
            state_after=state,
        )

    async def run(self, play: Callable[[], Awaitable[Episode]]) -> Episode:
        """What `play` returns; the failed episode where it raises one of `FAULTS`, or takes too long."""
        liveness, limit_s = self.sampler.liveness, self.sampler.deadlines.episode_s
        try:
            async with Limited(
                limit_s, lambda: EpisodeTimeout(f"not over after data.deadlines.episode_s={limit_s:g} s")
            ):
                liveness.at(self.identity, "environment")
                return await play()
        except FAULTS as error:
            note_fault(error)
            return self.ended(EpisodeStatus.FAILED, error=described(error))
        finally:
            liveness.over(self.identity)

    async def turn(self, dialogue: Dialogue) -> Turn:
        """The policy's next turn."""
        self.turns.append(await dialogue.turn())
        return self.turns[-1]

    def prepared(self, state: Any, shown: Any, rules: str, observation: str) -> Prepared:
        """What a task begins with, of the state shown; None: of its own. Raises `ContextFailure`."""
        try:
            text = context_text(self.mechanism, state)
            self.record = structs.replace(self.record, context_before=text, context_after=text)
            found = self.mechanism.prepare(state if shown is None else shown, rules, observation)
            system = checked_text(found.system, self.mechanism, ContextFailure)
            found = Prepared(system, checked_state(self.mechanism, found.state))
        except BaseException as error:
            blame(ContextFailure, error, self.mechanism)
        see_known(found.system, self.chat, self.mechanism, "prepare()")
        return found

    def ended(self, status: EpisodeStatus, **known: Any) -> Episode:
        """The episode, with what is known beside its turns."""
        return structs.replace(self.record, status=status, turns=tuple(self.turns), **known)


async def run_solve_episode(
    env: TextEnv,
    task: Task,
    state: Any,
    setting: Setting,
    identity: str,
    position: int,
    shown: Any = None,
    note: str = "",
) -> Episode:
    """All turns of one task in `env`, given the context that earlier tasks left, and a note that follows the rules."""
    solving = _Solving(env, task, state, setting, identity, position, shown)
    return await solving.run(partial(solving.play, note))


class _Solving(UnderWay):
    """A solve episode under way: what the mechanism has made of its context, too."""

    def __init__(
        self, env: TextEnv, task: Task, state: Any, setting: Setting, identity: str, position: int, shown: Any
    ) -> None:
        super().__init__(EpisodeKind.SOLVE, position, state, "", setting, identity)
        self.record = structs.replace(self.record, repeat=task.repeat)
        self.env, self.task, self.shown, self.state = env, task, shown, state
        self.context_after, self.least = "", 0.0
        self.inside: Any = None
        """The state within the task: that of the lifecycle, or the one that is shown in its place, which is dropped at the end."""
        self.hooked = False
        """Whether the mechanism is asked before and after turns."""

    async def play(self, note: str) -> Episode:
        """The episode from the first observation on. Raises one of `FAULTS`."""
        observation, rules = await begun(self.env, self.task)
        # a mixture's traits are those of its present task
        hidden = crossing(EnvironmentFailure, lambda: bool(self.env.traits.hides_reward))
        self.least = crossing(EnvironmentFailure, lambda: self.env.traits.least)
        self.record = structs.replace(self.record, reward_hidden=hidden)
        see_known(observation.content, self.chat, self.env, "reset()")
        rules = f"{rules}{note}"
        see_known(rules, self.chat, self.env, "rules")
        prepared = self.prepared(self.state, self.shown, rules, observation.content)
        self.inside, self.context_after = prepared.state, self.record.context_after
        if self.shown is None:
            self.state = prepared.state
        self.hooked = bool(crossing(ContextFailure, beside(self.mechanism, InTask).hooks, self.mechanism))
        if loop := own_loop(self.env):
            return await self._left_to(loop, prepared.system)
        tools = crossing(EnvironmentFailure, lambda: beside(self.env, Tools).schemas)
        if tools:
            from cod_lightning.rollout.asked import ToolDialogue, opened  # what environments without tools do without

            dialogue = opened(self.sampler, self.identity, prepared.system, observation, tools)
            calls = dialogue if isinstance(dialogue, ToolDialogue) else None
        else:
            opening = (Message(Role.SYSTEM, prepared.system), observation)
            dialogue, calls = Dialogue(self.sampler, self.identity, opening), None
        with closing(dialogue):
            return await self._played(dialogue, calls, rules)

    async def _left_to(self, loop: OwnLoop, system: str) -> Episode:
        """The episode as the environment's own program plays it. Raises one of `FAULTS`."""
        from cod_lightning.rollout.own_loop import play  # an HTTP server, which other environments do without

        check_hooks(loop, self.mechanism)
        feedback, reward = await play(loop, self.task, system, self.sampler, self.identity, self.turns)
        if reward is None:
            return self._over(self.least, feedback, EpisodeStatus.TRUNCATED)
        if len(loop.shown) == len(self.turns):
            texts = [checked_text(text, loop) for text in loop.shown]
            self.turns = [structs.replace(one, observation=t) for one, t in zip(self.turns, texts, strict=True)]
        return self._over(reward, feedback)

    async def _played(self, dialogue: Dialogue, calls: "ToolDialogue | None", rules: str) -> Episode:
        """The episode, turn by turn to its end. Raises one of `FAULTS`."""
        env, num_replies, num_responses = self.env, 0, 0
        while True:
            turn = await self.turn(dialogue)
            num_responses += 1
            if turn.stop is StopReason.WINDOW:
                closed = beside(env, Vocabulary).words()  # and has no words for it
                return self._over(self.least, "" if closed else "The policy's window is full.", EpisodeStatus.TRUNCATED)
            action, reply = dialogue.response, None
            if calls is not None:
                action = calls.calls_of(structs.replace(turn, response=action))
            if self.hooked:
                action, reply = self._intervened(action)
            if reply is None:
                observation, reward, over = await _stepped(env, action)
                see_known(observation.content, self.chat, env, "step()")
                if over:
                    return self._over(reward, observation.content)
                if self.task.max_turns is not None and num_responses - num_replies >= self.task.max_turns:
                    return self._over(self.least, observation.content, EpisodeStatus.TRUNCATED)
                if num_responses > MOST_INTERVENTIONS:
                    crossing(EnvironmentFailure, partial(_see_end, env, num_responses))
            else:
                observation, num_replies = Message(Role.USER, reply), num_replies + 1
                see_known(reply, self.chat, self.mechanism, "on_turn()")
            if self.hooked:
                self._go_on(dialogue, rules, observation)
                self.hooked = num_replies < MOST_INTERVENTIONS
            elif calls is not None:
                results = crossing(
                    EnvironmentFailure, lambda: [checked_text(text, env) for text in beside(env, Tools).results]
                )
                calls.say(observation.content, results=results)
            else:
                dialogue.say(observation.content, observation.parts)

    def _over(self, reward: float, feedback: str, status: EpisodeStatus | None = None) -> Episode:
        """The episode; without a status it has the environment's, else it was cut off, which is no success. Raises
        `EnvironmentFailure`."""
        left = {"context_after": self.context_after, "state_after": self.state}

        def ended() -> Episode:
            found = EpisodeStatus(self.env.status) if status is None else status
            success = status is None and bool(self.env.success)
            return self.ended(found, reward=reward, success=success, feedback=feedback, **left)

        return crossing(EnvironmentFailure, ended)

    def _carry(self, inside: Any) -> None:
        """Go on with this state within the task; it is the lifecycle's, too, where that is what the task is shown."""
        self.inside = inside
        if self.shown is None and inside is not self.state:
            text = partial(context_text, self.mechanism, inside)
            self.context_after = crossing(ContextFailure, text, self.mechanism)
            self.state = inside

    def _intervened(self, response: str) -> tuple[str, str | None]:
        """What the environment sees of a response, and the mechanism's reply to it. Raises `ContextFailure`."""
        try:
            found = beside(self.mechanism, InTask).on_turn(self.inside, response, self.chat)
            if found is None:
                return response, None
            found = checked_intervention(found, self.mechanism)
        except BaseException as error:
            blame(ContextFailure, error, self.mechanism)
        self._carry(found.state)
        return response if found.action is None else found.action, found.reply

    def _go_on(self, dialogue: Dialogue, rules: str, asked: Message) -> None:
        """Put the next user message, in the dialogue that the mechanism wants. Raises `ContextFailure`."""
        try:
            messages = (*dialogue.messages, asked)
            found = beside(self.mechanism, InTask).before_turn(self.inside, rules, messages, self.chat)
            if found is not None:
                found = checked_history(found, self.mechanism, messages)
        except BaseException as error:
            blame(ContextFailure, error, self.mechanism)
        if found is None:
            dialogue.say(asked.content, asked.parts)
            return
        for message in found.messages:
            if message.role is not Role.ASSISTANT:
                see_known(message.content, self.chat, self.mechanism, "before_turn()")
        dialogue.go_on(found.messages)
        self._carry(found.state)


async def begun(env: TextEnv, task: Task) -> tuple[Message, str]:
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
        over = bool(terminated or truncated)
        if over or reward:  # the range is the task's; before its end a reward is 0
            check_reward(float(reward), env)
        return checked_observation(observation, env), float(reward), over
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


def after_feedback(mechanism: ContextMechanism, solved: Episode) -> Episode:
    """The solve episode with the state that its reward left. Raises `ContextFailure`."""
    if solved.status is EpisodeStatus.FAILED or type(mechanism).feedback is ContextMechanism.feedback:
        return solved
    state = crossing(ContextFailure, lambda: mechanism.feedback(solved.state_after, solved), mechanism)
    text = crossing(ContextFailure, lambda: context_text(mechanism, state), mechanism)
    return structs.replace(solved, state_after=state, context_after=text)
