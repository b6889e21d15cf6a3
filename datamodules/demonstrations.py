"""The data of the warm start: scripted demonstrations, run through the rollout code that the policy trains with.

Every episode is demonstrated on its own, with a context that the demonstrator makes up (true in part, junk, or none), so
that nothing in the data connects what one task shows with the context of the next one; a mechanism may show feedback that no
update has taken in.
"""

import asyncio
import copy
import random
from contextlib import closing
from functools import cached_property, lru_cache, partial
from textwrap import shorten
from typing import Any

from cod_lightning.contexts.base import ContextMechanism, Scripted
from cod_lightning.credit.table import episode_table, facts_of
from cod_lightning.datamodules.checks import check_first_pack, unplayable
from cod_lightning.datamodules.items import ItemDataModule, check_alone
from cod_lightning.engines.scripted import ScriptedEngine
from cod_lightning.envs.base import Demonstrator, Players, TextEnv, beside
from cod_lightning.errors import ConfigError, answering
from cod_lightning.lifecycles import Agent, Ask, ConnectTheDots, Program, Written
from cod_lightning.models import TinyPolicy
from cod_lightning.models.base import Policy
from cod_lightning.objective.batch import collate
from cod_lightning.ranges import Count
from cod_lightning.ranks import share
from cod_lightning.rollout.between_tasks import run_update_episode, run_write_episode
from cod_lightning.rollout.boundaries import see_known
from cod_lightning.rollout.chat import Chat
from cod_lightning.rollout.dialogue import Sampler
from cod_lightning.rollout.episode import run_solve_episode
from cod_lightning.rollout.player import Player
from cod_lightning.rollout.runner import RolloutRunner
from cod_lightning.rollout.segments import segments_of
from cod_lightning.rollout.setting import Setting
from cod_lightning.seeds import derive_seed
from cod_lightning.training.stream import Rollout, TrainStream
from cod_lightning.types import Episode, Group, Lifecycle, Pack, Split, Task

_LOOKED_AT = 16
"""Packs whose demonstrations are measured before any is trained on."""


