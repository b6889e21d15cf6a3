"""Texts as vectors of a local encoder, and how near they are to each other."""

from collections import OrderedDict
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModel

from cod_lightning.errors import ConfigError, DataError, check_at_least
from cod_lightning.models.pretrained import read_model, read_tokenizer

_KEY = "data.context.similarity.path"
_MOST_KEPT = 100_000
"""Texts whose vectors are kept."""


class Embeddings:
    """Cosine of two texts' vectors, each the mean of an encoder's last hidden states over its tokens.

    Differs from the retrieval of sentence-transformers: no prompts before texts, and mean pooling whatever the folder asks for.

    Args:
        path: Folder of an encoder with its tokenizer, in Hugging Face's form; nothing is fetched.
        max_tokens: Tokens of a text that are read; the rest is cut off.

    Raises:
        ConfigError: For a folder that holds no such encoder, and for one that cannot read so many tokens.
    """

    def __init__(self, path: str, max_tokens: int = 256) -> None:
        check_at_least("data.context.similarity.max_tokens", max_tokens, 1, "256 is the default.")
        try:
            folder = str(Path(path).resolve(strict=True))  # and no name that is looked for on a hub
            self._tokenizer = read_tokenizer(folder, _KEY)
            self._model = read_model(folder, _KEY, AutoModel, dtype=torch.float32).eval()
        except (OSError, DataError) as error:
            why = " ".join(str(error.__cause__ or error).split())
            expected = f"a folder with an encoder and its tokenizer ({why:.300})"
            raise ConfigError(_KEY, path, expected, "Download one first.") from None
        self.path, self.max_tokens = path, max_tokens
        self._kept: OrderedDict[bytes, np.ndarray] = OrderedDict()
        """By digests, since texts may be of any length."""
        try:
            if not np.isfinite(self._vector("a " * max_tokens)).all():
                raise ValueError("it gives no numbers")
        except Exception as error:  # whatever its class raises
            why = " ".join(str(error).split())
            expected = f"an encoder of {max_tokens} tokens, data.context.similarity.max_tokens ({why:.300})"
            raise ConfigError(_KEY, path, expected, "Lower it, or name another folder.") from error

    def scores(self, entries: tuple, text: Callable[[object], str], query: str) -> np.ndarray:
        """Of each entry's text for the query, in [-1, 1]."""
        vectors = [self._vector(text(entry)) for entry in entries]
        return np.stack(vectors) @ self._vector(query) if vectors else np.zeros(0, dtype=np.float32)

    def _vector(self, text: str) -> np.ndarray:
        """Of length 1; a text alone, so that it does not depend on its neighbours."""
        key = blake2b(text.encode(errors="replace"), digest_size=16).digest()
        if key not in self._kept:
            encoded = self._tokenizer(text or " ", return_tensors="pt", truncation=True, max_length=self.max_tokens)
            with torch.inference_mode():
                states = self._model(input_ids=encoded["input_ids"], attention_mask=encoded["attention_mask"])
            mean = states.last_hidden_state[0].mean(dim=0)
            self._kept[key] = torch.nn.functional.normalize(mean, dim=0).numpy()
            if len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)
        return self._kept[key]
