"""The objective of CoD-Train as a LightningModule: how episodes are credited, and rows -> loss, one optimizer update a batch."""

import copy
import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial, reduce
from typing import Any, Literal, cast

import torch
from jaxtyping import Float
from torch import Tensor
from transformers import PreTrainedModel

from cod_lightning.adapters import has_adapter, without_adapter
from cod_lightning.credit.baselines import Baseline, GroupMean
from cod_lightning.credit.credited import AdaptiveRED, Credit, Scale
from cod_lightning.credit.returns import CreditRule, EpisodeCredit
from cod_lightning.errors import DataError, check_one_of
from cod_lightning.evaluation.metrics import PositionMetrics
from cod_lightning.models.base import Policy
from cod_lightning.modules.policy import OptimizerName, PolicyModule
from cod_lightning.objective.batch import Batch, one_token
from cod_lightning.objective.losses import REC, LossInputs, LossOutputs, PolicyLoss
from cod_lightning.objective.mismatch import MismatchCorrection, corrected, mismatch_figures, mismatch_sums
from cod_lightning.objective.terms import REFERENCE, LossTerm, TermInputs, TermSums, check_terms, made, means
from cod_lightning.ranges import Count, Natural, NonNegative, Positive, Share
from cod_lightning.ranks import gathered
from cod_lightning.seeds import derive_seed
from cod_lightning.training.critics import Critic, CriticAtWork
from cod_lightning.training.scorers import Played, Scorer, check_missing, scoring
from cod_lightning.training.update import Sums, Update, UpdateStats, added, padded, plan_update
from cod_lightning.types import EpisodeKind, Group

RowListener = Callable[[Batch, Float[Tensor, "B T"]], None]
"""Called with the rows of a micro-batch and their log-probs under the policy as the update found it, without gradient."""


