"""What will sit in a device's memory during training, by arithmetic on a model that has shapes but no weights.

Estimates of libraries, such as accelerate's, have weights and moments, but no rollout, no rows as this project packs them.
"""

from dataclasses import dataclass

from cod_lightning.forward.attention import MOST_SCORES
from cod_lightning.forward.row_tree import MOST_ALIKE
from cod_lightning.models.sizes import ModelSizes, RunSizes

GIB = 2**30
_NF4 = 0.5 + 1 / 64 + 4 / (64 * 256)
"""Bytes of a weight in NF4 with double quantisation: 4 bits, 8 bits for 64 of them, a float32 for 256 of those."""
_MOMENT_8BIT = 1 + 4 / 256
"""Bytes of a moment in 8 bits: and a float32 for 256 of them."""
_FEWER = "choose model.policy=QLoRAPolicy, which keeps linear layers in 4 bits"
_SHARED = "choose model.policy=LoRAPolicy or model.policy=QLoRAPolicy, whose engine shares the base"
_CONTEXT = 0.8 * GIB
"""What a CUDA context, its kernels and the allocator's gaps take. A guess."""
ROLLOUT, TRAINING, STEP = "rollout", "training", "step"
"""Parts of an iteration: turns are sampled; passes forward and backward; the optimizer steps."""
ALWAYS = (ROLLOUT, TRAINING, STEP)


@dataclass(frozen=True)
class MemoryItem:
    """One line of the plan."""

    name: str
    size: float
    """bytes"""
    how: str
    """How it comes about."""
    key: str
    """What changes it."""
    sure: bool = True
    """Exact arithmetic; else an estimate, or a bound that a run may stay under."""
    during: tuple[str, ...] = ALWAYS
    """When it is there."""


@dataclass(frozen=True)
class MemoryPlan:
    """The plan of one process on one device."""

    items: tuple[MemoryItem, ...]
    available: float
    """bytes"""
    device: str

    @property
    def total(self) -> float:
        """Bytes at the peak of an iteration."""
        return self.at(self.peak)

    @property
    def peak(self) -> str:
        """The part of an iteration that takes most."""
        return max(ALWAYS, key=self.at)

    def at(self, part: str) -> float:
        """Bytes during that part of an iteration."""
        return sum(item.size for item in self.items if part in item.during)

    @property
    def least(self) -> float:
        """Bytes that are needed whatever the tokens do."""
        return max(sum(item.size for item in self.items if item.sure and part in item.during) for part in ALWAYS)

    @property
    def fits(self) -> bool:
        """Whether the whole plan does."""
        return self.total <= self.available

    @property
    def impossible(self) -> bool:
        """Whether not even weights, gradients and moments do."""
        return self.least > self.available

    def advice(self) -> list[str]:
        """What to change, the largest item first; empty where the plan fits."""
        if self.fits:
            return []
        short = (self.total - self.available) / GIB
        lines = [
            f"  {item.name}, {item.size / GIB:.1f} GiB: {item.key}"
            for item in sorted(self.items, key=lambda item: -item.size)
            if item.key and item.size > 0.02 * self.total and self.peak in item.during
        ]
        return [f"{short:.1f} GiB too much in {self.peak}; from the largest item down:", *lines]


