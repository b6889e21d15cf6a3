"""Chat templates of real model families, re-created from their documented formats, over a tokenizer trained on the spot."""

from functools import cache

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
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


_GEMMA = (
    "{{ bos_token }}{%- for m in messages %}{%- if m.role == 'system' %}"
    "{{- '<start_of_turn>user\\n' + m.content + '<end_of_turn>\\n' }}"
    "{%- else %}{{- '<start_of_turn>' + ('model' if m.role == 'assistant' else 'user') + '\\n' + (m.content | trim) + "
    "'<end_of_turn>\\n' }}{%- endif %}{%- endfor %}{%- if add_generation_prompt %}{{- '<start_of_turn>model\\n' }}{%- endif %}"
)
_LLAMA2 = (
    "{%- for m in messages %}{%- if m.role == 'system' %}{{- '<<SYS>>\\n' + m.content + '\\n<</SYS>>\\n\\n' }}"
    "{%- elif m.role == 'user' %}{{- '<s>[INST] ' + m.content + ' [/INST]' }}"
    "{%- else %}{{- ' ' + m.content + ' </s>' }}{%- endif %}{%- endfor %}"
)
_PHI3 = (
    "{%- for m in messages %}{{- '<|' + m.role + '|>\\n' + m.content + '<|end|>\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|assistant|>\\n' }}{%- endif %}"
)
_DEEPSEEK = (
    "{{ '<｜begin▁of▁sentence｜>' }}{%- for m in messages %}{%- if m.role == 'system' %}{{- m.content }}"
    "{%- elif m.role == 'user' %}{{- '<｜User｜>' + m.content }}"
    "{%- else %}{{- '<｜Assistant｜>' + m.content.split('</think>')[-1] + '<｜end▁of▁sentence｜>' }}{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<｜Assistant｜><think>\\n' }}{%- endif %}"
)
_VICUNA = (
    "{%- for m in messages %}{%- if m.role == 'system' %}{{- m.content + ' ' }}{%- elif m.role == 'user' %}"
    "{{- 'USER: ' + m.content + ' ' }}{%- else %}{{- 'ASSISTANT: ' + m.content + '</s>' }}{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- 'ASSISTANT:' }}{%- endif %}"
)
_DELETING = CHATML.replace("message.content", "message.content.replace('/think', '')")
EIGHT = {
    "qwen3": (QWEN3, ("<|im_start|>", "<|im_end|>"), ("<think>", "</think>")),
    "llama3": (LLAMA3, ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"), ()),
    "gemma": (_GEMMA, ("<bos>", "<start_of_turn>", "<end_of_turn>"), ()),
    "llama2": (_LLAMA2, ("<s>", "</s>"), ()),
    "phi3": (_PHI3, ("<|system|>", "<|user|>", "<|assistant|>", "<|end|>"), ()),
    "deepseek": (
        _DEEPSEEK,
        ("<｜begin▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>"),
        ("<think>", "</think>"),
    ),
    "vicuna": (_VICUNA, ("<s>", "</s>"), ()),
    "deleting": (_DELETING, ("<|im_start|>", "<|im_end|>"), ()),
}
"""Of each family: its template, its special tokens (the end of a turn comes last), and tokens that are added but not special."""
IN_LETTERS = {"llama2": ("[INST]", "[/INST]", "<<SYS>>"), "vicuna": ("USER:", "ASSISTANT:")}
"""What stands between messages without being a token."""


def family_tokenizer(family: str, normaliser: normalizers.Normalizer | None = None) -> PreTrainedTokenizerFast:
    """A byte-level tokenizer with a family's template and tokens; `normaliser` also acts on text in which tokens are looked for."""
    template, special, added = (EIGHT | TOOLS)[family]
    backend = Tokenizer(
        models.BPE(vocab={letter: i for i, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}, merges=[])
    )
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    if normaliser is not None:
        backend.normalizer = normaliser
    normalised = normaliser is not None
    backend.add_special_tokens([AddedToken(token, normalized=normalised) for token in special])
    backend.add_tokens([AddedToken(token, normalized=normalised) for token in added])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token=special[-1], bos_token=special[0], clean_up_tokenization_spaces=False
    )
    tokenizer.chat_template = template
    return tokenizer


