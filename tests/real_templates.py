"""Chat templates of real model families, re-created from their documented formats, over a tokenizer trained on the spot."""

from functools import cache

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

QWEN3 = (
    "{%- for message in messages %}{%- if message.role == 'assistant' %}"
    "{%- set content = message.content %}{%- if '</think>' in content %}"
    "{%- set content = content.split('</think>')[-1].lstrip('\\n') %}{%- endif %}"
    "{{- '<|im_start|>assistant\\n' + content + '<|im_end|>\\n' }}"
    "{%- else %}{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}{%- endif %}"
    "{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}"
    "{%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}"
    "{%- endif %}"
)
CHATML = (
    "{%- for message in messages %}{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}"
    "{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)
LLAMA3 = (
    "{%- for message in messages %}{{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' }}"
    "{{- message.content | trim }}{{- '<|eot_id|>' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}"
)
_SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]


@cache
def bpe_tokenizer(template: str) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer of 600 tokens; every text round-trips through it."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    corpus = ["Direction 1 moves up. The map: _ O G P. Hints: keep what is useful. <answer>Direction 2</answer>\n"] * 50
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=_SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(corpus, trainer)
    end = "<|im_end|>" if "im_end" in template else "<|eot_id|>"
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token=end,
        pad_token="<|endoftext|>",
        additional_special_tokens=[token for token in _SPECIAL if token not in (end, "<|endoftext|>")],
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = template
    return tokenizer
