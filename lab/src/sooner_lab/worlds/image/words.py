"""The miniature's tokenizer: one token a word, and the special tokens of Janus's processor."""

from __future__ import annotations

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from . import world

PAD, UNKNOWN, BOS, EOS = "<pad>", "<unk>", "<bos>", "<eos>"
BOI, EOI, IMAGE = "<begin_of_image>", "<end_of_image>", "<image_placeholder>"
SPECIALS = (PAD, UNKNOWN, BOS, EOS, BOI, EOI, IMAGE)


def vocabulary() -> list[str]:
    """All tokens in the order of their ids; trained weights depend on it."""
    text = " ".join(("a", "on", *world.FORMS, *world.COLOURS, *world.RELATIONS))
    return [*SPECIALS, *dict.fromkeys(text.split())]


def ids() -> dict[str, int]:
    """Token to id."""
    return {token: index for index, token in enumerate(vocabulary())}


def build_tokenizer() -> PreTrainedTokenizerFast:
    """A word-level fast tokenizer: BOS in front, nothing behind, padding on the left."""
    known = ids()
    core = Tokenizer(models.WordLevel(known, unk_token=UNKNOWN))
    core.normalizer = normalizers.Lowercase()
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    core.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", special_tokens=[(BOS, known[BOS])]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token=PAD,
        unk_token=UNKNOWN,
        bos_token=BOS,
        eos_token=EOS,
        extra_special_tokens={"image_token": IMAGE, "boi_token": BOI, "eoi_token": EOI},
        padding_side="left",
        model_max_length=512,
    )
