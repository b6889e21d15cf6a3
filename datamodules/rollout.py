"""The online data of CoD-Train, for Lightning: what `TrainingRollouts`, validation and suites play, as loaders."""

import math
from collections.abc import Collection, Iterator
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightning.pytorch.trainer.states import TrainerFn

from cod_lightning.contexts.base import ContextMechanism
from cod_lightning.credit.credited import Credit
from cod_lightning.datamodules.checks import (
    asked_of,
    check_baseline,
    check_first_pack,
    check_media,
    check_names,
    check_pair,
    check_siblings,
    check_staleness,
    check_trainable,
    check_variables,
    check_window,
    drawn_pack,
)
from cod_lightning.datamodules.combinations import check_combination, check_scorers
from cod_lightning.datamodules.items import ItemDataModule, check_alone
from cod_lightning.engines.base import Engine
from cod_lightning.envs.base import TextEnv
from cod_lightning.envs.checks import check_num_tasks
from cod_lightning.errors import ConfigError, DataError, answering
from cod_lightning.evaluation.controls import Control, Weights
from cod_lightning.evaluation.suite import Suite
from cod_lightning.lifecycles import ConnectTheDots, Program, outline
from cod_lightning.models.base import Policy
from cod_lightning.ranges import Count, Natural, Several, Share
from cod_lightning.ranks import check_shares, num_ranks, share
from cod_lightning.rewards.base import RewardPart, rewards_of
from cod_lightning.rollout.chat import Chat
from cod_lightning.rollout.deadlines import Deadlines
from cod_lightning.rollout.dialogue import Sampler
from cod_lightning.rollout.group import run_groups
from cod_lightning.rollout.runner import RolloutRunner
from cod_lightning.rollout.setting import OtherPlayer, RolloutMonitor, Setting
from cod_lightning.training.ahead import RolloutBuffer
from cod_lightning.training.packs import PackSource, TrainingPacks, Uniform
from cod_lightning.training.replay import Replay
from cod_lightning.training.rollouts import Score, TrainingRollouts
from cod_lightning.training.stream import Rollout, SizedItems, TrainStream
from cod_lightning.types import Group, Split

if TYPE_CHECKING:
    from cod_lightning.evaluation.results import PlayedCondition
    from cod_lightning.evaluation.suite_player import SuitePlayer

SCHEMA = 5
"""Of the rollouts in a checkpoint: rises with `transcript.SCHEMA`, and whenever a state of an earlier version would be misread."""


