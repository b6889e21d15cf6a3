"""Faults of a weight sync, planted in an engine that is otherwise sound, and trainings in which they have to show."""

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from tempfile import mkdtemp
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from cod_lightning.adapters import ADAPTER, stored_base, synced_weights
from cod_lightning.callbacks import WeightSync
from cod_lightning.engines.decoder import Decoder
from cod_lightning.engines.transformers import TransformersEngine
from cod_lightning.errors import EngineFailure
from cod_lightning.models import LoRAPolicy, QLoRAPolicy, TinyPolicy
from cod_lightning.rollout.runner import RolloutRunner
from tests.stubs import WordWorld

Named = list[tuple[str, Tensor]]
WHOLE, ADAPTERS = ("float32", "bfloat16", "bfloat16 autocast"), ("LoRA", "LoRA on bfloat16", "NF4")
PRECISIONS = (*WHOLE, *ADAPTERS)
"""Whole weights in float32, in bfloat16, in float32 under autocast; adapters in float32 over bases of three precisions."""


class Planted(TransformersEngine):
    """Has the first sync's weights whole, and the fault from the second on."""

    fault: "Fault"
    seen_through = True
    """Whether its tensors can be looked at, as those of an engine of ours; else it is known by what it samples alone."""

    def __init__(self) -> None:
        super().__init__()
        self.first: dict[str, Tensor] = {}
        self.before: dict[str, Tensor] = {}

    def held(self) -> dict[str, Tensor]:
        return super().held() if self.seen_through else {}

    def acting_scales(self) -> Any:
        return super().acting_scales() if self.seen_through and self.takes_adapters else None

    def update_weights(self, weights: Iterable[tuple[str, Tensor]], policy_version: int) -> None:
        named = [(name, tensor.detach()) for name, tensor in weights]
        now = {name: tensor.clone() for name, tensor in named}
        if self.first:
            named = self.fault.weights(self, named)
        decoder = self._bound()
        known = decoder._openings
        super().update_weights(named, policy_version)
        if self.fault.keeps_prefixes:
            decoder._openings = known
        if self.first:
            self.fault.afterwards(self)
        self.first, self.before = self.first or now, now

    def wake(self, part: Any) -> None:
        if part == "kv_cache" and self.first and self.policy_version > 1:
            self.fault.woken(self)

    def bind(self, model: Any, *given: Any, **named: Any) -> None:
        self.trained = model
        if self.fault.merged:
            self.takes_adapters = False
            model = AutoModelForCausalLM.from_pretrained(_base()[0], dtype=model.dtype)
        super().bind(model, *given, **named)
        decoder = self._bound()
        decoder._keep_pumping = partial(self._keep_pumping, decoder, decoder._keep_pumping)

    def _keep_pumping(self, decoder: Decoder, keep_pumping: Callable[[Any], None], loop: Any) -> None:
        known = decoder._openings
        keep_pumping(loop)
        if self.fault.keeps_prefixes:
            decoder._openings = known


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What a sync does wrong."""

    name: str
    source: str = "own"
    weights: Callable[[Planted, Named], Named] = lambda _, named: named
    afterwards: Callable[[Planted], None] = lambda _: None
    woken: Callable[[Planted], None] = lambda _: None
    keeps_prefixes: bool = False
    merged: bool = False
    """Whether the engine serves a base in full and is sent all weights with the adapter merged in."""
    of: tuple[str, ...] = PRECISIONS


def _each(change: Callable[[Planted, str, Tensor], Tensor]) -> Callable[[Planted, Named], Named]:
    return lambda engine, named: [(name, change(engine, name, tensor)) for name, tensor in named]


def _row(engine: Planted, name: str, tensor: Tensor) -> Tensor:
    if not ("embed_tokens" in name or "lm_head" in name or name.endswith("0.self_attn.q_proj.lora_B.default.weight")):
        return tensor
    changed = tensor.clone()
    changed[7] = tensor[8]
    return changed


def _half(engine: Planted, name: str, tensor: Tensor) -> Tensor:
    if "0.self_attn.q_proj" not in name:
        return tensor
    half = len(tensor) // 2
    return torch.cat([tensor[:half], engine.before[name][half:]])


def _swapped(engine: Planted, named: Named) -> Named:
    by_name = dict(named)
    other = {"layers.0.": "layers.1.", "layers.1.": "layers.0."}
    return [(n, by_name[next((n.replace(a, b) for a, b in other.items() if a in n), n)]) for n, _ in named]


def _transposed(engine: Planted, name: str, tensor: Tensor) -> Tensor:
    if "1.self_attn.o_proj" not in name:
        return tensor
    return tensor.T if tensor.shape[0] == tensor.shape[1] else tensor.T.reshape(tensor.shape)


def _head(engine: Planted, name: str, tensor: Tensor) -> Tensor:
    return engine.before[name] if "lm_head" in name else tensor


def _gate_for_up(engine: Planted, named: Named) -> Named:
    by_name = dict(named)
    return [(name, by_name[name.replace("up_proj", "gate_proj")]) for name, _ in named]


def _layers(engine: Planted) -> Iterable[Any]:
    return (m for m in engine._bound().model.modules() if isinstance(getattr(m, "lora_A", None), torch.nn.ModuleDict))


def _off(engine: Planted) -> None:
    for layer in _layers(engine):
        layer.enable_adapters(False)


def _twice(engine: Planted) -> None:
    for layer in _layers(engine):
        layer.scaling[ADAPTER] = 4.0


def _aliased(engine: Planted, named: Named) -> Named:
    for name, tensor in named:
        if "lora_B" in name:
            tensor.mul_(2.0)  # alpha / rank, in the very tensors that are trained
    return named


def _packed(engine: Planted, named: Named) -> Named:
    bytes_of = stored_base(engine.trained)
    return [(name, bytes_of.get(name, tensor)) for name, tensor in named]


def _codes(engine: Planted, named: Named) -> Named:
    """The two codes of each byte where the weights they stand for should be."""
    found = []
    for (name, stored), (_, tensor) in zip(_packed(engine, named), named, strict=True):
        packed = stored.dtype == torch.uint8
        codes = torch.stack([stored >> 4, stored & 15], dim=-1).reshape(tensor.shape) if packed else stored
        found.append((name, codes.to(tensor.dtype)))
    return found


@torch.inference_mode()
def _without_memory(engine: Planted) -> None:
    cache = engine._bound()._cache
    for store in (*cache._keys, *cache._values):
        store.zero_()


def _first_again(engine: Planted) -> None:
    own = dict(engine._bound().model.named_parameters(remove_duplicate=False))
    with torch.no_grad():
        for name, tensor in engine.first.items():
            own[name].copy_(tensor)


FAULTS = (
    Fault(
        name="the adapter is never delivered, the initial weights are",
        source="verl #7495",
        weights=_each(lambda engine, name, tensor: engine.first[name]),
    ),
    Fault(
        name="neither weights nor adapter arrive, the base samples",
        source="unsloth #8701",
        weights=_each(lambda engine, name, tensor: engine.first[name]),
        afterwards=_off,
        of=ADAPTERS,
    ),
    Fault(name="the adapter binds to no layer", source="verl-omni #552", afterwards=_off, of=ADAPTERS),
    Fault(name="up_proj gets what belongs to gate_proj", source="unsloth-zoo #941, 1", weights=_gate_for_up),
    Fault(
        name="scaled in place in tensors shared with training",
        source="unsloth-zoo #941, 2",
        weights=_aliased,
        of=ADAPTERS,
    ),
    Fault(name="keys and values of earlier weights are found again", source="vllm #42125", keeps_prefixes=True),
    Fault(
        name="prefixes are found again whose keys and values a sleep gave back",
        source="vllm #17103",
        keeps_prefixes=True,
        woken=_without_memory,
    ),
    Fault(
        name="packed 4-bit bytes are sent to an engine that serves numbers",
        source="trl #4973",
        weights=_packed,
        merged=True,
        of=("NF4",),
    ),
    Fault(name="4-bit codes are taken for numbers", weights=_codes, merged=True, of=("NF4",)),
    Fault(name="woken with the weights from disk", source="trl #5312", woken=_first_again),
    Fault(
        name="one layer stale",
        weights=_each(lambda engine, name, tensor: engine.before[name] if "layers.1." in name else tensor),
    ),
    Fault(name="one row wrong", weights=_each(_row)),
    Fault(
        name="matrices off by 1 %", weights=_each(lambda _, name, tensor: tensor * 1.01 if tensor.ndim == 2 else tensor)
    ),
    Fault(
        name="the adapter is never applied",
        source="ms-swift #9855",
        weights=_each(lambda _, name, tensor: torch.zeros_like(tensor) if "lora_B" in name else tensor),
        of=ADAPTERS,
    ),
    Fault(name="the adapter is scaled wrongly", afterwards=_twice, of=ADAPTERS),
    Fault(name="two layers swapped", weights=_swapped),
    Fault(name="the tied head is not updated", weights=_each(_head), of=WHOLE),
    Fault(name="one matrix transposed", weights=_each(_transposed)),
    Fault(name="half of a fused matrix stale", weights=_each(_half)),
    Fault(
        name="rounded to another precision",
        weights=_each(lambda _, name, tensor: tensor.to(torch.float16).to(tensor.dtype)),
    ),
    Fault(name="always one sync behind", weights=_each(lambda engine, name, tensor: engine.before[name])),
)
SOUND, SOUND_MERGED = Fault(name="none"), Fault(name="none, merged", merged=True)


@cache
def _base() -> tuple[Path, Any]:
    """A folder with a tiny checkpoint of two layers."""
    torch.manual_seed(0)
    policy = TinyPolicy(hidden_size=64, num_layers=2, num_heads=2, num_kv_heads=1, intermediate_size=128)
    tokenizer = policy.tokenizer(WordWorld().words())
    model, folder = policy.model(tokenizer), Path(mkdtemp(prefix="planted-syncs-"))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder, tokenizer


def policy_in(precision: str) -> Any:
    """The model that is trained."""
    folder, tokenizer = _base()
    if precision == "NF4":
        return QLoRAPolicy(str(folder), rank=4, alpha=8, window=96).model(tokenizer)
    if "LoRA" in precision:
        dtype = "bfloat16" if "bfloat16" in precision else "float32"
        return LoRAPolicy(str(folder), rank=4, alpha=8, dtype=dtype, window=96).model(tokenizer)
    torch.manual_seed(0)
    model = TinyPolicy(hidden_size=64, num_layers=2, num_heads=2, num_kv_heads=1, intermediate_size=128).model(
        tokenizer
    )
    return model.to(torch.bfloat16) if precision == "bfloat16" else model  # pyright: ignore


class Run:
    """Syncs between updates that learn to say one token of any random text less."""

    def __init__(self, precision: str, fault: Fault, *, seen_through: bool = True, lr: float = 1e-3) -> None:
        torch.manual_seed(1)
        self.model = policy_in(precision)
        self.engine = Planted()
        self.engine.fault, self.engine.seen_through = fault, seen_through
        autocast = partial(torch.autocast, "cpu", torch.bfloat16) if "autocast" in precision else nullcontext
        runner = RolloutRunner(self.engine)
        plugin = SimpleNamespace(forward_context=autocast)
        self.trainer: Any = SimpleNamespace(
            global_step=0, datamodule=SimpleNamespace(runner=runner), precision_plugin=plugin
        )
        self.module: Any = SimpleNamespace(
            model=self.model,
            policy=SimpleNamespace(window=96),
            stop_ids=frozenset(),
            plain_model=lambda: self.model,
            synced_weights=lambda adapter: synced_weights(self.model, adapter=adapter),
        )
        self.sync = WeightSync()
        trained = [weight for weight in self.model.parameters() if weight.requires_grad]
        self.optimizer = torch.optim.AdamW(trained, lr=lr)

    def __call__(self, num_syncs: int) -> tuple[int, str]:
        """At which sync it stopped, and what was said; 0 where it did not."""
        vocabulary = self.model.get_input_embeddings().weight.shape[0]
        for number in range(1, num_syncs + 1):
            try:
                self.sync._sync(self.trainer, self.module)
            except EngineFailure as error:
                return number, str(error)
            for _ in range(4):
                ids = torch.randint(vocabulary, (4, 24))
                logits = self.model(input_ids=ids).logits.float()
                self.optimizer.zero_grad()
                torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten()).backward()
                self.optimizer.step()
        return 0, ""
