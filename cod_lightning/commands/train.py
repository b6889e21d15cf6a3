"""CoD-Train with its warm start, its evaluation and its report, and what the commands share that work on a training or its run."""

import copy
import sys
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import Any, ClassVar

import torch
from lightning.pytorch.callbacks import Callback
from transformers import PreTrainedModel

from cod_lightning.adapters import adapter_weights, trained_weights
from cod_lightning.callbacks import (
    Evaluation,
    MismatchGuard,
    Notes,
    Progress,
    Throughput,
    TokenBudget,
    Transcripts,
    WeightSync,
)
from cod_lightning.checkpoints.checkpoint import Checkpoint, read_checkpoint
from cod_lightning.commands import LIGHTNING, phase
from cod_lightning.commands.config_files import Expanded, expand, keys_of, read_keys
from cod_lightning.commands.lightning_cli import CodCLI, run_folder, start
from cod_lightning.commands.parser import TRUST, Options, program
from cod_lightning.commands.trainer_settings import check_started, num_processes
from cod_lightning.datamodules import RolloutDataModule
from cod_lightning.datamodules.combinations import check_combination, check_scorers
from cod_lightning.envs.facts import TeacherDials
from cod_lightning.errors import CodLightningError, ConfigError
from cod_lightning.evaluation.controls import Weights
from cod_lightning.modules import GRPOModule
from cod_lightning.process_memory import most_resident
from cod_lightning.ranges import Count, NonNegative
from cod_lightning.terminal import Screen
from cod_lightning.trusted import OWN, STRATEGIES, only_from

OF_A_RUN: Options = {"ckpt_path": (str | None, None, "Checkpoint; null: model.policy as it is."), "trust": TRUST}
SAMPLED: Options = OF_A_RUN | {"sampling_temperature": (NonNegative, 1.0, "0 is greedy.")}
_MOST_CAUSES = 2
"""That are named at the end of a `fit`."""


