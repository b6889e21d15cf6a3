"""What the modules share: a policy on any number of ranks, and what of it keeps its precision when the weights are cast."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self, cast, get_args

import lightning as L
import torch
from jaxtyping import Bool, Float, Int
from lightning.pytorch.strategies import ModelParallelStrategy, ParallelStrategy
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from torch.optim import AdamW
from torch.optim.lr_scheduler import LambdaLR
from transformers import PreTrainedModel, PreTrainedTokenizerFast
from transformers.modeling_utils import local_torch_dtype

from cod_lightning import __version__
from cod_lightning.adapters import adapter_weights, has_adapter, is_adapter, is_four_bit, synced_weights
from cod_lightning.errors import ConfigError, DataError, NonFiniteLoss, check_one_of
from cod_lightning.files import without_link
from cod_lightning.forward.attention import use_grouped_attention
from cod_lightning.forward.last_layer import output_layer, predicting, read_only_at
from cod_lightning.forward.rms_norm import use_rms_norm
from cod_lightning.forward.row_tree import RowTree, most_that_pays, split_by_nodes, takes_tree
from cod_lightning.models.base import Policy
from cod_lightning.objective.batch import Batch, one_token
from cod_lightning.objective.logprobs import action_logprobs
from cod_lightning.process_memory import give_back, keep_freed_memory
from cod_lightning.ranks import inside, num_ranks, rank
from cod_lightning.rollout.chat import Chat
from cod_lightning.seeds import derive_seed
from cod_lightning.training.update import MOST_PADDING, split_by_token_budget

OptimizerName = Literal["adamw", "adamw_stochastic", "adamw_8bit", "paged_adamw_8bit"]
"""`adamw` is torch's, `adamw_stochastic` `StochasticAdamW`, the others those of bitsandbytes. The paged one keeps its state in
memory that moves to the CPU and back where the GPU is full; on a CPU it is as the other."""


_OF_TORCH = ("adamw", "adamw_stochastic")
"""Those that need no bitsandbytes."""


class PolicyModule(L.LightningModule):
    """A LightningModule around a policy's model; the model is there after `configure_model`."""

    policy: Policy
    model: PreTrainedModel | None
    seed: int
    """Of the run."""
    token_budget: int | None
    """Most tokens of a micro-batch, padding included; None: no bound."""
    vocabulary: int
    """A digest of the words that the tokenizer was made of."""
    stop_ids: frozenset[int]
    """Token ids that end a response."""
    ahead: bool = False
    """Whether rollouts are played by older weights, ahead of training or elsewhere."""
    _tokenizer: PreTrainedTokenizerFast

    def meet(self, chat: Chat, seed: int, words: Sequence[str], *, ahead: bool = False) -> None:
        """Take what the run's DataModule knows once it is set up; `words` are what the tokenizer was made of."""
        self.seed, self.ahead = seed, ahead
        self._tokenizer, self.stop_ids = cast(PreTrainedTokenizerFast, chat.tokenizer), chat.stop_ids
        self.vocabulary = derive_seed("vocabulary", *words)

    def _see_text(self, rows: Batch) -> None:
        """Raise `ConfigError` for rows with images, of which the model would read the alternatives alone."""
        if any(rows.images):
            expected = "one that reads images, since rows of its training show some; none so far does"
            remedy = "Choose an environment, or recorded lifecycles, in text."
            raise ConfigError("model.policy", type(self.policy).__name__, expected, remedy)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Moves and casts, but derived buffers, those of a frozen reference too, and the adapter are moved only.

        `trainer.precision=bf16-true` casts all there is, rotary frequencies included; transformers keeps those in
        float32, since at position 10,000 a frequency of three digits turns by tens of radians too much or too little.
        An adapter is in float32 for its small updates.
        """
        as_they_are = set(map(id, [*_derived_buffers(self), *adapter_weights(self).values()]))
        return super()._apply(lambda one: one.to(fn(one).device) if id(one) in as_they_are else fn(one), recurse)

    @property
    def _model(self) -> PreTrainedModel:
        assert self.model is not None, "configure_model() has not run"
        return self.model

    @property
    def strict_loading(self) -> bool:  # pyright: ignore[reportIncompatibleMethodOverride]
        """A checkpoint of an adapter has no other weights."""
        return self.model is None or not has_adapter(self.model)

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Of a model with an adapter, the adapter alone; shards, too, are written and read by this."""
        weights = super().state_dict(*args, **kwargs)
        if self.model is not None and has_adapter(self.model):
            own = f"{kwargs.get('prefix', '')}model."
            for name in [name for name in weights if name.startswith(own) and not is_adapter(name)]:
                del weights[name]
        return weights

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Who wrote it, and what an adapter is on."""
        checkpoint["cod_lightning"] = {"version": __version__}
        if self.policy.base is not None:
            checkpoint["base"] = asdict(self.policy.base)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Refuse an adapter of another base, or of other layers."""
        if self.policy.base is None:
            return
        self.policy.base.check(checkpoint.get("base"), "ckpt_path")
        kept = {name for name in checkpoint.get("state_dict", ()) if is_adapter(name)}
        if kept and kept != {f"model.{name}" for name in adapter_weights(self._model)}:
            raise DataError(
                "ckpt_path holds an adapter of other layers than model.policy.targets names. Use the config of its own run."
            )

    def _take_optimizer(self, name: OptimizerName, lr: float, betas: tuple[float, float], weight_decay: float) -> None:
        """Keep AdamW's settings. From Python, too, another name is none of bitsandbytes'."""
        check_one_of("model.optimizer", name, get_args(OptimizerName))
        self.optimizer_name: OptimizerName = name
        self.lr, self.betas, self.weight_decay = lr, betas, weight_decay

    def _optimized(self, factor: Callable[[int], float]) -> Any:
        """AdamW for those parameters that are trained; its rate is `lr` times the factor at each update."""
        kind: Any = AdamW
        trained = [parameter for parameter in self._model.parameters() if parameter.requires_grad]
        if self.optimizer_name == "adamw_stochastic":
            from cod_lightning.training.stochastic_adamw import StochasticAdamW

            kind = partial(StochasticAdamW, seed=self.seed)
            # FSDP2 sums in float32, DDP in the weights' own
            if num_ranks() == 1 and not isinstance(self._model, FSDPModule):
                for parameter in trained:
                    parameter.grad_dtype = torch.float32  # micro-batches add up without rounding
        elif self.optimizer_name != "adamw":
            from bitsandbytes.optim.adamw import AdamW8bit, PagedAdamW8bit

            kind = AdamW8bit if self.optimizer_name == "adamw_8bit" else PagedAdamW8bit
        optimizer = kind(trained, lr=self.lr, betas=self.betas, weight_decay=self.weight_decay)
        return [optimizer], [LambdaLR(optimizer, factor)]

    def on_train_start(self) -> None:
        """A run that goes on has its own settings of AdamW; those that its checkpoint restored may be others."""
        optimizer, schedule = cast(Any, self.optimizers()), cast(Any, self.lr_schedulers())
        for group in optimizer.param_groups:
            lr = group["lr"] * (self.lr / schedule.base_lrs[0])
            group |= optimizer.defaults | {"lr": lr, "initial_lr": self.lr}
        schedule.base_lrs = [self.lr]

    # ------------------------------------------------------------------ on several ranks

    def plain_model(self) -> PreTrainedModel:
        """What an engine may copy: the model itself, or, where ranks share its parameters out, another of its architecture.

        The other one's weights are those that the policy starts from; the engine's first sync replaces them.
        """
        if not isinstance(self._model, FSDPModule):
            return self._model
        with torch.random.fork_rng(devices=[]):
            model = self._made()
        kept: dict[str, Any] = {name: weight.dtype for name, weight in self._model.named_parameters()}
        for name, parameter in model.named_parameters():
            if kept[name].is_floating_point:
                parameter.data = parameter.data.to(kept[name])
        return model

    def synced_weights(self, *, adapter: bool) -> Iterator[tuple[str, Tensor]]:
        """What an engine is sent, put together where ranks share it out, so that all have to ask for all.

        Of a model with an adapter that alone, if the engine takes one.
        """
        return synced_weights(self._model, adapter=adapter)

    def _made(self) -> PreTrainedModel:
        """The policy's model, plain."""
        if not hasattr(self, "_tokenizer"):
            expected = "the DataModule that makes the tokenizer"
            remedy = "Call trainer.fit(module, data); a checkpoint is read by ckpt_path of fit, validate and test."
            raise ConfigError("data", "missing", expected, remedy)
        # Lightning's bf16-true has set another default, in which nothing is factorised
        with local_torch_dtype(torch.float32):
            model = self.policy.model(self._tokenizer)
        _leave_out_dropout(model)
        use_grouped_attention(model)
        use_rms_norm(model)
        if self.trainer.strategy.root_device.type == "cpu":
            keep_freed_memory()
        if model.get_output_embeddings() is not None:  # a model behind an endpoint has no weights
            output_layer(model)  # refused before anything is trained
        return model

    def check_strategy(self, name: str) -> None:
        """Raise `ConfigError` where a strategy of that class cannot train this policy with this optimizer, or its package is not
        there."""
        is_sharded = name == ModelParallelStrategy.__name__
        if self.optimizer_name in _OF_TORCH:
            return
        if is_sharded:
            expected = f"{' or '.join(_OF_TORCH)} with strategy=fsdp2, since those of bitsandbytes do not take shares of parameters"
            raise ConfigError("model.optimizer", self.optimizer_name, expected, "Choose adamw, or ddp.")
        from cod_lightning.extras import require

        require("bitsandbytes", "model.optimizer", self.optimizer_name)

    def _shared_out(self, model: PreTrainedModel) -> PreTrainedModel:
        """The same model, its parameters shared out between ranks where the strategy wants it (FSDP2)."""
        strategy = self.trainer.strategy
        self.check_strategy(type(strategy).__name__)
        if isinstance(strategy, ModelParallelStrategy):
            from cod_lightning.models.sharded import shard

            if is_four_bit(model):
                model.to(strategy.root_device)  # pyright: ignore  what is not shared out is not moved
            compute = torch.bfloat16 if self.trainer.precision == "bf16-mixed" else None
            shard(model, strategy.device_mesh["data_parallel"], compute)
        return model

    def _scored(
        self, model: PreTrainedModel, part: Batch, *, entropy_gradient: bool = False
    ) -> tuple[Float[Tensor, "B T"], Float[Tensor, "B T"]]:
        """Log-probabilities and entropies of action tokens; rows are right-padded, so the causal mask is all they need.

        What several rows begin with is computed once, and no padding, where the model `takes_tree` and it pays; rows that were
        put together for what they share may not fit the budget otherwise.
        """
        tree = None
        if self._takes_tree(model):
            found = RowTree(part.token_ids, part.lengths, part.action_mask)
            is_large = self.token_budget is not None and part.token_ids.numel() > self.token_budget
            tree = found if found.share <= most_that_pays(model) or is_large else None
        ids, mask = part.token_ids, part.action_mask
        return inside(model, lambda: _through(model, ids, mask, tree, entropy_gradient=entropy_gradient))

    def _takes_tree(self, model: PreTrainedModel) -> bool:
        """Asked by all ranks at their first call."""
        return takes_tree(model, lambda *case: inside(model, lambda: _through(model, *case)[0]))

    def _split(
        self, batch: Batch, rows: Int[Tensor, " b"], together: Int[Tensor, " B"], *, alike: bool = True
    ) -> list[Int[Tensor, " b"]]:
        """These rows as micro-batches within the token budget.

        Those that begin `alike` come together where the model computes what they share once, and it pays.
        """
        assert self.token_budget is not None, "micro-batches have a bound"
        budget, is_tree = self.token_budget, alike and self._takes_tree(self._model)
        most_padding = MOST_PADDING if self.device.type == "cpu" else self.token_budget  # elsewhere rows go without
        most = most_that_pays(self._model)
        lengths, keys = batch.lengths[rows], together[rows]
        found = split_by_nodes(batch.token_ids[rows], lengths, keys, budget, most) if is_tree else None
        return [rows[part] for part in found or split_by_token_budget(lengths, keys, budget, most_padding)]

    @torch.no_grad()
    def _hidden(self, part: Batch) -> Float[Tensor, "B T H"]:
        """Last hidden states of the policy: [:, t] is that of what comes before token t, 0 of nothing."""
        model, part = self._model, part.to(self.device)
        with self.trainer.precision_plugin.forward_context():
            found = inside(model, lambda: model.base_model(input_ids=part.token_ids, use_cache=False))
        hidden = found.last_hidden_state
        return torch.nn.functional.pad(hidden[:, :-1], (0, 0, 1, 0))

    def _stop_if_not_finite(self, loss: Tensor, logprobs: Float[Tensor, "B T"], part: Batch) -> None:
        """A clip compares with False where a log-probability is NaN and would hide it, so both are looked at."""
        if bool(torch.isfinite(loss)) and bool(torch.isfinite(logprobs).all()):
            return
        name = f"nonfinite_step{self.global_step}{f'_rank{rank()}' if rank() else ''}.pt"
        path = Path(self.trainer.default_root_dir) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        saved = {name: getattr(part, name) for name in ("token_ids", "action_mask", "behaviour_logprobs", "place")}
        torch.save(saved | {"policy_logprobs": logprobs.detach()}, without_link(path))
        what = float(loss) if not bool(torch.isfinite(loss)) else "made of non-finite log-probabilities"
        raise NonFiniteLoss(
            f"the loss is {what} at optimizer update {self.global_step}; its micro-batch is saved in {path}. "
            "Lower model.lr, or look for log-probabilities of -inf in the batch."
        )

    def _updated(
        self, batch: Batch, parts: Sequence[Tensor | None], loss_of: Callable[[Tensor], Tensor], limit: float | None
    ) -> float:
        """One optimizer step by the gradients of all micro-batches; the gradient's norm before it was clipped to the limit.

        `loss_of` takes the rows of a micro-batch; None is an empty one.
        """
        optimizer: Any = self.optimizers()
        optimizer.zero_grad()
        give_back()
        for number, rows in enumerate(parts, start=1):
            # an empty one is a token that weighs nothing: sharded layers are gathered by all ranks or by none
            loss = 0.0 * self._scored(self._model, one_token(batch))[0].sum() if rows is None else loss_of(rows)
            self._backward(loss, last=number == len(parts))
        norm = self._clip(limit)
        optimizer.step()
        self.lr_schedulers().step()  # pyright: ignore
        return norm

    def _backward(self, loss: Tensor, *, last: bool) -> None:
        """Gradients of the sum of all ranks' losses, which the last backward pass of an update adds up over ranks.

        DDP and FSDP2 average gradients; multiplied by the number of ranks their mean is the sum.
        """
        with self._adding_up(last):
            self.manual_backward(loss * num_ranks())

    @contextmanager
    def _adding_up(self, last: bool) -> Iterator[None]:
        strategy = self.trainer.strategy
        if isinstance(self._model, FSDPModule):
            self._model.set_requires_gradient_sync(last)
        elif not last and isinstance(strategy, ParallelStrategy):
            with strategy.block_backward_sync():
                yield
            return
        yield

    def _clip(self, limit: float | None) -> float:
        """Clip the gradient if asked to; its norm over all ranks, before clipping.

        Raises `NonFiniteLoss`, on all ranks, before such a gradient is in the weights, and with them in checkpoints and caches.
        """
        bound = float("inf") if limit is None else limit
        norm = torch.nn.utils.clip_grad_norm_(self._model.parameters(), bound)
        size = float(norm.full_tensor() if isinstance(norm, DTensor) else norm)
        if not math.isfinite(size):
            raise NonFiniteLoss(
                f"the gradient's norm is {size} at optimizer update {self.global_step}; the weights are as before. Lower model.lr."
            )
        return size