class RolloutDataModule(ItemDataModule):
    """Generates interleaved solve and update episodes with the current policy.

    Args:
        env: The world that packs are drawn from.
        context: How the agent writes down what it learnt.
        engine: What samples the policy's turns.
        program: Which episode of a lifecycle comes next; validation and suites follow its `held_out`.
        source: What chooses the training packs; null is `Uniform`: one after the other.
        replay: What chooses episodes of earlier rollouts that join an update (docs/guides/replay.md); null replays none.
        pack_size: N, tasks of a pack in training and validation.
        group_size: K, sibling lifecycles of a training pack.
        packs_per_rollout: G, packs of a rollout.
        updates_per_rollout: Optimizer updates made of a pass over a rollout.
        passes_per_rollout: How often the updates of a rollout go through it, packs shuffled anew after the first pass.
        shuffle_episodes: Whether updates take episodes one by one, shuffled over all packs for every pass, as in PPO and LOOP, with
            those that the loss compares them with, if any; else whole groups. A number: so many an update, the rest in the last;
            evenly, where these would not be `updates_per_rollout`.
        resample_packs: Rounds, at most, in which packs without signal are replaced by further ones; 0 keeps them.
        max_staleness: Versions that a rollout may be behind the weights, and rollouts played ahead of training; or a
            `PriorityBuffer`, which chooses those that are trained on next (docs/guides/asynchronous.md).
        in_order: Whether updates take groups in the order in which they began; false takes those that are complete first, with
            servers whose weights change in flight.
        rollouts_per_epoch: Rollouts between two validations.
        val_packs: Held-out packs of a validation, one lifecycle each.
        max_new_tokens: Most tokens of one response.
        enable_thinking: Handed to the chat template.
        rewrite_history: Follow a template that rewrites earlier turns (Qwen3's drops their thoughts), at the price of more token
            rows; false keeps all as it was said. Null follows it while thinking is on.
        chat_template_kwargs: Further variables for the chat template.
        system_prompt: Words of your own before every system message, those of updates included.
        suites: What `test`, and the end of `fit`, evaluates.
        baseline: A model behind a chat endpoint that plays the suites, too; null: none.
        rewards: Further parts of an episode's reward, by name (docs/guides/rewards.md); null leaves it the world's own.
        frozen: What plays one kind of episodes, which are then not trained on (`FrozenRole`); null: nothing.
        deadlines: How long turns, episodes and packs may take, and when the run counts as stalled.
        max_failed_fraction: Share of a rollout's lifecycles that may fail; beyond, the run stops and says what failed.
        seed: Run seed of training packs and sampling noise; linked to `seed_everything`.
    """

    _credit: Credit
    _score: Score
    """The module's, once they have met in `setup`."""

    def __init__(
        self,
        env: TextEnv,
        context: ContextMechanism,
        engine: Engine,
        program: Program = ConnectTheDots(),  # noqa: B008  (frozen; the CLI's default)
        source: PackSource | None = None,
        replay: Replay | None = None,
        pack_size: Several = 4,
        group_size: Count = 8,
        packs_per_rollout: Count = 32,
        updates_per_rollout: Count = 2,
        passes_per_rollout: Count = 1,
        shuffle_episodes: bool | Count = False,
        resample_packs: Natural = 0,
        max_staleness: Natural | RolloutBuffer = 0,
        in_order: bool = True,
        rollouts_per_epoch: Count = 10,
        val_packs: Count = 256,
        max_new_tokens: Count = 16,
        enable_thinking: bool = False,
        rewrite_history: bool | None = None,
        chat_template_kwargs: dict[str, Any] | None = None,
        system_prompt: str = "",
        suites: list[Suite] | None = None,
        baseline: Engine | None = None,
        rewards: dict[str, RewardPart] | None = None,
        frozen: OtherPlayer | None = None,
        deadlines: Deadlines = Deadlines(),  # noqa: B008  (frozen; the CLI's default)
        max_failed_fraction: Share = 0.5,
        seed: int = 1,
    ) -> None:
        super().__init__()
        check_num_tasks("data.pack_size", pack_size)
        self.env, self.context, self.engine, self.program = env, context, engine, program
        for size in (pack_size, *(source.sizes if source else ())):
            outline(program, size)
        self.pack_size, self.group_size = pack_size, group_size
        self.packs_per_rollout, self.updates_per_rollout = packs_per_rollout, updates_per_rollout
        self.passes_per_rollout, self.resample_packs = passes_per_rollout, resample_packs
        self.shuffle_episodes = shuffle_episodes
        self.buffer = max_staleness if isinstance(max_staleness, RolloutBuffer) else None
        versions = max_staleness.versions if isinstance(max_staleness, RolloutBuffer) else max_staleness
        self.max_staleness, self.val_packs = versions, val_packs
        self.max_new_tokens = max_new_tokens
        self.enable_thinking, self.rewrite_history = enable_thinking, rewrite_history
        self.chat_template_kwargs, self.system_prompt = chat_template_kwargs, system_prompt
        self.suites, self.baseline = tuple(suites or ()), baseline
        check_baseline(baseline)
        check_variables(chat_template_kwargs or {})
        self.rewards, self.frozen, self.deadlines, self.seed = rewards_of(rewards), frozen, deadlines, seed
        check_siblings(self.rewards, program, pack_size)
        self.runner = RolloutRunner(engine, deadlines.stall_s, max_failed_fraction)
        """Runs all rollouts; what callbacks follow and read."""
        stored = None
        if replay is not None:
            from cod_lightning.training.replay_buffer import ReplayBuffer

            stored = ReplayBuffer(replay, seed)
        self.packs, self.replay = TrainingPacks(source or Uniform(), env, pack_size, seed), replay
        self.rollouts = TrainingRollouts(
            packs=self.packs,
            setting=lambda: replace(self._setting(), program=program),
            group_size=group_size,
            runner=self.runner,
            replay=stored,
            max_staleness=versions,
            num_needed=self._num_needed,
            buffer=self.buffer,
            in_order=in_order,
            packs_per_rollout=packs_per_rollout,
            updates_per_rollout=updates_per_rollout,
            passes_per_rollout=passes_per_rollout,
            shuffle_episodes=shuffle_episodes,
            resample_packs=resample_packs,
            seed=seed,
        )
        num_updates = updates_per_rollout * passes_per_rollout
        per_sync = 1 if self.buffer is None else self.buffer.rollouts_per_sync
        self.stream = TrainStream(self._next_rollout, rollouts_per_epoch, num_updates, self.runner, per_sync)
        """The updates to come; where a training stops and resumes."""
        self.test_weights: Collection[Weights] = ("trained",)
        """Conditions of which weights `test` plays of each suite."""
        self._suites_checked = False

    # ------------------------------------------------------------------ life of the DataModule

    def setup(self, stage: str) -> None:
        """Make the tokenizer, if `check_with` has not; refuse to train what cannot be trained."""
        module = self.learner
        check_alone()
        if stage == "fit" and not hasattr(module, "credited"):
            raise ConfigError("model", type(module).__name__, "a GRPOModule", "A WarmStartModule has demonstrations.")
        self.check_with(module.policy)
        ahead = self.max_staleness > 0 or self.packs.collects
        module.meet(self.chat, self.seed, self.words_for(module.policy), ahead=ahead)
        self.engine.log_folder = Path(self._run.default_root_dir)
        self.runner.start(self.engine.log_folder)
        if stage == "fit":
            check_combination(self, module.credited, module.loss, module.terms)
            check_scorers(self, module.scorers)
            self.check_fit(num_ranks())
            # what another policy samples says nothing on this one
            self._credit = module.credited if self.frozen is None else module.credited.without(self.frozen.kind)
            self._score = module.score
            self.engine.max_staleness = self.max_staleness
        if stage == "test" and not self.suites:
            raise ConfigError("data.suites", "empty", "a suite to test on", "Name one, or call validate.")
        if stage in ("fit", "test"):
            self.check_suites()

    def check_fit(self, ranks: int) -> None:
        """Refuse what so many ranks cannot train on."""
        check_trainable(self.engine)
        check_shares(self.packs_per_rollout, self.rollouts.num_shares, ranks)
        check_staleness(self)

    def check_with(self, policy: Policy, *, elsewhere: bool = False) -> None:
        """Make the tokenizer and see that engine and policy go together, and a first prompt and response into the window.

        `elsewhere` does not ask what the engine needs of the machine, for a run that will be on another one.
        """
        if self._chat is None:
            check_pair(self.engine, policy)
            check_media(self.engine, self.env)
            served = asked_of(policy)
            check_window(policy.window, served.config)
            if not elsewhere:
                self.engine.check(served)
            tokenizer = policy.tokenizer(self.words_for(policy))
            more = (self.chat_template_kwargs, self.system_prompt)
            chat = Chat(tokenizer, self.enable_thinking, self.rewrite_history, *more)
            with self.runner.phase("sampling the first pack"):
                check_first_pack(self, chat, policy.window)
            for part in self.rewards.values():
                part.check()
            if self.frozen is not None:
                self.frozen.check(tokenizer.get_vocab())
            self._chat = chat

    def check_suites(self) -> None:
        """Settle what suites leave open and refuse those that cannot be played; `check_with` comes first."""
        from cod_lightning.evaluation.readiness import ready

        if self._suites_checked:
            return
        check_names([suite.name for suite in self.suites])
        self.suites = tuple(ready(suite, self.env, self.pack_size, self.context, self.chat) for suite in self.suites)
        for suite in self.suites:
            assert suite.env is not None, "ready() settles the world"
            check_media(self.engine, suite.env)
            if self.baseline is not None:
                check_media(self.baseline, suite.env, "data.baseline")
        self._suites_checked = True

    def teardown(self, stage: str) -> None:
        """Wait for a rollout ahead of a run that ended early, say for its budget: the engine is free then."""
        self.runner.ahead.drop()

    def on_exception(self, exception: BaseException) -> None:
        """End the thread of a rollout ahead."""
        self.runner.ahead.give_up()

    def state_dict(self) -> dict[str, Any]:
        """The updates to come, and the state of the rollouts behind them, whose lifecycles are as in a transcript."""
        return {"schema": SCHEMA, "stream": self.stream.saved(), "rollouts": self.rollouts.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on there; only `fit` does."""
        if self.trainer is not None and self.trainer.state.fn != TrainerFn.FITTING:
            return
        if state_dict.get("schema") != SCHEMA:
            raise DataError(
                "the checkpoint was written by a version that kept rollouts otherwise: go on with that version, or begin a new run "
                "(`test`, `deploy` and `export` take it as it is)."
            )
        refused = partial(ConfigError, "ckpt_path", "a damaged checkpoint", remedy="Go on from an earlier one.")
        with answering(refused, "one whose state of the data can be restored"):
            self.stream.restore(state_dict["stream"])
            self.rollouts.load_state_dict(state_dict["rollouts"])

    # ------------------------------------------------------------------ loaders

    def train_dataloader(self) -> TrainStream:
        """One item = one optimizer update. Sized, so that Lightning never fetches ahead of the weights."""
        return self.stream

    def val_dataloader(self) -> SizedItems:
        """One item: the groups (of one) of all validation packs."""
        return SizedItems(self._validation, 1)

    def test_dataloader(self) -> list[SizedItems]:
        """One loader for each condition of each suite that the current policy plays; its item is a `PlayedCondition`."""

        def played(suite: Suite, control: Control) -> "Iterator[PlayedCondition]":
            yield self._suite_player.play(suite, control, self._setting())

        return [SizedItems(partial(played, *chosen), 1) for chosen in self.test_conditions()]

    @cached_property
    def _suite_player(self) -> "SuitePlayer":
        from cod_lightning.evaluation.suite_player import SuitePlayer

        return SuitePlayer(self.runner)

    def test_conditions(self) -> list[tuple[Suite, Control]]:
        """Suites, and under what they are played, in the order of the test loaders."""
        found = [(suite, control) for suite in self.suites for control in suite.conditions(self.baseline)]
        return [one for one in found if one[1].weights in self.test_weights]

    # ------------------------------------------------------------------ rollouts

    def _next_rollout(self, number: int, first: int) -> Rollout:
        return self.rollouts.next(number, first, self._credit, self._score)

    def _validation(self) -> Iterator[list[Group]]:
        """This rank's share of the validation packs, played."""
        with self.runner.phase("sampling packs of 'validation'"):
            draw = partial(drawn_pack, self.env, self.pack_size, 0, split=Split.VALIDATION)
            packs = [draw(index=index) for index in range(self.val_packs)]

        def play() -> list[Group]:
            return run_groups(share(packs), 1, self._setting(), label="validation")

        yield list(self.runner.run("validation", play).groups)

    def _setting(self) -> Setting:
        policy, frozen = self.learner.policy, self.frozen
        sampler = self.sampler(policy, getattr(self.learner, "model", None))
        setting = self.setting(replace(sampler, liveness=self.runner.liveness), self.runner)
        if frozen is None:
            return setting
        other = frozen.sampler(setting.sampler, policy, self.chat.stop_ids, self._run.strategy.root_device)
        return replace(setting, by_kind={frozen.kind: other})

    def sampler(self, policy: Policy, model: Any, temperature: float = 1.0) -> Sampler:
        """The policy as a rollout meets it. Its model, if any, may score more ids than the tokenizer has."""
        config = getattr(model, "config", None)
        return Sampler(
            engine=self.engine,
            chat=self.chat,
            window=policy.window,
            max_new_tokens=self.max_new_tokens,
            temperature=temperature,
            seed=self.seed,
            policy_version=self.engine.policy_version,
            num_ids=config and getattr(config.get_text_config(), "vocab_size", None),
            deadlines=self.deadlines,
        )

    def setting(self, sampler: Sampler, monitor: RolloutMonitor) -> Setting:
        """The environment with the agent in it, as it is evaluated."""
        return Setting(
            env=self.env,
            mechanism=self.context,
            sampler=sampler,
            program=self.program.held_out,
            rewards=self.rewards,
            monitor=monitor,
        )

    def _num_needed(self) -> float:
        """Rollouts that the run needs after the one that training takes now, as far as the Trainer tells."""
        trainer = self._run
        done = trainer.fit_loop.epoch_loop.batch_progress.current.ready
        epochs = math.inf if (end := trainer.max_epochs) is None or end < 0 else end - trainer.current_epoch
        steps = math.inf if trainer.max_steps < 0 else trainer.max_steps - trainer.global_step
        updates = min(epochs * trainer.num_training_batches - done, steps)
        rollouts = updates / (self.updates_per_rollout * self.passes_per_rollout)
        return rollouts if rollouts == math.inf else math.ceil(rollouts) - 1
