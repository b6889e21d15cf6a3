"""A tokenizer in bytes, which needs no model and loses nothing: for scripted players, and for models behind an endpoint."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_TEMPLATE = (
    "{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content'] + '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def byte_tokenizer() -> "PreTrainedTokenizerFast":
    """One token for each byte, and one for each role; any text survives encoding and decoding.

    >>> tokenizer = byte_tokenizer()
    >>> tokenizer.decode(tokenizer.encode("caf\\u00e9 1=up"))
    'café 1=up'
    """
    from tokenizers import Tokenizer
    from tokenizers.decoders import ByteLevel as ByteLevelDecoder
    from tokenizers.models import BPE
    from tokenizers.pre_tokenizers import ByteLevel
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(BPE({letter: i for i, letter in enumerate(sorted(ByteLevel.alphabet()))}, []))
    backend.pre_tokenizer = ByteLevel(add_prefix_space=False, use_regex=False)  # pyright: ignore
    backend.decoder = ByteLevelDecoder()  # pyright: ignore
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token="<|end|>",
        pad_token="<|pad|>",
        additional_special_tokens=["<|system|>", "<|user|>", "<|assistant|>"],
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = _TEMPLATE
    return tokenizer