def plan_memory(model: ModelSizes, run: RunSizes, available: float, device: str) -> MemoryPlan:
    """Each item by its formula."""
    adapter = model.num_adapter_weights
    plain, each = model.num_weights * run.weight_bytes, f"{run.weight_bytes} bytes"
    items = [
        MemoryItem(
            "weights",
            base_bytes(model, run.weight_bytes, four_bit=run.four_bit) / run.num_shards,
            f"linear layers in NF4, the rest {each}" if run.four_bit else f"{each} each{_of(run.num_shards)}",
            "" if run.four_bit else _FEWER,
        ),
        MemoryItem(
            "adapter", 4 * adapter / run.num_shards, f"{adapter / 1e6:.1f} M in float32", "lower model.policy.rank"
        ),
        *_optimizer(model, run),
        MemoryItem(
            "reference",
            plain / run.num_shards if run.has_reference else 0,
            "frozen copy of the initial policy",
            "leave KL out of model.terms, or train an adapter, which needs no copy",
        ),
        MemoryItem("scorers", run.scorer_bytes, "weights of model.scorers", "choose smaller ones, or a vLLM server"),
        *_sharded(model, run, adapter or model.num_weights),
        *_engine(model, run),
        MemoryItem(
            "log-prob scores",
            run.scores_bytes,
            "log-softmax over the vocabulary",
            "lower model.token_budget",
            False,
            (TRAINING,),
        ),
        MemoryItem(
            "activations",
            activations(model, run, run.num_tokens),
            f"{run.num_tokens} tokens" + (", checkpointed" if run.gradient_checkpointing else ""),
            "lower model.token_budget and model.policy.window"
            + ("" if run.gradient_checkpointing else ", or set model.policy.gradient_checkpointing"),
            False,
            (TRAINING,),
        ),
    ]
    if run.on_gpu:
        items.append(MemoryItem("CUDA itself", _CONTEXT, "context, kernels, gaps; a guess", "", False))
    else:
        of_each = 4 if run.activation_bytes == 4 else 4 + run.activation_bytes  # softmax in float32, and rounded
        scores = of_each * min(model.num_heads * run.longest_row, MOST_SCORES)
        layers = 1 if run.gradient_checkpointing else model.num_layers
        items.append(
            MemoryItem(
                "attention scores",
                run.num_tokens * layers * scores,
                "of rows short enough to write them out",
                "lower model.token_budget",
                False,
                (TRAINING,),
            )
        )
        gaps = (0.6 if adapter else 0.1) * activations(model, run, run.num_tokens)
        items.append(MemoryItem("gaps between them", gaps, "freed memory is kept; measured", "", False, (TRAINING,)))
        items.append(MemoryItem("Python and libraries", run.own_bytes, "as this process is now", "", False))
    return MemoryPlan(tuple(item for item in items if item.size > 0), available, device)


def _of(num_shards: int) -> str:
    return f", 1/{num_shards} of them" if num_shards > 1 else ""


def _optimizer(model: ModelSizes, run: RunSizes) -> list[MemoryItem]:
    """Gradients, moments, and what a step copies."""
    adapter = model.num_adapter_weights
    trained, trained_bytes = (adapter, 4) if adapter else (model.num_weights, run.weight_bytes)
    whole_moment = 4 if run.float32_moments else trained_bytes
    moment = _MOMENT_8BIT if run.eight_bit_moments else whole_moment
    gradient = trained_bytes if run.gradient_bytes is None else run.gradient_bytes
    stepped = min(trained / run.num_shards, run.step_slice or trained)
    return [
        MemoryItem(
            "gradients",
            trained * gradient / run.num_shards,
            f"{trained / 1e6:.1f} M x {gradient} bytes{_of(run.num_shards)}",
            ""
            if adapter
            else "choose model.policy=LoRAPolicy or model.policy=QLoRAPolicy, which train an adapter only",
        ),
        MemoryItem(
            "optimizer",
            trained * 2 * moment / run.num_shards,
            f"2 moments of {'8 bits' if run.eight_bit_moments else f'{whole_moment} bytes'}{_of(run.num_shards)}",
            "" if run.eight_bit_moments else "set model.optimizer to adamw_8bit or paged_adamw_8bit",
        ),
        MemoryItem(
            "optimizer's copies",
            run.step_bytes * stepped,
            f"temporary, {run.step_bytes} bytes x {stepped / 1e6:.1f} M",
            "",
            False,
            (STEP,),
        ),
    ]


def _sharded(model: ModelSizes, run: RunSizes, trained: int) -> list[MemoryItem]:
    """What FSDP2 holds whole on each rank while an update goes through its micro-batches.

    Between micro-batches gradients are not shared out: each rank adds up whole ones, in float32 (`_FSDPParam`'s
    `unsharded_accumulated_grad`). Embeddings and output layer stay whole through forward and backward, layers two at a time.
    """
    if run.num_shards == 1:
        return []
    layers = model.num_linear_weights / model.num_layers
    gathered = (model.num_weights - model.num_linear_weights + 2 * layers) * run.activation_bytes
    return [
        MemoryItem(
            "gradients of micro-batches",
            4 * trained,
            f"{trained / 1e6:.1f} M x 4 bytes, whole until the last one",
            "choose model.policy=LoRAPolicy or model.policy=QLoRAPolicy",
            during=(TRAINING,),
        ),
        MemoryItem("gathered weights", gathered, "both ends and two layers, whole", "", False, (TRAINING,)),
    ]


