"""A policy made from scratch that speaks in sentences: what real checkpoints read and write, on a laptop.

Prompts, parsers and rewards of the natural protocol were made for language models. This policy trains through all of them; it
knows no more of language than the sentences of its own world.
"""

from collections.abc import Sequence

from tokenizers import Regex, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Split
from tokenizers.pre_tokenizers import Sequence as InTurn
from tokenizers.trainers import BpeTrainer
from transformers import PreTrainedTokenizerFast

from cod_lightning.models.tiny import PAD, TinyPolicy

BEGIN, END = "<|im_start|>", "<|im_end|>"
MOST_PIECES = 4096
"""Of the vocabulary; worlds need about a thousand."""
_WORD = r" ?</?\w+>| ?\p{L}+| ?\d| ?[^\s\p{L}\d]+|\s+"
"""What is merged at most: a tag, a word, a digit, punctuation, each with the space before it; white space."""
_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


class SentencePolicy(TinyPolicy):
    """Qwen3 from scratch over pieces of the sentences of world and context; takes the arguments of `TinyPolicy`.

    Its byte-level BPE reads and writes any text. Each word of those sentences is one piece: with facts of several tokens looking
    them up is hard to learn.
    """

    reads_sentences = True

    def tokenizer(self, words: Sequence[str]) -> PreTrainedTokenizerFast:
        """Trained on these sentences; the same for the same ones, in any order. Without any its pieces are bytes and roles."""
        backend = Tokenizer(BPE())
        split = Split(Regex(_WORD), behavior="isolated")
        backend.pre_tokenizer = InTurn([split, ByteLevel(add_prefix_space=False, use_regex=False)])  # pyright: ignore[reportAttributeAccessIssue]
        backend.decoder = ByteLevelDecoder()  # pyright: ignore[reportAttributeAccessIssue]
        trainer = BpeTrainer(
            vocab_size=MOST_PIECES,
            special_tokens=[PAD, BEGIN, END],
            initial_alphabet=sorted(ByteLevel.alphabet()),
            show_progress=False,
        )
        backend.train_from_iterator([*sorted(set(words)), "system", "user", "assistant"], trainer)
        tokenizer = PreTrainedTokenizerFast(
            tokenizer_object=backend,
            pad_token=PAD,
            eos_token=END,
            additional_special_tokens=[BEGIN],
            clean_up_tokenization_spaces=False,
        )
        tokenizer.chat_template = _TEMPLATE
        return tokenizer