class GRPOModule(PolicyModule):
    """Trains a policy on groups of lifecycles with credit for each episode.

    Manual optimisation: a batch is one update of any number of micro-batches, so gradient clipping and accumulation are
    this module's own keys, not the Trainer's.

    Args:
        policy: How the model and its tokenizer are made.
        credit: Rewards to returns (`EpisodeCredit` is the paper's).
        baseline: What a return is compared with.
        critic: What gives each token an advantage in its place, from the policy's hidden states; null: nothing does.
        scale: Divide advantages by the standard deviation of the returns of their group, of all advantages of the rollout but those
            of attempts (batch), or not at all.
        reweight: Tilt of advantages where negative ones dominate; null leaves them alone.
        loss: Policy loss on tokens.
        mismatch: Correction where engine and training disagree on log-probs; null only measures it.
        trained_kinds: Episodes that are trained on: [update] trains the writer of contexts alone, [solve] the player, [write] the
            writer of texts that a program asks for, such as proposals; null: all.
        filter_packs: Take packs in which no sibling did better than another out of the update and its denominators.
        optimizer: AdamW with moments in float32 (`adamw`), the same for weights in bfloat16, which it rounds stochastically
            (`adamw_stochastic`), or with moments in 8 bits (`adamw_8bit`), on a GPU also paged, so that they give way to
            activations (`paged_adamw_8bit`); the last two need bitsandbytes.
        lr: Learning rate of AdamW.
        betas: Decay rates of AdamW's moments.
        weight_decay: Decoupled weight decay.
        warmup_updates: Updates over which the learning rate rises linearly from 0.
        final_lr_fraction: Share of the learning rate that is left at the end; it falls linearly. 1 keeps it constant.
        gradient_clip_val: Largest norm of an update's gradient; null leaves it alone.
        token_budget: Most tokens of a micro-batch, padding included. Changes memory and speed, not the gradient.
        terms: What the loss has beside the policy loss: `KL` from the initial policy or from a teacher, `EntropyBonus`. A term that
            needs the initial policy keeps a frozen copy, except where an adapter is trained: without it, the model is that.
        scorers: Other models whose log-probs terms need, by the name that terms call them.
    """

    def __init__(
        self,
        policy: Policy,
        credit: CreditRule = EpisodeCredit(),  # noqa: B008  (frozen; the CLI's default)
        baseline: Baseline = GroupMean(),  # noqa: B008
        critic: Critic | None = None,
        scale: Scale = "none",
        reweight: AdaptiveRED | None = AdaptiveRED(),  # noqa: B008
        loss: PolicyLoss = REC(),  # noqa: B008
        mismatch: MismatchCorrection | None = None,
        trained_kinds: list[Literal["solve", "update", "write"]] | None = None,
        filter_packs: bool = False,
        optimizer: OptimizerName = "adamw",
        lr: Positive = 1e-6,
        betas: tuple[Share, Share] = (0.9, 0.999),
        weight_decay: NonNegative = 0.0,
        warmup_updates: Natural = 0,
        final_lr_fraction: Share = 1.0,
        gradient_clip_val: Positive | None = 1.0,
        token_budget: Count = 16_384,
        terms: list[LossTerm] | None = None,
        scorers: dict[str, Scorer] | None = None,
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.policy, self.critic, self.loss, self.mismatch = policy, critic, loss, mismatch
        self.critic_at_work: CriticAtWork | None = None
        check_one_of("model.scale", scale, ("none", "group", "batch"))
        self.credited = Credit(
            rule=credit,
            baseline=baseline,
            scale=scale,
            reweight=reweight,
            kinds=tuple(map(EpisodeKind, trained_kinds or EpisodeKind)),
            filtered=filter_packs,
            criticised=critic is not None,
            compares_siblings=loss.compares_siblings,
        )
        """What gives a rollout of all ranks its advantages."""
        self._take_optimizer(optimizer, lr, betas, weight_decay)
        self.warmup_updates = warmup_updates
        self.final_lr_fraction = final_lr_fraction
        self.gradient_clip_val, self.token_budget = gradient_clip_val, token_budget
        self.terms, self.scorers = tuple(terms or ()), dict(scorers or {})
        check_terms(self.terms, self.scorers)
        self.needs = tuple(dict.fromkeys(name for term in self.terms for name in term.needs))
        """Names of the models whose log-probs the terms need."""
        self.model: PreTrainedModel | None = None
        self.reference: PreTrainedModel | None = None
        self.val_positions = PositionMetrics()
        self.last_update: UpdateStats | None = None
        self.latest: dict[str, float] = {}
        """Logged figures that not every update has: of its tokens, and, first in a rollout, of the engine's log-probs."""
        self.updates_since_sync = 0
        """Optimizer updates that the engine has not seen; `WeightSync` resets it."""
        self.num_moved = 0
        """Optimizer updates whose gradient was not 0."""
        self.progress: Callable[[], float] | None = None
        """Share of the training that is done, by which the learning rate falls where no number of updates ends it."""
        self.row_listeners: list[RowListener] = []

    def configure_model(self) -> None:
        """Build the policy once the DataModule has its tokenizer."""
        if self.model is None:
            model = self._made()
            if REFERENCE in self.needs and not has_adapter(model):
                self.reference = self._shared_out(copy.deepcopy(model).eval().requires_grad_(False))
            self.model = self._shared_out(model)
            if self.critic is not None:
                size = model.config.get_text_config().hidden_size
                self.critic_at_work = CriticAtWork(self.critic, size, self.trainer.strategy.root_device, self.seed)

    def configure_optimizers(self) -> Any:
        """AdamW with a linear warm-up and a linear fall."""
        total = float(self.trainer.estimated_stepping_batches) or 1.0  # infinite where the run has no end

        def factor(update: int) -> float:
            done = min(1.0, update / total if self.progress is None else self.progress())
            return min(1.0, (update + 1) / max(1, self.warmup_updates)) * (1 - (1 - self.final_lr_fraction) * done)

        return self._optimized(factor)

    # ------------------------------------------------------------------ training

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        """What a policy or a loss term draws goes by run, update and rank, so that an interrupted run draws what it would have."""
        torch.manual_seed(derive_seed("update", self.seed, self.global_step, self.global_rank))

    def training_step(self, batch: Batch, batch_idx: int) -> None:
        """One optimizer update from one share of a rollout: rows -> micro-batches -> loss -> gradient -> step.

        What stands before it, groups of lifecycles -> rewards -> advantages -> rows, is `TrainingRollouts.next`.
        """
        update = plan_update(batch, self.loss, every_row=bool(self.terms))
        parts = padded(self._split(batch, update.rows, update.together))
        lr = cast(Any, self.optimizers()).param_groups[0]["lr"]
        found: list[Sums] = []
        norm = self._updated(batch, parts, partial(self._loss_of, batch, update, found), self.gradient_clip_val)
        self.num_moved += norm > 0
        num_tokens = int(batch.lengths[update.rows].sum())
        self.last_update = UpdateStats(num_tokens, num_rows=len(update.rows), num_micro_batches=len(parts))
        self._log_update(batch, reduce(added, gathered(reduce(added, found, Sums()))), norm, lr)

    def _loss_of(self, batch: Batch, update: Update, sums: list[Sums], rows: Tensor) -> Tensor:
        """The loss of a micro-batch; what it adds to the update's sums is appended to these."""
        part = batch.rows(rows)
        beside = self._looked_at(part)
        loss, found = self._loss(part, beside, update)
        self._stop_if_not_finite(loss, beside.policy_logprobs, part)
        for listener in self.row_listeners:
            listener(part, beside.policy_logprobs.detach())
        sums.append(found)
        return loss

    def _loss(self, part: Batch, beside: TermInputs, update: Update) -> tuple[Tensor, Sums]:
        """The policy loss of a micro-batch and all terms, over the update's denominators, and what it adds to the update's sums."""
        logprobs = beside.policy_logprobs
        inputs = LossInputs(
            policy_logprobs=logprobs,
            behaviour_logprobs=part.behaviour_logprobs,
            advantages=part.token_advantages,
            action_mask=part.action_mask,
            episode=part.episode,
            siblings=part.siblings,
            num_action_tokens=update.num_action_tokens,
            num_episodes=update.num_episodes,
        )
        old = logprobs if part.old_logprobs is None else part.old_logprobs
        apart, num_corrected = mismatch_sums(inputs, old, measured=~part.is_replayed), 0.0
        if self.mismatch is not None:
            inputs, num_corrected = corrected(inputs, old, self.mismatch)
        out = made(self.loss, inputs, "model.loss", LossOutputs)
        loss, figures = out.loss, dict[str, float]()  # terms of one scorer have its missing tokens in common
        for term in self.terms:
            sums = made(term, beside, "model.terms", TermSums)
            loss = loss + term.coefficient * sums.loss / max(1, update.num_action_tokens)
            figures |= term.figures(sums)
        of_update = {
            "tokens": float(part.action_mask.sum()),
            "clipped": out.num_clipped,
            "corrected": num_corrected,
            "entropy": float(beside.entropies.detach().sum()),
            "loss": float(loss.detach()),
        }
        return loss, {"update": of_update, "terms": figures, "mismatch": apart}

    def _logprobs(self, model: PreTrainedModel, part: Batch) -> tuple[Float[Tensor, "B T"], Float[Tensor, "B T"]]:
        """Log-probabilities and entropies of action tokens."""
        return self._scored(model, part, entropy_gradient=any(term.entropy_gradient for term in self.terms))

    def _looked_at(self, part: Batch) -> TermInputs:
        """Log-probabilities and entropies of action tokens, and of observations where a term observes."""
        seen = part.observation_mask if any(term.observes for term in self.terms) else None
        mask = part.action_mask if seen is None else part.action_mask | seen
        found = self._logprobs(self._model, replace(part, action_mask=mask))
        observed = None if seen is None else torch.where(seen, found[0], 0.0)
        own, entropies = found if seen is None else (torch.where(part.action_mask, of, 0.0) for of in found)
        return TermInputs(own, entropies, part.scores, part.action_mask, observed)

    def score(self, batch: Batch, played: Played, num_updates: int = 1) -> Batch:
        """The rows of a rollout, before its first update, with the log-probs of all models that the terms need.

        With `model.mismatch` and several updates, with those of the policy as it is, too; with a critic, with an advantage for each
        token. `played` is for models that see more.
        """
        self._see_text(batch)
        old, scores = None, dict[str, Tensor]()
        if self.mismatch is not None and num_updates > 1:
            old = self._scored_rows(batch, partial(self._forward, None))
        for name in self.needs:
            with scoring(name):
                if name == REFERENCE:  # the frozen copy, or the model without its adapter
                    with without_adapter(self._model) if self.reference is None else nullcontext():
                        scores[name] = self._scored_rows(batch, partial(self._forward, self.reference))
                else:
                    rows, known = self.scorers[name].rows(batch, played)
                    found = self._scored_rows(rows, partial(self.scorers[name].score, forward=self._forward))
                    scores[name] = torch.zeros_like(batch.behaviour_logprobs)
                    scores[name][batch.action_mask] = found[rows.action_mask]
                    scores[name][~known] = math.nan
            new = (
                batch.action_mask & ~batch.is_replayed[:, None]
            )  # a teacher that sees more knows those of this rollout alone
            counts = gathered((int((new & ~scores[name].isfinite()).sum()), int(new.sum())))
            check_missing(name, sum(missing for missing, _ in counts), sum(tokens for _, tokens in counts))
        batch = replace(batch, scores=scores, old_logprobs=old)
        if self.critic_at_work is None or batch.returns is None:
            return batch
        known = batch.returns.isfinite()
        parts = self._split(batch, known.nonzero().squeeze(1), torch.arange(len(batch)), alike=False)
        return self.critic_at_work.criticised(batch, known, padded(parts), self._hidden)

    @torch.no_grad()
    def _scored_rows(self, batch: Batch, score: Callable[[Batch], Tensor]) -> Float[Tensor, "B T"]:
        """`score` of all rows of the batch, in micro-batches; computed on the module's device, kept where the batch is.

        All ranks score equally often, since sharded parameters are put together by all of them.
        """
        found = torch.zeros_like(batch.behaviour_logprobs)
        every = torch.arange(len(batch), device=batch.lengths.device)
        parts = self._split(batch, every, every)
        for rows in padded(parts):
            if rows is None:
                score(one_token(batch).to(self.device))
                continue
            part = batch.rows(rows)
            found[rows, : part.token_ids.shape[1]] = score(part.to(self.device)).to(found)
        return found

    def _forward(self, model: PreTrainedModel | None, part: Batch) -> Float[Tensor, "B T"]:
        """In the precision of training, which a scorer's own numbers are not rounded to."""
        with self.trainer.precision_plugin.forward_context():
            return self._logprobs(self._model if model is None else model, part)[0]

    def _log_update(self, batch: Batch, totals: Sums, norm: float, lr: float) -> None:
        on_policy = self.updates_since_sync == 0  # else the gap is the last update's doing, not the engine's
        self.updates_since_sync += 1
        of_update = totals.get("update", {"loss": 0.0})
        if tokens := of_update.get("tokens"):
            self.latest |= {"clip_fraction": of_update["clipped"] / tokens, "entropy": of_update["entropy"] / tokens}
            before = {name: value for name, value in self.latest.items() if name not in totals["terms"]}
            self.latest = before | means(self.terms, totals["terms"], tokens)
            if on_policy or batch.old_logprobs is not None:
                self.latest |= mismatch_figures(totals["mismatch"], ahead=self.ahead)
                if self.mismatch is not None:
                    self.latest["mismatch_corrected"] = of_update["corrected"] / tokens
        figures = {"loss": of_update["loss"], "learning_rate": lr, "gradient_norm": norm, **self.latest}
        named = {f"train/{name}": value for name, value in figures.items()}
        self.log_dict({**batch.figures, **named}, on_step=True, on_epoch=False, batch_size=1)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_save_checkpoint(checkpoint)
        checkpoint["cod_lightning"] |= {
            "updates_since_sync": self.updates_since_sync,
            "latest": dict(self.latest),
            "num_moved": self.num_moved,
        }
        if self.critic_at_work is not None:
            checkpoint["critic"] = self.critic_at_work.state_dict()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_load_checkpoint(checkpoint)
        kept = checkpoint["cod_lightning"]
        if "latest" not in kept:
            raise DataError("ckpt_path holds a warm start under way, no `fit`. Use a checkpoint of a `fit` run.")
        self.updates_since_sync, self.latest = kept["updates_since_sync"], dict(kept["latest"])
        self.num_moved = kept.get("num_moved", 1)  # earlier versions did not count
        if self.critic_at_work is not None and "critic" in checkpoint:
            self.critic_at_work.load_state_dict(checkpoint["critic"])

    # ------------------------------------------------------------------ evaluation

    def validation_step(self, groups: list[Group], batch_idx: int) -> None:
        self.val_positions.update([lifecycle for group in groups for lifecycle in group.lifecycles])

    def on_validation_epoch_end(self) -> None:
        """Log the position curve; what CoD is about."""
        found = self.val_positions.compute()
        self.val_positions.reset()
        self.log_dict({f"val/{name}": value for name, value in found.items()})

    def test_step(self, played: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        """Nothing to compute: the `Evaluation` callback collects each `PlayedCondition`."""