class DemonstrationDataModule(ItemDataModule):
    """Batches of demonstrated episodes.

    Args:
        env: The world; it must have a demonstrator.
        context: The context mechanism whose form the demonstrations show.
        program: Which episodes are shown.
        pack_size: N, tasks of a pack.
        num_updates: Optimizer updates of the warm start.
        packs_per_update: Packs whose episodes make one update, `num_packs` at most.
        num_packs: Different packs; more updates than these hold go over them again.
        max_new_tokens: Most tokens of one response; of a closed vocabulary, its end of turn apart.
        seed: Seed of the packs and of the demonstrators' choices; linked to `seed_everything`.
        words: The policy's vocabulary; null takes that of `env` and `context`.
    """

    def __init__(
        self,
        env: TextEnv,
        context: ContextMechanism,
        program: Program = ConnectTheDots(),  # noqa: B008  (frozen)
        pack_size: Count = 4,
        num_updates: Count = 1500,
        packs_per_update: Count = 3,
        num_packs: Count = 1500,
        max_new_tokens: Count = 16,
        seed: int = 1,
        words: list[str] | None = None,
    ) -> None:
        super().__init__()
        self.env, self.context, self.program = env, context, program
        self.pack_size, self.num_updates = pack_size, num_updates
        self.packs_per_update = min(packs_per_update, num_packs)
        self.num_packs, self.max_new_tokens, self.seed = num_packs, max_new_tokens, seed
        self._words = None if words is None else tuple(words)
        self.runner = RolloutRunner(ScriptedEngine(lambda *_: "", lambda _: (), stop_id=0))
        """Reports updates; demonstrations are no rollouts, and it has nothing to sample."""
        self._kept: dict[int, Group] = {}

    def words_for(self, policy: Policy) -> tuple[str, ...]:
        """`words` if they were given, such as those of a run in another environment; else as for any DataModule."""
        return super().words_for(policy) if self._words is None else self._words

    def setup(self, stage: str) -> None:
        """Make the tokenizer; refuse a window below the first prompt, and a bound that would cut off a demonstrated response of a
        closed vocabulary."""
        module = self.learner
        check_alone()
        if hasattr(module, "credited"):
            raise ConfigError(
                "data", type(self).__name__, "a RolloutDataModule", "Demonstrations go with WarmStartModule."
            )
        if self._chat is None:
            self.check_with(module.policy)
        module.meet(self.chat, self.seed, self.words_for(module.policy))

    def check_with(self, policy: Policy) -> None:
        """Raise `ConfigError` for demonstrations that the policy cannot read, or could not say within the run's bounds."""
        if type(beside(self.context, Scripted)) is Scripted:
            expected = "a mechanism in which a demonstrator can write: one with a Scripted among its companions"
            remedy = "Give it one (docs/guides/your_own_context.md), or add --warm_start null."
            raise ConfigError("data.context", type(self.context).__name__, expected, remedy)
        self._speak_as(policy)
        check_first_pack(self, self.chat, self._window)
        needed, shown = self.tokens_needed(policy) if isinstance(policy, TinyPolicy) else (0, "")
        if needed > self.max_new_tokens:
            expected, remedy = f"at least {needed}, {shown}", f"Set it to {needed} or more."
            raise ConfigError("data.max_new_tokens", self.max_new_tokens, expected, remedy)

    def _speak_as(self, policy: Policy) -> None:
        self._chat, self._window = Chat(policy.tokenizer(self.words_for(policy))), policy.window
        # responses of a closed vocabulary are whole, and end even where the bound would leave the end out
        self._most = self.max_new_tokens + isinstance(policy, TinyPolicy)

    def tokens_needed(self, policy: Policy) -> tuple[int, str]:
        """Tokens of the longest response in the demonstrations of the first packs, and what they are, for a message.

        Nothing but the window cuts a response off there; its end of turn is not counted.
        """
        uncut = copy.copy(self)
        uncut.max_new_tokens = policy.window
        uncut._speak_as(policy)
        groups = [uncut._demonstrate(index) for index in range(min(_LOOKED_AT, self.num_packs))]
        episodes = [episode for group in groups for life in group.lifecycles for episode in life.episodes]
        turns = [turn for episode in episodes for turn in episode.turns]
        if not turns:
            raise unplayable(self.env, f"an environment whose demonstrator plays its packs ({episodes[0].error})")
        longest = max(turns, key=lambda turn: len(turn.action_ids))
        return len(longest.action_ids) - 1, f"the tokens of a demonstrated response ({shorten(longest.response, 80)!r})"

    def state_dict(self) -> dict[str, Any]:
        """The updates to come."""
        return self.stream.saved()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on with them."""
        self.stream.restore(state_dict)

    @cached_property
    def stream(self) -> TrainStream:
        """Its items are updates; each is a rollout of its own."""
        return TrainStream(self._demonstrated, self.num_updates, 1, self.runner)

    def train_dataloader(self) -> TrainStream:
        """One item = one optimizer update."""
        return self.stream

    def _demonstrated(self, update: int, _: int) -> Rollout:
        """What an update learns from, by its number."""
        a_pass = self.num_packs // self.packs_per_update
        order = _order(self.seed, self.num_packs, update // a_pass)
        first = update % a_pass * self.packs_per_update
        indices = share(order[first : first + self.packs_per_update])
        kept, once = self._kept, self.num_updates <= a_pass
        kept |= {index: self._demonstrate(index) for index in indices if index not in kept}
        groups = [kept.pop(index) if once else kept[index] for index in indices]
        places = {group.pack.id: g for g, group in enumerate(groups)}
        table = episode_table(list(map(facts_of, groups)))
        batch = collate(segments_of(groups), table, places, pad_id=self.chat.pad_id)
        return Rollout(batch=batch, shares=[batch.episode.tolist()], num_packs=len(groups))

    def _demonstrate(self, index: int) -> Group:
        """One pack's E episodes, each with a context of its own."""
        with answering(partial(unplayable, self.env), "an environment whose demonstrator plays its packs"):
            pack = self.env.sample_pack(split=Split.TRAIN, index=index, num_tasks=self.pack_size, seed=self.seed)
            teacher = beside(self.env, Players).demonstrator(pack)
            sampler = self._sampler(Player(teacher, self.context))
            with closing(copy.deepcopy(self.env)) as env:
                setting = Setting(env=env, mechanism=self.context, sampler=sampler, program=self.program)
                agent = _Demonstrating(setting, pack, teacher, self.seed)
                asyncio.run(self.program(agent, pack))
        return Group(pack=pack, lifecycles=(Lifecycle(pack_id=pack.id, sibling=0, episodes=tuple(agent.episodes)),))

    def _sampler(self, player: Player) -> Sampler:
        chat = self.chat

        def encode(text: str) -> tuple[int, ...]:
            see_known(text, chat, self.env, "demonstrator()")
            return chat.encode(text)

        engine = ScriptedEngine(player.reply, encode, chat.stop_id)
        return Sampler(engine=engine, chat=chat, window=self._window, max_new_tokens=self._most, seed=self.seed)


