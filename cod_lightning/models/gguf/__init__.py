"""Checkpoints in GGUF, the format of llama.cpp: read once, then plain folders in Hugging Face's form."""

from typing import TYPE_CHECKING

from cod_lightning.lazy import lazily

if TYPE_CHECKING:
    from cod_lightning.models.gguf.cache import checkpoint_folder as checkpoint_folder
    from cod_lightning.models.gguf.cache import gguf_file as gguf_file

__getattr__ = lazily(
    __name__,
    {
        "cache": "checkpoint_folder gguf_file",
    },
)