def _through(
    model: PreTrainedModel,
    ids: Int[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    tree: RowTree | None,
    *,
    entropy_gradient: bool = False,
) -> tuple[Float[Tensor, "B T"], Float[Tensor, "B T"]]:
    """Log-probabilities and entropies of action tokens, by way of the rows' tree or with their padding."""
    layer = output_layer(model)
    if tree is None:
        with read_only_at(model, predicting(mask)):
            out = model.base_model(input_ids=ids, use_cache=False)
        return action_logprobs(out.last_hidden_state, layer, ids, mask, entropy_gradient=entropy_gradient)
    with read_only_at(model, tree.predicting):
        out = model.base_model(input_ids=tree.token_ids, use_cache=False, **tree.inputs())
    found = action_logprobs(
        out.last_hidden_state, layer, tree.token_ids, tree.wanted, entropy_gradient=entropy_gradient, parent=tree.parent
    )
    logprobs, entropies = (tree.rows(values) * mask for values in found)
    return logprobs, entropies


def _leave_out_dropout(model: nn.Module) -> None:
    """Where a checkpoint's config has some (OPT, GPT-2; Mixtral's noise): the policy that is trained is the one that is sampled."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        for name, value in vars(module).items():
            if ("drop" in name or name == "jitter_noise") and isinstance(value, float):
                setattr(module, name, 0.0)


def _derived_buffers(model: nn.Module) -> list[Tensor]:
    """The floating-point buffers that no state dict holds."""
    return [
        buffer
        for module in model.modules()
        for name, buffer in module.named_buffers(recurse=False)
        if name in module._non_persistent_buffers_set and buffer.is_floating_point()
    ]
