"""The miniature's tokenizer: the world's words, and characters for any other text.

A real `tokenizers` WordPiece vocabulary: a word of the world is one token, anything else falls
apart into characters, so that every prompt tokenises. Text is lower-cased.
"""

from __future__ import annotations

import string

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from . import world

PAD, UNKNOWN, START, END = "<|endoftext|>", "<unk>", "<|im_start|>", "<|im_end|>"
IMAGE, VIDEO = "<image>", "<video>"
SPECIALS = (PAD, UNKNOWN, START, END, IMAGE, VIDEO)

PROMPT = "describe the scenes in order ."
PROMPTS = (
    PROMPT,
    "describe the video .",
    "describe this video in detail .",
    "what happens in this video ?",
    "describe every scene .",
)

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + ' ' }}"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}{{ '<image>' }}"
    "{% elif part['type'] == 'video' %}{{ '<video>' }}{% endif %}{% endfor %}"
    "{% for part in message['content'] if part['type'] == 'text' %}"
    "{{ '\n' + part['text'] }}{% endfor %}{% endif %}"
    "{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def vocabulary() -> list[str]:
    """All tokens in the order of their ids; trained weights depend on it."""
    text = " ".join(
        (
            *PROMPTS, *world.SHAPES, *world.COLOURS, *world.BACKGROUNDS, *world.ROWS,
            *world.COLUMNS, *world.NUMBERS, "user assistant system scene a on background moves",
            "up down and from the to",
        )
    )  # fmt: skip
    letters = string.ascii_lowercase + string.digits
    marks = [*letters, *string.punctuation, *(f"##{mark}" for mark in letters)]
    tokens = [*SPECIALS, *(word for word in text.split() if word.isalpha()), *marks]
    return list(dict.fromkeys([*tokens, "stays", "at"]))  # the last came later than some weights


def build_tokenizer() -> PreTrainedTokenizerFast:
    """A word-level fast tokenizer with character fall-back; EOS is `<|im_end|>`."""
    vocab = {token: index for index, token in enumerate(vocabulary())}
    core = Tokenizer(models.WordPiece(vocab, unk_token=UNKNOWN, max_input_chars_per_word=200))
    core.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    core.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    core.decoder = decoders.WordPiece(cleanup=True)
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token=PAD,
        unk_token=UNKNOWN,
        eos_token=END,
        extra_special_tokens={"image_token": IMAGE, "video_token": VIDEO, "start_token": START},
        chat_template=CHAT_TEMPLATE,
        padding_side="left",
        model_max_length=4096,
    )
