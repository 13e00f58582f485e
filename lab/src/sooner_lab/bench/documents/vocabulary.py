"""A tokenizer like those of large models: byte-level BPE, every digit a token of its own.

It is trained on pages of the writer that no run reads, in a second, and is the same every time.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from . import wording

SIZE = 2048
END = "<|end|>"


@lru_cache(maxsize=1)
def tokenizer() -> Any:
    """The tokenizer; its id 0 ends a text."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=SIZE,
        special_tokens=[END],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    core.train_from_iterator(_corpus(), trainer)
    return PreTrainedTokenizerFast(tokenizer_object=core, eos_token=END, pad_token=END)


def _corpus() -> list[str]:
    rng = np.random.default_rng(1)
    told = [wording.prose(rng, 6) for _ in range(400)]
    told += [wording.latex(wording.formula(rng)) for _ in range(100)]
    pipes = ["| " + " | ".join(row) + " |" for row in wording.table(rng, 60, 6)]
    rule = "| --- | --- | --- |"
    boxes = '{"bbox": [1, 2, 3, 4], "category": "Section-header", "text": "a"}, ' * 20
    return [*told, *pipes, rule, boxes, '"Text", "Formula", "Table", "Title", "Footnote"' * 9]
