"""The miniature's tokenizer: the world's words, Markdown's signs, characters for any other text.

A real `tokenizers` WordPiece vocabulary. Text is lower-cased; line ends are tokens.
"""

from __future__ import annotations

import string

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from . import lexicon

PAD, UNKNOWN, START, END = "<|endoftext|>", "<unk>", "<|im_start|>", "<|im_end|>"
VISION_START, VISION_END = "<|vision_start|>", "<|vision_end|>"
IMAGE, VIDEO = "<|image_pad|>", "<|video_pad|>"
SPECIALS = (PAD, UNKNOWN, START, END, VISION_START, VISION_END, IMAGE, VIDEO)
SIGNS = ("\n\n", "\n", "#", "|", "---", "$$", "-", ".", ",")
PROMPT = "read the page"
PROMPTS = (PROMPT, "parse this page", "convert the page to markdown")

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }}"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}{{ '<|vision_start|><|image_pad|><|vision_end|>' }}"
    "{% elif part['type'] == 'video' %}{{ '<|vision_start|><|video_pad|><|vision_end|>' }}"
    "{% elif part['type'] == 'text' %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}"
    "{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def vocabulary() -> list[str]:
    """All tokens in the order of their ids; trained weights depend on it."""
    prompt_words = " ".join((*PROMPTS, "user assistant system")).split()
    marks = string.ascii_lowercase + string.digits + string.punctuation
    return list(
        dict.fromkeys(
            [
                *SPECIALS,
                *SIGNS,
                *lexicon.words(),
                *prompt_words,
                *marks,
                *(f"##{mark}" for mark in marks),
            ]
        )
    )


def build_tokenizer() -> PreTrainedTokenizerFast:
    """A word-level fast tokenizer with character fall-back; EOS is `<|im_end|>`."""
    vocab = {token: index for index, token in enumerate(vocabulary())}
    core = Tokenizer(models.WordPiece(vocab, unk_token=UNKNOWN, max_input_chars_per_word=200))
    core.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    pieces = Regex(r"\n\n|\n|[.,|]|\w+|[^\w\s.,|]+")
    core.pre_tokenizer = pre_tokenizers.Split(pieces, behavior="removed", invert=True)
    core.decoder = decoders.Sequence(
        [
            decoders.WordPiece(cleanup=False),
            decoders.Fuse(),
            decoders.Replace(Regex(r" *\n *"), "\n"),
            decoders.Replace(Regex(r" \."), "."),
            decoders.Replace(Regex(r" ,"), ","),
        ]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token=PAD,
        unk_token=UNKNOWN,
        eos_token=END,
        extra_special_tokens={
            "image_token": IMAGE, "video_token": VIDEO, "start_token": START,
            "vision_start_token": VISION_START, "vision_end_token": VISION_END,
        },
        chat_template=CHAT_TEMPLATE,
        padding_side="left",
        model_max_length=4096,
        clean_up_tokenization_spaces=False,
    )  # fmt: skip
