"""The online data of CoD-Train: packs become groups of lifecycles, groups become batches, one batch an optimizer update."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from jaxtyping import Bool
from torch import Tensor

from cod_lightning.contexts.base import ContextMechanism
from cod_lightning.engines.base import Engine, Served
from cod_lightning.envs.base import TextEnv
from cod_lightning.envs.checks import check_share
from cod_lightning.errors import ConfigError
from cod_lightning.evaluation.conditions import Condition, PolicyLabel, conditions
from cod_lightning.evaluation.controls import Control
from cod_lightning.evaluation.play import play
from cod_lightning.evaluation.readiness import ready
from cod_lightning.evaluation.suite import Suite
from cod_lightning.models.base import Policy
from cod_lightning.objective.batch import CreditTable
from cod_lightning.plans import LifecyclePlan, UpdateEvery, planned
from cod_lightning.ranks import gathered, gathered_at_first, num_ranks, rank, share
from cod_lightning.rewards import Reward, rewards_of
from cod_lightning.rollout.attempts import Anchors, Branching, Counterfactual
from cod_lightning.rollout.chat import Chat
from cod_lightning.rollout.deadlines import Deadlines
from cod_lightning.rollout.dialogue import Speaker
from cod_lightning.rollout.faults import stop_if_too_many
from cod_lightning.rollout.group import run_groups
from cod_lightning.rollout.monitor import RolloutMonitor
from cod_lightning.rollout.pulse import Pulse
from cod_lightning.rollout.setting import Setting
from cod_lightning.rollout.stats import RolloutStats
from cod_lightning.rollout.watchdog import Watchdog
from cod_lightning.training.ahead import Played, RolloutAhead, Round
from cod_lightning.training.items import SizedItems
from cod_lightning.training.rollouts import TrainingRollouts
from cod_lightning.training.shares import check_shares
from cod_lightning.training.stream import Rollout, TrainStream
from cod_lightning.types import Group, Pack, Split
from datamodules.checks import (
    check_pair,
    check_reuse,
    check_sampling,
    check_sizes,
    check_staleness,
    check_trainable,
    check_window,
)
from datamodules.items import ItemDataModule

GroupListener = Callable[[str, int, Sequence[Group]], None]


class RolloutDataModule(ItemDataModule):
    """Generates interleaved solve and update episodes with the current policy.

    Args:
        env: The world that packs are drawn from.
        context: How the agent writes down what it learnt.
        engine: What samples the policy's turns.
        plan: The order of solve and update episodes in a lifecycle.
        pack_size: N, tasks of a pack in training and validation.
        group_size: K, sibling lifecycles of a training pack.
        packs_per_rollout: G, packs of a rollout.
        updates_per_rollout: Optimizer updates made of a pass over a rollout, each on whole groups.
        passes_per_rollout: How often the updates of a rollout go through it, packs shuffled anew after the first pass.
        resample_packs: Rounds, at most, in which packs without signal are replaced by further ones; 0 keeps them.
        max_staleness: Policy versions that a rollout may be behind the weights which begin to train on it. 0 waits for every
            rollout; 1 plays the next one while training goes on with this one (docs/guides/asynchronous.md).
        anchors: Solve episodes of training that are attempted several times from one context; null attempts none.
        counterfactual: Contexts of training whose worth is measured by attempts without them; null measures none.
        rollouts_per_epoch: Rollouts between two validations.
        val_packs: Held-out packs of a validation, one lifecycle each.
        max_new_tokens: Most tokens of one response.
        temperature: Sampling temperature in training; the ratio of the loss holds at 1 only.
        top_p: Nucleus sampling in training; the ratio of the loss holds at 1 only.
        enable_thinking: Handed to the chat template.
        rewrite_history: Follow a template that rewrites earlier turns (Qwen3's drops their thoughts), at the price of more token
            rows; false keeps all as it was said. Null follows it while thinking is on.
        suites: What `test`, and the end of `fit`, evaluates.
        rewards: Further parts of an episode's reward, by name (docs/guides/rewards.md); null leaves it the world's own.
        deadlines: How long turns, episodes and packs may take, and when the run counts as stalled.
        max_failed_fraction: Share of a rollout's lifecycles that may fail; beyond, the run stops and says what failed.
        seed: Run seed of training packs and sampling noise; linked to `seed_everything`.
    """

    def __init__(
        self,
        env: TextEnv,
        context: ContextMechanism,
        engine: Engine,
        plan: LifecyclePlan = UpdateEvery(),  # noqa: B008  (frozen; the CLI's default)
        pack_size: int = 4,
        group_size: int = 8,
        packs_per_rollout: int = 32,
        updates_per_rollout: int = 2,
        passes_per_rollout: int = 1,
        resample_packs: int = 0,
        max_staleness: int = 0,
        anchors: Anchors | None = None,
        counterfactual: Counterfactual | None = None,
        rollouts_per_epoch: int = 10,
        val_packs: int = 256,
        max_new_tokens: int = 16,
        temperature: float = 1.0,
        top_p: float = 1.0,
        enable_thinking: bool = False,
        rewrite_history: bool | None = None,
        suites: list[Suite] | None = None,
        rewards: dict[str, Reward] | None = None,
        deadlines: Deadlines = Deadlines(),  # noqa: B008  (frozen; the CLI's default)
        max_failed_fraction: float = 0.5,
        seed: int = 1,
    ) -> None:
        super().__init__()
        check_sizes(
            pack_size, group_size, packs_per_rollout, updates_per_rollout, rollouts_per_epoch, val_packs, max_new_tokens
        )
        check_sampling(temperature, top_p)
        check_reuse(passes_per_rollout, resample_packs)
        check_share("data.max_failed_fraction", max_failed_fraction, "1 never stops.")
        self.env, self.context, self.engine, self.plan = env, context, engine, plan
        planned(plan, pack_size)
        self.pack_size, self.group_size = pack_size, group_size
        self.packs_per_rollout, self.updates_per_rollout = packs_per_rollout, updates_per_rollout
        self.passes_per_rollout, self.resample_packs = passes_per_rollout, resample_packs
        self.max_staleness = max_staleness
        self.branching = Branching(anchors=anchors, counterfactual=counterfactual, seed=seed)
        self.rollouts_per_epoch, self.val_packs = rollouts_per_epoch, val_packs
        self.max_new_tokens, self.temperature, self.top_p = max_new_tokens, temperature, top_p
        self.enable_thinking, self.rewrite_history = enable_thinking, rewrite_history
        self.suites = tuple(suites or ())
        self.rewards = rewards_of(rewards)
        self.deadlines, self.max_failed_fraction = deadlines, max_failed_fraction
        self.seed = seed
        self.rollouts = TrainingRollouts(
            sample_packs=self._train_packs,
            play=self._train_groups,
            has_signal=self._has_signal,
            pad_id=lambda: self.chat.pad_id,
            packs_per_rollout=packs_per_rollout,
            updates_per_rollout=updates_per_rollout,
            passes_per_rollout=passes_per_rollout,
            resample_packs=resample_packs,
            seed=seed,
        )
        num_updates = updates_per_rollout * passes_per_rollout
        self.stream = TrainStream(self._next_rollout, rollouts_per_epoch, num_updates)
        """The updates to come; where a training stops and goes on."""
        self.policy_label = str(PolicyLabel.TRAINED)
        """Who plays in `test`; decides which conditions of a suite run."""
        self.monitor = RolloutMonitor()
        self._pulse = Pulse()
        self.ahead = RolloutAhead(self._play_ahead, self._pulse)
        """The next rollout, with `max_staleness` above 0."""
        self.waited_s: float | None = None
        """Seconds that training stood still for the current rollout, with `max_staleness` above 0."""
        self.group_listeners: list[GroupListener] = []
        self.droppable: Callable[[], AbstractContextManager[None]] = nullcontext
        """Entered around every rollout, by every rank equally often; `StopSignals` gives up what goes on within."""
        self.last_rollout: RolloutStats | None = None
        self._chat: Chat | None = None
        self._suites_checked = False
        self._packs_of: tuple[str, list[Pack]] = ("", [])
        """The suite at hand and its packs, which its conditions share."""
        self._trained: list[Group] = []
        """What the trained policy did in it; controls that lend contexts take them from here."""

    # ------------------------------------------------------------------ life of the DataModule

    def setup(self, stage: str) -> None:
        """Make the tokenizer, if `check_with` has not; refuse to train what cannot be trained."""
        self.check_with(self.policy)
        if stage == "fit":
            self.check_trainable()
            check_shares(self.packs_per_rollout, self.updates_per_rollout, num_ranks())
            check_staleness(self.max_staleness, self.engine, self.resample_packs, num_ranks())
        if stage in ("fit", "test"):
            self.check_suites()

    def check_with(self, policy: Policy) -> None:
        """Make the tokenizer and see that engine and policy go together, and a first prompt and response into the window."""
        if self._chat is None:
            check_pair(self.engine, policy)
            dtype = str(policy.dtype).removeprefix("torch.")
            self.engine.check(Served(adapter_rank=policy.adapter_rank, four_bit=policy.four_bit, dtype=dtype))
            tokenizer = policy.tokenizer(self.env.words() + self.context.words())
            chat = Chat(tokenizer, self.enable_thinking, self.rewrite_history)
            first = self._packs(self.env, Split.TRAIN, 0, 1, self.pack_size, self.seed)[0].tasks[0]
            check_window(self.env, self.context, first, policy.window, chat, self.max_new_tokens)
            for part in self.rewards.values():
                part.check()
            self._chat = chat

    def check_trainable(self) -> None:
        """Refuse an engine that has neither the policy's weights nor log-probabilities of what it sampled."""
        check_trainable(self.engine)

    def check_suites(self) -> None:
        """Settle what suites leave open and refuse those that cannot be played; `check_with` has to come first."""
        if self._suites_checked:
            return
        names = [suite.name for suite in self.suites]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            remedy = "Rename one: evaluation.json keeps them by name."
            raise ConfigError("data.suites", ", ".join(twice), "names that occur once", remedy)
        self.suites = tuple(ready(suite, self.env, self.pack_size, self.context, self.chat) for suite in self.suites)
        self._suites_checked = True

    @property
    def policy(self) -> Policy:
        """The policy spec of the module that is trained."""
        assert self.trainer is not None, "the DataModule is not attached to a Trainer"
        policy = self.trainer.lightning_module.policy
        assert isinstance(policy, Policy), f"{type(policy).__name__} is not a Policy"
        return policy

    @property
    def chat(self) -> Chat:
        """Tokenizer and chat template; there after `setup`."""
        assert self._chat is not None, "setup() has not run"
        return self._chat

    def teardown(self, stage: str) -> None:
        """A run that ended early, say for its budget, has begun a rollout in vain; the engine has to be free of it."""
        self.ahead.drop()

    def on_exception(self, exception: BaseException) -> None:
        """No thread outlives the run."""
        self.ahead.give_up()

    def state_dict(self) -> dict[str, Any]:
        """Where the training updates stand, the figures of the rollout that they come from, and the rollout after it."""
        stats = None if self.last_rollout is None else asdict(self.last_rollout)
        ahead = self.ahead.saved(self.max_failed_fraction)
        return {"stream": self.stream.saved(), "last_rollout": gathered(stats), "ahead": ahead}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on there."""
        self.stream.restore(state_dict["stream"])
        self.ahead.restore(state_dict["ahead"])
        by_rank = state_dict["last_rollout"]
        stats = by_rank[rank()] if len(by_rank) == num_ranks() else by_rank[0]
        self.last_rollout = None if stats is None else RolloutStats(**stats)

    # ------------------------------------------------------------------ loaders

    def train_dataloader(self) -> TrainStream:
        """One item = one optimizer update. Sized, so that Lightning never fetches ahead of the weights."""
        return self.stream

    def val_dataloader(self) -> SizedItems:
        """One item: the groups (of one) of all validation packs."""
        return SizedItems(self._validation_groups, 1)

    def test_dataloader(self) -> list[SizedItems]:
        """One loader for each condition of each suite that concerns the current policy."""
        return [
            SizedItems(lambda s=suite, c=condition: self._suite_groups(s, c), 1)
            for suite, condition in self.test_conditions()
        ]

    def predict_dataloader(self) -> SizedItems:
        """The packs of a validation, in items of no more lifecycles than a training rollout has: memory stays bounded."""
        return SizedItems(self._predicted_groups, math.ceil(self.val_packs / self._predicted_at_once))

    def test_conditions(self) -> list[tuple[Suite, Condition]]:
        """Suites and conditions in the order of the test loaders."""
        return [
            (suite, condition)
            for suite in self.suites
            for condition in conditions(suite)
            if condition.policy == self.policy_label
        ]

    # ------------------------------------------------------------------ rollouts

    def _train_packs(self, first: int, count: int) -> list[Pack]:
        return self._packs(self.env, Split.TRAIN, first, count, self.pack_size, self.seed)

    def _next_rollout(self, rollout: int, first_pack: int) -> Rollout:
        """What was played ahead, else what the engine's weights play now; the one after it begins."""
        played = self.ahead.take()
        if played is None:
            made = self.rollouts.roll_out(rollout, first_pack)
        else:
            for one in played.rounds:
                self._tell("train", one)
            made = self.rollouts.made(rollout, played.places, played.num_packs)
        if self.max_staleness:
            own = self.last_rollout.seconds if played is None and self.last_rollout is not None else 0.0
            self.waited_s = self.ahead.waited_s() + own
            if self._another_follows():
                self.ahead.begin(first_pack + made.num_packs)
        return made

    def _another_follows(self) -> bool:
        """Whether the run will ask for a rollout after the one that it takes now, as far as the Trainer's limits tell."""
        trainer, updates = self.trainer, self.updates_per_rollout * self.passes_per_rollout
        assert trainer is not None, "the DataModule is not attached to a Trainer"
        if 0 <= trainer.max_steps <= trainer.global_step + updates:
            return False
        endless = trainer.max_epochs is None or trainer.max_epochs < 0
        return endless or self.stream.left > updates or trainer.current_epoch + 1 < (trainer.max_epochs or 0)

    def _play_ahead(self, first_pack: int) -> Played:
        """In a thread of its own: listeners, other ranks and signals are for the one who takes it."""
        rounds: list[Round] = []

        def play(packs: Sequence[Pack], replacing: bool) -> list[Group]:
            rounds.append(
                self._timed("train", self._rolling("train", packs, self.group_size, self.branching), replacing)
            )
            return list(rounds[-1].groups)

        places, num_packs = replace(self.rollouts, play=play).places(first_pack)
        return Played(places=places, num_packs=num_packs, rounds=rounds)

    def _train_groups(self, packs: Sequence[Pack], replacing: bool) -> list[Group]:
        roll = self._rolling("train", packs, self.group_size, self.branching)
        return self._recorded("train", roll, replacing=replacing)

    def _has_signal(self, table: CreditTable) -> Bool[Tensor, " G"]:
        assert self.trainer is not None, "the DataModule is not attached to a Trainer"
        module: Any = self.trainer.lightning_module
        return module.has_signal(table)

    def _validation_groups(self) -> Iterator[list[Group]]:
        packs = self._packs(self.env, Split.VALIDATION, 0, self.val_packs, self.pack_size, 0)
        yield self._recorded("validation", self._rolling("validation", share(packs), 1))

    @property
    def _predicted_at_once(self) -> int:
        return self.packs_per_rollout * self.group_size

    def _predicted_groups(self) -> Iterator[list[Group]]:
        for first in range(0, self.val_packs, self._predicted_at_once):
            count = min(self._predicted_at_once, self.val_packs - first)
            packs = self._packs(self.env, Split.VALIDATION, first, count, self.pack_size, 0)
            yield self._recorded("predict", self._rolling("predict", share(packs), 1))

    def _suite_groups(self, suite: Suite, condition: Condition) -> Iterator[list[Group]]:
        """Sampling noise goes by identity alone, not by version: a checkpoint has the same figures whenever it is tested."""
        world = suite.env or self.env
        if self._packs_of[0] != suite.name:
            self._packs_of = (suite.name, suite.packs(world))

        def roll() -> list[Group]:
            speaker = replace(self._speaker(condition.temperature), policy_version=0)
            setting = replace(self._setting(speaker), env=world)
            return play(suite, condition, self._packs_of[1], setting, self._trained)

        groups = [group for part in gathered(self._recorded(condition.label, roll)) for group in part]
        if condition.name == PolicyLabel.TRAINED:
            self._trained = groups if Control.SHUFFLED_CONTEXT in (suite.controls or ()) else []
        yield groups

    def _packs(self, env: TextEnv, split: Split, first: int, count: int, size: int, seed: int) -> list[Pack]:
        return [env.sample_pack(split=split, index=first + i, num_tasks=size, seed=seed) for i in range(count)]

    def _rolling(
        self, label: str, packs: Sequence[Pack], num_siblings: int, branching: Branching | None = None
    ) -> Callable[[], list[Group]]:
        return partial(
            run_groups,
            packs,
            num_siblings,
            self._setting(self._speaker(self.temperature)),
            label=label,
            branching=branching,
        )

    def _setting(self, speaker: Speaker) -> Setting:
        return Setting(
            env=self.env,
            mechanism=self.context,
            speaker=speaker,
            plan=self.plan,
            rewards=self.rewards,
            monitor=self.monitor,
        )

    def _recorded(self, label: str, roll: Callable[[], list[Group]], *, replacing: bool = False) -> list[Group]:
        """A rollout of this rank, timed, and shown to whoever listens."""
        self.ahead.settle()
        with self.droppable():
            played = self._timed(label, roll, replacing)
        self._tell(label, played)
        return list(played.groups)

    def _timed(self, label: str, roll: Callable[[], list[Group]], replacing: bool) -> Round:
        start = time.perf_counter()
        with self.watched(f"the rollout '{label}'"):
            groups = roll()
        return Round(groups=groups, seconds=time.perf_counter() - start, replacing=replacing)

    def _tell(self, label: str, played: Round) -> None:
        """Show it to whoever listens: of training this rank's groups, else all on rank 0. Figures of replacements are added."""
        before = self.last_rollout if played.replacing else None
        self.last_rollout = played.stats if before is None else before + played.stats
        shown = played.groups if label == "train" else gathered_at_first(played.groups)
        for listener in self.group_listeners:
            listener(label, self._step(), shown)
        stop_if_too_many(label, played.groups, self.max_failed_fraction)

    def watched(self, label: str) -> Watchdog:
        """Ends the process if nothing moves, for as long as a `with` block lasts."""
        number = self.trainer.global_rank if self.trainer is not None else 0
        folder = Path(self.trainer.default_root_dir if self.trainer is not None else ".")
        file = folder / (f"stalled.rank{number}.txt" if number else "stalled.txt")
        return Watchdog(self._pulse, self.deadlines.stall_s, file, label)

    def _speaker(self, temperature: float) -> Speaker:
        return Speaker(
            engine=self.engine,
            chat=self.chat,
            window=self.policy.window,
            max_new_tokens=self.max_new_tokens,
            temperature=temperature,
            top_p=self.top_p,
            seed=self.seed,
            policy_version=self.engine.policy_version,
            num_ids=_num_ids(self.trainer.lightning_module) if self.trainer is not None else None,
            deadlines=self.deadlines,
            pulse=self._pulse,
        )

    def _step(self) -> int:
        return self.trainer.global_step if self.trainer is not None else 0


def _num_ids(module: Any) -> int | None:
    """Ids that the module's model has; a model may have more than its tokenizer. None where nobody knows."""
    config = getattr(getattr(module, "model", None), "config", None)
    return None if config is None else getattr(config.get_text_config(), "vocab_size", None)