@lru_cache(maxsize=1)
def _order(seed: int, num_packs: int, number: int) -> list[int]:
    """Packs in the order of a pass over all, the passes before it drawn as well."""
    shuffler = random.Random(derive_seed("demonstration order", seed))
    order: list[int] = []
    for _ in range(number + 1):
        order = list(range(num_packs))
        shuffler.shuffle(order)
    return order[::-1]  # taken from the end


class _Demonstrating(Agent):
    """An agent that plays the pack's own tasks, each episode with a context that the demonstrator makes up.

    It makes no attempts, and writes what its demonstrator can write.
    """

    sibling = 0

    def __init__(self, setting: Setting, pack: Pack, teacher: Demonstrator, seed: int) -> None:
        self.setting, self.pack, self.teacher = setting, pack, teacher
        self.episodes: list[Episode] = []
        self._rng = random.Random(derive_seed("demonstrated contexts", seed, pack.id))
        self._position = 0
        self._latest: Episode | None = None
        """The latest solve episode, as long as no update has taken it in."""

    async def solve(self, task: Task, *, context: Any = None, **_: Any) -> Episode:
        mechanism, position, state = self.setting.mechanism, self._position, self._state()
        if mechanism.updates and self._latest is not None and context is None:
            state = mechanism.feedback(state, self._latest)
        own, who = self._own(task), f"{self.pack.id}.{position}.solve"
        self._latest = await run_solve_episode(self.setting.env, own, state, self.setting, who, position)
        self._position += 1
        self.episodes.append(self._latest)
        return self._latest

    async def rewrite(self, solved: Episode, **_: Any) -> Episode | None:
        self._latest = None
        if not self.setting.mechanism.updates:
            return None
        who = f"{self.pack.id}.{solved.position}.update"
        self.episodes.append(await run_update_episode(self.setting.env, solved, self.setting, who))
        return self.episodes[-1]

    async def ask(self, task: Task, ask: Ask, **_: Any) -> Written:
        position, env = self._position, self.setting.env
        if not ask.scripted:
            return Written.skipped(position)
        own, who = self._own(task), f"{self.pack.id}.{position}.propose"
        written = await run_write_episode(ask, env, own, self._state(), self.setting, who, position)
        if not (episode := written.episode).success:
            said = episode.error or repr(shorten(episode.turns[-1].response, 80))
            expected = f"a demonstrator that writes what the program asks for; its {type(ask).__name__} is {said}"
            remedy = "Write its propose() (of a Play: proposal()), or name another warm_start.program."
            raise ConfigError("data.env", type(env).__name__, expected, remedy)
        self.episodes.append(episode)
        return written

    def _own(self, task: Task) -> Task:
        """The pack's task in place of one that a program chooses; of programs with more than those, what they choose."""
        return next(iter(self.pack.tasks[self._position :]), task)

    def _state(self) -> Any:
        return beside(self.setting.mechanism, Scripted).adopt(self.teacher.context(self._rng))
