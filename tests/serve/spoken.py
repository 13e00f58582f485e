"""Tokenizers for tests of the chat server: every byte is a token, and some words are."""

from __future__ import annotations

import functools
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

START, END, EOS = "<|im_start|>", "<|im_end|>", "<|endoftext|>"
THINK, TOOL = ("<think>", "</think>"), ("<tool_call>", "</tool_call>")
TEXT = (
    "the quick brown fox, naïve café: 漢字 and 🦊🦊 ... STOP the END\n\n- a list!\n"
    '{"name": "weather", "arguments": {"city": "Bern"}} user assistant system '
)
CHAT_TEMPLATE = (
    "{% for tool in tools or [] %}{{ '<|im_start|>system\n' + (tool | tojson) + '<|im_end|>\n' }}"
    "{% endfor %}{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }}"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] or [] %}{% if part['type'] == 'text' %}"
    "{{ part['text'] }}{% endif %}{% endfor %}{% endif %}{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
RESPONSE_TEMPLATE = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<|im_start|>assistant\n",
    "fields": {
        "reasoning_content": {"open": "<think>", "close": "</think>", "content": "text"},
        "tool_calls": {
            "open_pattern": r"\s*<tool_call>", "close": "</tool_call>", "repeats": True,
            "content": "json", "transform": {"type": "function", "function": "{content}"},
        },
        "content": {"close_pattern": r"\s*(?:<\|im_end\|>|<\|endoftext\|>)", "content": "text"},
    },
}  # fmt: skip


@functools.cache
def byte_level() -> Any:
    """Byte-level BPE: 256 bytes, some merges that are no whole letters, special tokens."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[EOS, START, END, *THINK, *TOOL],
        show_progress=False,
    )
    core.train_from_iterator([TEXT] * 3, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=core, eos_token=END, pad_token=EOS, chat_template=CHAT_TEMPLATE
    )


@functools.cache
def byte_fallback() -> Any:
    """As Llama 2 has it: words with their space, and `<0x..>` for every byte of anything else."""
    words = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    words += ["▁", "▁the", "▁a", "▁end", "s", "t", "o", "p", "▁stop", ".", "é", "▁é"]
    core = Tokenizer(
        models.BPE({word: at for at, word in enumerate(words)}, [], unk_token="<unk>",
                   fuse_unk=True, byte_fallback=True)
    )  # fmt: skip
    core.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )  # fmt: skip
    return PreTrainedTokenizerFast(tokenizer_object=core, eos_token="</s>", bos_token="<s>")


def ids_of(text: str) -> list[int]:
    """Token ids of a text under `byte_level`."""
    token_ids: list[int] = byte_level()(text, add_special_tokens=False).input_ids
    return token_ids