QWEN3_TOOLS = (
    "{%- if tools %}{{- '<|im_start|>system\\n' }}{%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}"
    "{%- endif %}{{- '# Tools\\n<tools>' }}{%- for tool in tools %}{{- '\\n' }}{{- tool | tojson }}{%- endfor %}"
    '{{- \'\\n</tools>\\nAnswer with <tool_call>\\n{"name": NAME, "arguments": OBJECT}\\n</tool_call><|im_end|>\\n\' }}'
    "{%- elif messages[0].role == 'system' %}{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}{%- endif %}"
    "{%- for message in messages %}{%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}"
    "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}"
    "{%- elif message.role == 'assistant' %}{{- '<|im_start|>assistant\\n' + message.content }}"
    "{%- for call in message.tool_calls or [] %}{%- if message.content or not loop.first %}{{- '\\n' }}{%- endif %}"
    '{{- \'<tool_call>\\n{"name": "\' + call.function.name + \'", "arguments": \' }}{{- call.function.arguments | tojson }}'
    "{{- '}\\n</tool_call>' }}{%- endfor %}{{- '<|im_end|>\\n' }}"
    "{%- elif message.role == 'tool' %}{%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}"
    "{{- '<|im_start|>user' }}{%- endif %}{{- '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}"
    "{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{- '<|im_end|>\\n' }}{%- endif %}{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n<think>\\n\\n</think>\\n\\n' }}{%- endif %}"
)
"""Qwen3's with tools, thinking off."""


LLAMA3_TOOLS = (
    "{{- '<|start_header_id|>system<|end_header_id|>\\n\\n' }}{%- if messages[0].role == 'system' %}"
    "{{- messages[0].content | trim }}{%- set messages = messages[1:] %}{%- endif %}{{- '<|eot_id|>' }}"
    "{%- for message in messages %}{%- if message.role == 'user' and loop.first and tools %}"
    "{{- '<|start_header_id|>user<|end_header_id|>\\n\\nAnswer with JSON for a function call:\\n' }}"
    "{%- for tool in tools %}{{- (tool | tojson) + '\\n\\n' }}{%- endfor %}{{- message.content | trim + '<|eot_id|>' }}"
    "{%- elif message.role == 'tool' %}{{- '<|start_header_id|>ipython<|end_header_id|>\\n\\n' }}"
    "{{- message.content | tojson }}{{- '<|eot_id|>' }}"
    "{%- elif message.tool_calls %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}"
    "{%- for call in message.tool_calls %}{%- if not loop.first %}{{- '; ' }}{%- endif %}"
    "{{- '{\"name\": \"' + call.function.name + '\", \"parameters\": ' }}{{- call.function.arguments | tojson }}{{- '}' }}"
    "{%- endfor %}{{- '<|eot_id|>' }}"
    "{%- else %}{{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' + (message.content | trim) + '<|eot_id|>' }}"
    "{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}"
)
"""Llama 3.1's with tools in the first user message, several calls with semicolons."""
MISTRAL_TOOLS = (
    "{{- '<s>' }}{%- for message in messages %}{%- if message.role == 'system' %}"
    "{{- '[SYSTEM_PROMPT]' + message.content + '[/SYSTEM_PROMPT]' }}{%- if tools %}"
    "{{- '[AVAILABLE_TOOLS]' + (tools | tojson) + '[/AVAILABLE_TOOLS]' }}{%- endif %}"
    "{%- elif message.role == 'user' %}{%- if tools and loop.first %}"
    "{{- '[AVAILABLE_TOOLS]' + (tools | tojson) + '[/AVAILABLE_TOOLS]' }}{%- endif %}"
    "{{- '[INST]' + message.content + '[/INST]' }}"
    "{%- elif message.role == 'tool' %}{%- if message.tool_call_id | length != 9 %}"
    "{{- raise_exception('tool call IDs have 9 letters') }}{%- endif %}"
    '{{- \'[TOOL_RESULTS]{"content": \' + (message.content | tojson) + \', "call_id": "\' + message.tool_call_id '
    "+ '\"}[/TOOL_RESULTS]' }}"
    "{%- elif message.tool_calls %}{{- '[TOOL_CALLS][' }}{%- for call in message.tool_calls %}{{- (call.function | tojson)[:-1] }}"
    "{{- ', \"id\": \"' + call.id + '\"}' }}{%- if not loop.last %}{{- ', ' }}{%- endif %}{%- endfor %}{{- ']</s>' }}"
    "{%- else %}{{- message.content + '</s>' }}{%- endif %}{%- endfor %}"
)
"""Mistral's of v7 with tools; ids of calls have nine letters."""
GPT_OSS_TOOLS = (
    "{%- for message in messages %}{%- if message.role == 'system' %}{{- '<|start|>developer<|message|>' + message.content }}"
    "{%- for tool in tools or [] %}{{- '\\n// ' + tool.function.description + '\\ntype ' + tool.function.name + ' = '"
    " + (tool.function.parameters | tojson) }}{%- endfor %}{{- '<|end|>' }}"
    "{%- elif message.role == 'user' %}{%- if loop.first and tools %}{{- '<|start|>developer<|message|>' }}"
    "{%- for tool in tools %}{{- 'type ' + tool.function.name + '\\n' }}{%- endfor %}{{- '<|end|>' }}{%- endif %}"
    "{{- '<|start|>user<|message|>' + message.content + '<|end|>' }}"
    "{%- elif message.role == 'tool' %}{{- '<|start|>functions.' + (message.name or 'x') }}"
    "{{- ' to=assistant<|channel|>commentary<|message|>' }}"
    "{{- (message.content | tojson) + '<|end|>' }}"
    "{%- elif message.tool_calls %}{%- for call in message.tool_calls %}"
    "{{- '<|start|>assistant to=functions.' + call.function.name }}"
    "{{- '<|channel|>commentary json<|message|>' + (call.function.arguments | tojson) + '<|call|>' }}{%- endfor %}"
    "{%- else %}{{- '<|start|>assistant<|channel|>final<|message|>' + message.content + '<|end|>' }}{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|start|>assistant' }}{%- endif %}"
)
"""GPT-OSS's with tools; a call ends with a token of its own."""
_MISTRAL_MARKS = (
    "[INST] [/INST] [SYSTEM_PROMPT] [/SYSTEM_PROMPT] [AVAILABLE_TOOLS] [/AVAILABLE_TOOLS] "
    "[TOOL_CALLS] [TOOL_RESULTS] [/TOOL_RESULTS]"
)
TOOLS = {
    "qwen": (QWEN3_TOOLS, ("<|im_start|>", "<|im_end|>"), ("<tool_call>", "</tool_call>", "<think>", "</think>")),
    "llama": (LLAMA3_TOOLS, ("<|start_header_id|>", "<|end_header_id|>", "<|python_tag|>", "<|eot_id|>"), ()),
    "mistral": (
        MISTRAL_TOOLS,
        ("<s>", *_MISTRAL_MARKS.split(), "</s>"),
        (),
    ),
    "gpt_oss": (
        GPT_OSS_TOOLS,
        ("<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>", "<|call|>", "<|return|>"),
        (),
    ),
}
"""Of each family with tools, as in `EIGHT`."""


