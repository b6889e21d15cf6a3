"""What of a model and of a run decides the memory that training takes."""

from dataclasses import dataclass

from torch import nn
from transformers import PreTrainedModel

from cod_lightning.adapters import is_adapter


@dataclass(frozen=True, kw_only=True)
class ModelSizes:
    """A model's numbers of weights and widths."""

    num_weights: int
    num_linear_weights: int
    """Of the linear layers but the output layer: those that NF4 stores in 4 bits."""
    num_adapter_weights: int
    num_layers: int
    hidden: int
    num_heads: int
    """Query heads."""
    query: int
    """Query heads times their width."""
    key_value: int
    """Key-value heads times their width."""
    intermediate: int
    vocabulary: int


@dataclass(frozen=True, kw_only=True)
class RunSizes:
    """What of a run decides its memory."""

    weight_bytes: int
    """Of a weight that is not in 4 bits: 2 or 4."""
    activation_bytes: int
    autocast: bool = False
    """Whether `trainer.precision` is a mixed one."""
    four_bit: bool = False
    eight_bit_moments: bool = False
    float32_moments: bool = False
    """Whether moments are in float32 whatever the weights are in."""
    gradient_bytes: int | None = None
    """Of a gradient between two micro-batches; None: as wide as the weight."""
    step_bytes: int = 0
    """Of a trained weight while the optimizer steps: temporary copies, of this rank's share."""
    step_slice: int | None = None
    """Trained weights that the optimizer copies at a time; None: all."""
    has_reference: bool = False
    """Whether a frozen copy of the initial policy is kept."""
    scorer_bytes: int = 0
    """Of the weights of further models in this process, whose log-probs loss terms need."""
    gradient_checkpointing: bool = False
    num_tokens: int
    """That a micro-batch puts through the model, about."""
    longest_row: int = 0
    """Tokens of it."""
    shares: bool = True
    """Whether rows share what goes through the model; attention has copies of their keys and values, up to `MOST_ALIKE` of one."""
    scores_bytes: int
    """Of the log-probs of a micro-batch: all kept, or a chunk's."""
    engine_copies_base: bool = True
    """Whether the engine has base weights of its own."""
    engine_weight_bytes: int | None = None
    """Of a weight there, and of a number of its keys and values; None: `weight_bytes`."""
    engine_sleeps: bool = False
    """Whether the engine gives its memory back outside of rollouts."""
    num_cached_tokens: int = 0
    """Keys and values that the engine keeps while there is training, in tokens, about."""
    num_cached_at_end: int = 0
    """And when suites are played at the end, if there are more."""
    prefill_tokens: int = 0
    """Of one pass of that engine."""
    engine_bytes: int | None = None
    """All that the engine takes, where its settings fix it."""
    num_shards: int = 1
    """Processes over which weights, gradients and moments are divided (FSDP2)."""
    on_gpu: bool = True
    own_bytes: int = 0
    """What the process held before the model was made, in RAM."""


def sizes_of(model: PreTrainedModel, rank: int = 0, targets: list[str] | None = None) -> ModelSizes:
    """Of a model that may be on the meta device, for an adapter of that rank on those layers (None: all but the output layer)."""
    config = model.config.get_text_config()
    heads = config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // heads
    output = model.get_output_embeddings()
    num_linear = num_adapter = 0
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear) and module is not output and not is_adapter(f"{name}."):
            num_linear += module.in_features * module.out_features
            if targets is None or name.rpartition(".")[2] in targets:
                num_adapter += rank * (module.in_features + module.out_features)
    return ModelSizes(
        num_weights=sum(weight.numel() for weight in model.parameters()),
        num_linear_weights=num_linear,
        num_adapter_weights=num_adapter,
        num_layers=config.num_hidden_layers,
        hidden=config.hidden_size,
        num_heads=heads,
        query=heads * width,
        key_value=(getattr(config, "num_key_value_heads", None) or heads) * width,
        intermediate=config.intermediate_size,
        vocabulary=config.vocab_size,
    )