def base_bytes(model: ModelSizes, weight_bytes: int, *, four_bit: bool) -> float:
    """Of all weights but an adapter's; `four_bit` has the linear layers in NF4."""
    small = model.num_linear_weights if four_bit else 0
    return small * _NF4 + (model.num_weights - small) * weight_bytes


def _engine(model: ModelSizes, run: RunSizes) -> list[MemoryItem]:
    during = (ROLLOUT,) if run.engine_sleeps else ALWAYS
    if run.engine_bytes is not None:
        text, keys = "its share: weights and cache", "gpu_memory_utilization or kv_cache_gb"
        sleep = "" if run.engine_sleeps else "; set data.engine.sleep"
        return [MemoryItem("engine", run.engine_bytes, text, f"lower data.engine.{keys}{sleep}", during=during)]
    weight_bytes = run.weight_bytes if run.engine_weight_bytes is None else run.engine_weight_bytes
    copied = model.num_weights * weight_bytes if run.engine_copies_base else 0
    shared = "" if not copied or model.num_adapter_weights else _SHARED
    each = 2 * model.num_layers * model.key_value * weight_bytes  # keys and values of a token
    further = max(0, run.num_cached_at_end - run.num_cached_tokens)
    lower = "lower data.engine.max_dialogues or model.policy.window"
    return [
        MemoryItem("engine's copy", copied + 4 * model.num_adapter_weights, "what it decodes with", shared),
        MemoryItem(
            "keys and values",
            run.num_cached_tokens * each,
            f"{run.num_cached_tokens} tokens of {each / 1024:.0f} KiB",
            lower,
            False,
        ),
        MemoryItem("those of suites", further * each, f"{further} tokens more at the end", lower, False, (ROLLOUT,)),
        MemoryItem(
            "engine's work",
            run.prefill_tokens * (3 * model.intermediate + 4 * model.hidden) * weight_bytes,
            f"a pass of {run.prefill_tokens} tokens",
            "lower data.engine.prefill_tokens",
            False,
            (ROLLOUT,),
        ),
    ]


def activations(model: ModelSizes, run: RunSizes, num_tokens: int) -> float:
    """Bytes that a forward pass over so many tokens leaves for the backward pass: Llama and Qwen families, fused attention.

    With checkpointing each layer's input, and one layer's worth while that layer is gone through again. Tests compare a layer
    with what autograd saves.
    """
    layer = _layer_activations(model, run)
    kept = max(run.weight_bytes, run.activation_bytes) * model.hidden
    per_token = model.num_layers * kept + layer if run.gradient_checkpointing else model.num_layers * layer
    copies = 0.0
    if run.autocast and run.weight_bytes > run.activation_bytes:  # weights are cast, and the casts are kept
        copies = run.activation_bytes * model.num_linear_weights
    return num_tokens * per_token + copies / (model.num_layers if run.gradient_checkpointing else 1)


def _layer_activations(model: ModelSizes, run: RunSizes) -> float:
    """Bytes of a token in a layer.

    Inputs of linear layers; queries, keys and values before and after norm and rotation; gate, up and their product. In half
    precision norms keep their input in float32. Over a frozen base weights ask for nothing, but each adapted layer keeps its own
    input: in float32, which the adapter is in, except under autocast. Where rows go through the model as a tree, the output of
    attention is there twice, in its rectangle and out of it, and each row has a copy of the keys and values that it shares.
    """
    h, q, kv, i = model.hidden, model.query, model.key_value, model.intermediate
    frozen = model.num_adapter_weights > 0
    copies = q + 2 * (MOST_ALIKE - 1) * kv if run.shares else 0
    size = run.activation_bytes * (4 * h + 3 * q + 3 * kv + 4 * i + copies + (0 if frozen else 2 * h + q + kv))
    if run.activation_bytes == 2:
        size += 2 * (2 * h + q + kv)
        if frozen:
            size += (2 if run.autocast else 4) * (5 * h + q + i) - 2 * (2 * h + i)
        if run.autocast and run.weight_bytes == 4:
            size += 8 * h
    return size