_TRIMMING_LLAMA2 = (
    "{%- if messages[0].role == 'system' %}{%- set rules = '<<SYS>>\\n' + messages[0].content + '\\n<</SYS>>\\n\\n' %}"
    "{%- set messages = messages[1:] %}{%- else %}{%- set rules = '' %}{%- endif %}{%- for m in messages %}"
    "{%- if m.role == 'user' %}{{- '<s>[INST] ' + (rules if loop.first else '') + m.content.strip() + ' [/INST]' }}"
    "{%- else %}{{- ' ' + m.content.strip() + ' </s>' }}{%- endif %}{%- endfor %}"
)
_ZEPHYR = (
    "{%- for m in messages %}{{- '<|' + m.role + '|>\\n' + m.content + '</s>\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|assistant|>\\n' }}{%- endif %}"
)
_PHI3_TOKENS = ("<s>", "<|endoftext|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>")
IN_PIECES = {
    "llama2": (_TRIMMING_LLAMA2, ("<s>", "</s>"), ()),
    "zephyr": (_ZEPHYR, ("<s>", "</s>"), ()),
    "phi3": (_PHI3, _PHI3_TOKENS, _PHI3_TOKENS[2:]),
}
"""Of families with SentencePiece: template, special tokens, and those that take white space after them along."""


def pieces_tokenizer(family: str) -> PreTrainedTokenizerFast:
    """Letters and bytes, with a space before the first word of a text, as Llama 2's tokenizer puts it."""
    template, special, greedy = IN_PIECES[family]
    letters = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "\u2581", *map(chr, range(33, 127))]
    backend = Tokenizer(
        models.BPE(
            vocab={letter: i for i, letter in enumerate(letters)}, merges=[], unk_token="<unk>", byte_fallback=True
        )
    )
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    space = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    backend.decoder = decoders.Sequence(space)
    backend.add_special_tokens([AddedToken(token, normalized=False, rstrip=token in greedy) for token in special])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>", eos_token=special[1], clean_up_tokenization_spaces=False
    )
    tokenizer.chat_template = template
    return tokenizer


GPT_OSS = (
    "{{- '<|start|>system<|message|>You are ChatGPT.<|end|>' }}"
    "{%- for m in messages %}{%- if m.role == 'system' %}{%- if m.content %}"
    "{{- '<|start|>developer<|message|># Instructions\\n\\n' + m.content + '<|end|>' }}{%- endif %}"
    "{%- elif m.role == 'user' %}{{- '<|start|>user<|message|>' + m.content + '<|end|>' }}"
    "{%- else %}{{- '<|start|>assistant<|channel|>final<|message|>' + m.content }}"
    "{{- '<|return|>' if loop.last and not add_generation_prompt else '<|end|>' }}{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|start|>assistant' }}{%- endif %}"
)
"""GPT-OSS's without tools: each message ends with <|end|>, a turn with <|return|>; empty instructions are left out."""
