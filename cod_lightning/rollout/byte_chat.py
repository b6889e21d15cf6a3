"""A chat in bytes, for scripted players."""

from functools import lru_cache

from cod_lightning.byte_tokenizer import byte_tokenizer
from cod_lightning.rollout.chat import Chat


@lru_cache(maxsize=1)
def byte_chat() -> Chat:
    """The chat of the `byte_tokenizer`.

    >>> chat = byte_chat()
    >>> chat.decode(chat.encode("caf\\u00e9 1=up"))
    'café 1=up'
    """
    return Chat(byte_tokenizer())