class TrainCLI(CodCLI):
    """`CodCLI` for CoD-Train, with its optional warm start and its evaluation at the end."""

    trusted = True
    """Whether the config may name classes of others, other machines and programs."""
    learnt_nothing = False
    """Whether no update of `fit` had a gradient."""
    warm_start_folder: Path | None = None
    demonstrations: Any = None
    memory_plan: Any = None
    options: ClassVar[Options] = CodCLI.options | {
        "warm_start": (phase.WarmStart | None, None, "A supervised start before `fit` (keys: --warm_start.help)."),
        "sampled_token_budget": (Count | None, None, "End `fit` with the rollout that has sampled so many tokens."),
    }

    def before_instantiate_classes(self) -> None:
        """Refuse ranks that the run lacks, of which its warm start has one alone."""
        if self.action is not None:
            check_started(self.config.trainer)
        super().before_instantiate_classes()

    def after_instantiate_classes(self) -> None:
        """Refuse what cannot be, and start from the warm start's weights."""
        policy, data = self.model.policy, self.datamodule
        checkpoint = self.read_checkpoint()
        if self.action is not None:
            data.engine.num_ranks = num_processes(self.config.trainer)
        if self.action == "fit":
            self.check_fit()
            policy.check_machine()
            if hasattr(policy, "skeleton") and policy.path:  # a real checkpoint
                from cod_lightning.commands import memory

                self.memory_plan = memory.announce(self.model, data, self.config.trainer)
        else:
            self.check_checkpoint(checkpoint)
        if self.action is not None:
            self.make_warm_start(checkpoint)

    def check_fit(self) -> None:
        """Refuse what `fit` refuses of module and data before its warm start, whatever machine this is."""
        module, data, trainer = self.model, self.datamodule, self.config.trainer
        check_combination(data, module.credited, module.loss, module.terms)
        data.check_fit(num_processes(trainer))
        module.check_strategy(str(getattr(trainer.strategy, "class_path", trainer.strategy)).rpartition(".")[2])

    def check_played(self, *, elsewhere: bool = False) -> None:
        """Refuse what cannot be played, known once the policy's tokenizer is; `elsewhere`: on another machine."""
        if not self.model.policy.waits_for_warm_start:
            self.datamodule.check_with(self.model.policy, elsewhere=elsewhere)
            check_scorers(self.datamodule, self.model.scorers)
            self.datamodule.check_suites()

    def make_warm_start(self, checkpoint: Checkpoint | None) -> None:
        """Let the policy begin with the weights of the warm start, if there is one."""
        warm, policy, data = self.config.warm_start, self.model.policy, self.datamodule
        if warm is None:
            return
        self._check_has_weights("warm_start", f"{warm.num_updates} updates")
        for name in ("system_prompt", "chat_template_kwargs", "enable_thinking"):
            if said := getattr(data, name):
                expected = "left out with a warm start, whose demonstrations have prompts without it"
                raise ConfigError(f"data.{name}", said, expected, "Or add --warm_start null.")
        self.check_played()
        from cod_lightning.checkpoints.changes import check_same_warm_start

        began = self.asked | {"seed_everything": self.config.seed_everything}
        if checkpoint is not None and not self.config.accept_changes:
            check_same_warm_start(checkpoint, began)
        self.warm_start_folder, demonstrated = phase.ensure_warm_start(began, data.words_for(policy))
        self.demonstrations = getattr(demonstrated, "teacher", None)
        policy.weights = str(self.warm_start_folder)

    def _check_has_weights(self, key: str, value: object) -> None:
        policy = self.model.policy
        if not policy.has_weights:
            expected = f"null, since {type(policy).__name__} has no weights here"
            raise ConfigError(key, value, expected, "Leave it out, or choose a policy with weights.")

    def read_checkpoint(self) -> Checkpoint | None:
        """That of the command line."""
        if not (path := self.config.get("ckpt_path")):
            return None
        self._check_has_weights("ckpt_path", path)
        return read_checkpoint(path)

    def check_checkpoint(self, checkpoint: Checkpoint | None) -> None:
        """Raise `ConfigError` for one of another environment, context or policy than those of the config."""
        if checkpoint is None:
            self._note_untrained()
            return
        from cod_lightning.checkpoints.changes import check_same_policy

        words = self.datamodule.words_for(self.model.policy)
        check_same_policy(checkpoint, self.asked, words, accepted=self.config.accept_changes)

    def _note_untrained(self) -> None:
        """Say what `test` and its siblings play without a checkpoint, and keep it out of the folder of a trained policy."""
        policy: Any = self.model.policy
        if not self.action or not policy.has_weights:
            return
        if any((self.root / "checkpoints").glob("*")):
            expected = f"a checkpoint, since {self.root} holds a trained policy, whose evaluation this would replace"
            remedy = "Add --ckpt_path last, or name another folder with --trainer.default_root_dir."
            raise ConfigError("ckpt_path", "null", expected, remedy)
        weights, warm = getattr(policy, "weights", None), self.config.warm_start is not None
        begins = "the warm start" if warm else weights or "model.policy, untrained,"
        name = "warm_start" if warm else Path(weights or "untrained").name
        callbacks: Any = self.trainer.callbacks  # pyright: ignore[reportAttributeAccessIssue]
        next(one for one in callbacks if isinstance(one, Evaluation)).policy = name
        print(f"note: no --ckpt_path: {begins} is played as it is", file=sys.stderr)

    def house_callbacks(self) -> list[Callback]:
        """What serves and watches CoD-Train."""
        budget = TokenBudget(self.config.sampled_token_budget)
        callbacks: list[Callback] = [Throughput(), WeightSync()]  # an update's time ends before the sync begins
        callbacks += [MismatchGuard(), Notes(), Progress(self.num_conditions), budget, Transcripts()]
        return [*callbacks, Evaluation()]

    def num_conditions(self) -> int:
        """What `test` and `evaluate` play together."""
        data = self.datamodule
        played = [one.weights for suite in data.suites for one in suite.conditions(data.baseline)]
        return sum(weights != "warm_start" or self.warm_start_folder is not None for weights in played)

    def act(self, action: str) -> None:
        """As ever; after `fit` and `test`, evaluate beside what the policy started from, and write the report."""
        super().act(action)
        if action == "fit":
            self._trained()
        elif action == "test":  # the trained policy has been played; the references and the warm start have not
            evaluate(self, trained_done=True)

    def _trained(self) -> None:
        updates, notes = self.trainer.global_step, list[str]()
        self.learnt_nothing = not self.model.num_moved and updates > 0
        if updates == self.began_at:
            lengths = "max_epochs, max_steps, max_time or sampled_token_budget"
            ends = f"{self.config.ckpt_path} is where the run ends"
            notes.append(f"nothing was trained: {ends}. To train on, raise {lengths}.")
        if self.learnt_nothing:
            seen = f"none of {updates:,} updates had a gradient, since every advantage was 0"
            remedy = "Easier settings, a warm start or a larger data.group_size make rewards differ."
            notes.append(f"nothing was learnt: {seen}. The weights are those that the run began with. {remedy}")
        if self.memory_plan is not None:
            from cod_lightning.models.memory_plan import GIB

            on_gpu = torch.cuda.is_available()
            peak = (torch.cuda.max_memory_allocated() if on_gpu else most_resident()) / GIB
            where = "GPU memory" if on_gpu else "RAM (torch and Python included)"
            print(f"Memory: at most {peak:.2f} GiB of {where}; planned {self.memory_plan.total / GIB:.2f} GiB")
        evaluate(self, trained_done=False)
        if not self.trainer.is_global_zero:
            return
        if (self.root / "metrics.csv").is_file():
            from cod_lightning.diagnosis.causes import causes_of
            from cod_lightning.diagnosis.evidence import read_evidence

            try:
                found = causes_of(read_evidence(self.root))[:_MOST_CAUSES]
                more = f"{program()} doctor {quote(str(self.root))} says more."
                notes += [f"{one.cause}: {one.seen}. {more}" for one in found]
            except CodLightningError as error:  # of damaged records the run is not the worse
                notes.append(f"what ails the run was not looked for: {error}")
        for note in notes:
            print(f"note: {note}", file=sys.stderr)


