"""The robot miniature's tokenizer: words of the prompt, characters for any other, action tokens.

Laid out as OpenVLA's: text first, then 256 action ids as the last ones of the vocabulary, then
padding ids that mean nothing, the first of which stands for a patch of the picture.
"""

from __future__ import annotations

import string

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

PAD, START, END, UNKNOWN, SPACE = "<pad>", "<s>", "</s>", "<unk>", "<space>"
SPECIALS = (PAD, START, END, UNKNOWN, SPACE)
PROMPT = "In: What action should the robot take to {instruction}?\nOut:"
WORDS = "reach push open close the a red blue green ball block drawer to of left right up down"
TEXT = 160
"""Ids that are text, some of them free."""
ACTIONS = 256
PADDING = 64
VOCABULARY = TEXT + ACTIONS + PADDING
IMAGE_ID = TEXT + ACTIONS


def vocabulary() -> list[str]:
    """All tokens that can be written; a token's place is its id, so weights bind the order."""
    frame = PROMPT.format(instruction=" ").lower()
    words = "".join(mark if mark.isalpha() else " " for mark in frame).split() + WORDS.split()
    letters = string.ascii_lowercase + string.digits
    text = [*SPECIALS, *words, *letters, *string.punctuation, *(f"##{mark}" for mark in letters)]
    text = list(dict.fromkeys(text))
    free = [f"<free {number}>" for number in range(TEXT - len(text))]
    actions = [f"<action {ACTIONS - 1 - number}>" for number in range(ACTIONS)]
    return [*text, *free, *actions]


def build_tokenizer() -> PreTrainedTokenizerFast:
    """A word-level fast tokenizer with character fall-back, which begins a text with `<s>`."""
    ids = {token: index for index, token in enumerate(vocabulary())}
    bare = Tokenizer(models.WordPiece(ids, unk_token=UNKNOWN, max_input_chars_per_word=1000))
    bare.normalizer = normalizers.Lowercase()
    bare.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    bare.decoder = decoders.WordPiece()
    bare.post_processor = processors.TemplateProcessing(
        single=f"{START} $A", special_tokens=[(START, ids[START])]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=bare, unk_token=UNKNOWN, pad_token=PAD, bos_token=START, eos_token=END,
        padding_side="left",
    )  # fmt: skip
