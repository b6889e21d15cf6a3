"""Weights as files in shared memory, for servers on this host; or on a disk that other hosts see, too."""

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor
from transformers import PreTrainedModel
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import PrefixChange, revert_weight_conversion

from cod_lightning.adapters import is_four_bit, plain_weights, stored_base, write_adapter, write_adapter_config
from cod_lightning.files import scratch_prefix

_READS_INPUT_EMBEDDINGS = {"Gemma2ForCausalLM", "Gemma3nForCausalLM"}
"""Models whose output layer is the input embeddings in vLLM, without a name of its own."""


class CheckpointForm:
    """A model's weights as checkpoints on the hub have them, which is what vLLM reads: renamed and cut; keeps none of them.

    transformers keeps the experts of a mixture in one tensor; in checkpoints each expert has its own, under names of older code.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        known = getattr(model, "_weight_conversions", None)
        if known is None:
            known = get_model_conversion_mapping(model, add_legacy=False)
        self.config = model.config
        self._weight_conversions: list[Any] = [one for one in known if not isinstance(one, PrefixChange)]
        self._left_out = "lm_head.weight" if type(model).__name__ in _READS_INPUT_EMBEDDINGS else None

    def __call__(self, named: Iterable[tuple[str, Tensor]]) -> list[tuple[str, Tensor]]:
        """All weights of the model in the form of checkpoints."""
        weights = {name: tensor.detach() for name, tensor in named if name != self._left_out}
        if self._weight_conversions:
            weights = revert_weight_conversion(self, weights)  # pyright: ignore[reportArgumentType]
        return list(weights.items())


class WeightFolder:
    """The latest weights in Hugging Face's form. Goes with this process; what a killed one left behind, the next one removes.

    Args:
        parent: Where to make it, readable by all, for servers of other users; null is shared memory, for this user alone.
    """

    def __init__(self, parent: str | None = None) -> None:
        base = Path(parent or memory_folder())
        base.mkdir(parents=True, exist_ok=True)
        self.root = Path(tempfile.mkdtemp(prefix=scratch_prefix("weights", str(base)), dir=base))
        if parent:
            self.root.chmod(0o755)
        self.current: Path | None = None
        atexit.register(self.close)

    def write(self, model: PreTrainedModel, weights: Iterable[tuple[str, Tensor]], label: str) -> Path:
        """Replace what is there. Every name has its own bytes, so that tied weights come under both."""
        with self._fresh(label) as folder:
            write_config(model, folder)
            save_file(_apart(CheckpointForm(model)(weights)), folder / "model.safetensors", metadata={"format": "pt"})
        return folder

    def write_base(self, model: PreTrainedModel) -> Path:
        """Replace what is there by the base of a model with an adapter, as it is kept."""
        if not is_four_bit(model):
            return self.write(model, plain_weights(model, merge=False), "start")
        with self._fresh("start") as folder:
            write_four_bit(model, folder)
        return folder

    def write_adapter(self, model: PreTrainedModel, weights: Iterable[tuple[str, Tensor]], label: str) -> Path:
        """Replace what is there by the model's adapter."""
        with self._fresh(label) as folder:
            write_adapter_config(model, folder)
            write_adapter(dict(weights), folder)
        return folder

    @contextmanager
    def _fresh(self, label: str) -> Iterator[Path]:
        """An empty folder in place of the current one; who may read the root may read what is written there, whatever the umask."""
        if self.current is not None:
            shutil.rmtree(self.current, ignore_errors=True)
        self.current = folder = self.root / label.replace(":", "-")
        folder.mkdir()
        yield folder
        for file in folder.iterdir():
            file.chmod(0o644)
        folder.chmod(0o755)

    def close(self) -> None:
        """Remove it all."""
        atexit.unregister(self.close)
        shutil.rmtree(self.root, ignore_errors=True)
        self.current = None


def write_four_bit(model: PreTrainedModel, folder: Path) -> None:
    """A checkpoint of the base in 4 bits, as bitsandbytes writes it."""
    write_config(model, folder, four_bit=True)
    save_file(_apart(stored_base(model).items()), folder / "model.safetensors", metadata={"format": "pt"})


def write_config(model: PreTrainedModel, folder: Path, *, four_bit: bool = False) -> None:
    """The model's config, with the class that vLLM is to look up; whether its weights are in 4 bits, too."""
    config = type(model.config).from_dict(model.config.to_dict())
    if not four_bit:
        config.__dict__.pop("quantization_config", None)
    config.architectures = [type(model).__name__]
    if config.model_type == "cohere2":
        config.sliding_window -= 1  # vLLM 0.32 adds one to it; transformers does not
    config.save_pretrained(folder)


def _apart(weights: Iterable[tuple[str, Tensor]]) -> dict[str, Tensor]:
    seen: set[int] = set()
    named: dict[str, Tensor] = {}
    for name, tensor in weights:
        plain = tensor.detach().to("cpu").contiguous()
        if plain.untyped_storage().data_ptr() in seen or plain.untyped_storage().nbytes() != plain.nbytes:
            plain = plain.clone()
        seen.add(plain.untyped_storage().data_ptr())
        named[name] = plain
    return named


def memory_folder() -> str:
    """The folder whose files are in memory; where there is none, that of temporary files."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else tempfile.gettempdir()