def evaluate(cli: Any, *, trained_done: bool) -> None:
    """Play every suite with the trained weights (unless that is done), by the world's references, by `data.baseline` and, where
    there was one, with the warm start's weights; print the table, and write the report.

    All ranks play; rank 0 writes and prints. `cli` is the `TrainCLI`.
    """
    from cod_lightning.commands import report

    trainer, module, data = cli.trainer, cli.model, cli.datamodule
    if data.suites:
        if not trained_done:
            trainer.test(module, data, verbose=False)
        _pass(trainer, module, data, "none")
        if cli.warm_start_folder is not None:
            _play_warm_start(trainer, module, data)
        if trainer.is_global_zero:
            _show(cli)
    if trainer.is_global_zero:
        report.run([str(cli.root)])


def _play_warm_start(trainer: Any, module: Any, data: Any) -> None:
    trained = copy.deepcopy(trained_weights(module.model))
    # with an adapter the base is still there, and an adapter of zeros adds nothing to it
    zeros = {name: weight.detach() * 0 for name, weight in adapter_weights(module.model).items()}
    if zeros:
        module.model.load_state_dict(zeros, strict=False)
    else:
        from cod_lightning.models.sharded import load_whole  # FSDP, which few runs need

        # read as a model, since files name the experts of a mixture otherwise
        load_whole(module.model, module.policy.model(data.chat.tokenizer).state_dict())
    try:
        _pass(trainer, module, data, "warm_start")
    finally:
        module.model.load_state_dict(trained, strict=False)


def _show(cli: Any) -> None:
    """Print the table, with what the demonstrations already contained and what training did, and what engines and judges say."""
    from cod_lightning.evaluation.results import results_of
    from cod_lightning.evaluation.table import print_table
    from cod_lightning.reports.curves import in_training, read_metrics

    data, console = cli.datamodule, Screen()
    begun = cli.demonstrations.described() if isinstance(cli.demonstrations, TeacherDials) else ""
    note = "\n".join(filter(None, (begun, in_training(read_metrics(cli.root)[0]))))
    evaluation = next(one for one in cli.trainer.callbacks if isinstance(one, Evaluation))
    print_table(results_of(evaluation.played), console, note=note)
    console.print(f"\nWritten to {cli.root / 'evaluation.json'}", soft_wrap=True)
    baseline = "" if data.baseline is None else data.baseline.report()
    for line in (data.engine.report(), baseline, *(part.report() for part in data.rewards.values())):
        if line:
            console.print(line)
    evaluation.played.clear()


def _pass(trainer: Any, module: Any, data: Any, weights: Weights) -> None:
    """One more pass of `test`, of other conditions."""
    data.test_weights = (weights,)
    try:
        if data.test_conditions():
            trainer.test(module, data, verbose=False)
    finally:
        data.test_weights = ("trained",)


def made(expanded: Expanded, command: str, options: Options | None = None) -> Any:
    """The CLI of a command with module and data, once it has done what Lightning does for it."""
    action = command if command in LIGHTNING else None
    how = {"options": options, "action": action, "name": expanded.name}
    return start(TrainCLI, GRPOModule, RolloutDataModule, expanded.argv, command, **how)


def built(command: str, options: Options, argv: Sequence[str]) -> Any:
    """The CLI of a command with module and data. Where it takes a checkpoint and no config is typed, it is the run's own config, of
    which only our classes are trusted."""
    typed = dict(keys_of(argv))
    named = {key.lstrip("-"): value for key, value in typed.items()}
    own = None
    if "ckpt_path" in options and "ckpt_path" in named and not {"config", "c"} & named.keys():
        own = config_of_run(named["ckpt_path"] or "")
    trust = own is None or typed.get("--trust", "") is None  # a flag, so that --trust=false is none
    with only_from((*OWN, *STRATEGIES), trust=trust):
        found = made(expand(argv, own), command, options)
    found.trusted = trust
    return found


def config_of_run(path: str) -> dict[str, Any]:
    """The config of the run which the checkpoint belongs to."""
    folder = run_folder(path)
    if folder is None:
        read_checkpoint(path)
        expected = f"the config of the run, since {path} lies in no run's folder"
        raise ConfigError("--config", "missing", expected, "Add --config FILE.")
    return read_keys(folder / "config.yaml", "--config", folder / "config.yaml")


def model_of(cli: Any, ckpt_path: str | None) -> PreTrainedModel:
    """The policy's model on the CPU, with the checkpoint's weights if one is named; its tokenizer is `data.chat.tokenizer`.

    The warm start serves where there is no checkpoint, or one of an adapter on it.
    """
    policy, data = cli.model.policy, cli.datamodule
    if cli.config.ckpt_path is None or policy.waits_for_warm_start:
        with only_from((*OWN, *STRATEGIES), trust=cli.trusted):
            cli.make_warm_start(cli.read_checkpoint())
    data.check_with(policy)
    tokenizer: Any = data.chat.tokenizer
    model = policy.model(tokenizer)
    if ckpt_path is not None:
        read_checkpoint(ckpt_path).load_into(model, policy.base)
    return model
