"""Tokenizers that only look words up, as the tiny policy's does: a dictionary answers in a third of their time."""

import json
from typing import Any


def word_ids(backend: Any) -> dict[str, int]:
    """The id of every word, of a backend that splits at white space, looks words up, and does nothing else; of others nothing.

    Words of a text with single spaces between them have these ids, if all of them are here.
    """
    if backend is None:
        return {}
    made = json.loads(backend.to_str())
    looks_up = made["model"]["type"] == "WordLevel" and made["pre_tokenizer"] == {"type": "WhitespaceSplit"}
    if not looks_up or made["normalizer"] or made["truncation"] or made["padding"]:
        return {}
    known: dict[str, int] = backend.get_vocab(with_added_tokens=True)
    added = [token["content"] for token in made["added_tokens"]]  # cut out wherever they are, within words, too
    return {word: i for word, i in known.items() if not any(token in word for token in added if token != word)}
