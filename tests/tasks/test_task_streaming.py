"""Pieces of streamed text add up to exactly the final text, whatever the rounds were."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from sooner import miniatures
from sooner.tasks.streaming import TextStream

TEXT = (
    "it's a small test, isn't it? we've seen: « naïve café », 漢字, 🦊🦊 and more ... they 're "
    "\n\n- a list!\n  - deeper\n(end)  "
)


def byte_level() -> PreTrainedTokenizerFast:
    """BPE over bytes with few merges, so that one letter is several tokens."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=280, initial_alphabet=alphabet, show_progress=False)
    core.train_from_iterator([TEXT], trainer)
    return PreTrainedTokenizerFast(tokenizer_object=core)


def word_piece() -> PreTrainedTokenizerFast:
    """The video miniature's: words of its world, and characters for any other text."""
    return AutoTokenizer.from_pretrained(miniatures.find("video").target)


TOKENIZERS = {"word-piece": word_piece, "bytes": byte_level}


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("name", TOKENIZERS)
def test_pieces_are_the_text(name: str, seed: int) -> None:
    tokenizer: Any = TOKENIZERS[name]()
    tokens = tokenizer(TEXT, add_special_tokens=False).input_ids
    draw = random.Random(seed)
    pieces: list[str] = []
    stream = TextStream(tokenizer, lambda piece, drafted: pieces.append(piece))
    stream.interval = 0.0
    left = list(tokens)
    while left:
        size = draw.randint(1, 6)
        stream.add(left[:size], draw.randint(0, size))
        left = left[size:]
        assert "�" not in "".join(pieces)
    final = stream.close()
    assert final == tokenizer.decode(tokens, skip_special_tokens=True).strip()
    assert "".join(pieces) == final
    assert len(pieces) > 10  # it really streamed
