"""Drafts in a target's own form are accepted, though their boxes are none of its own."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LogitsProcessor, LogitsProcessorList, PreTrainedTokenizerFast

import sooner
import tiny
from page_answers import page_text
from sooner.documents import PageDraft, Region
from sooner.tasks.parse.contexts import page_drafts, pieces_of
from sooner.tasks.parse.forms import FORMS

SIZE = (1000, 1400)

TABLE = (
    '<table><tr><td colspan="2">Fruit</td></tr><tr><td>pear</td><td>2</td></tr>'
    "<tr><td>plum</td><td>14</td></tr></table>"
)

PAGE = [
    Region((80, 40, 900, 90), "Title", 0, ["A report on fruit"], 1),
    Region(
        (80, 100, 900, 240), "Text", 1,
        ["Pears and plums are fruit that grow on trees; both are eaten raw, dried or cooked."],
    ),
    Region((80, 250, 900, 280), "Formula", 2, ["x^2 + y_1 = 3"]),
    Region((80, 300, 900, 320), "Caption", 3, ["Table 1: prices in the market of the old town"]),
    Region((80, 330, 900, 600), "Table", 4, [TABLE]),
]  # fmt: skip


class Say(LogitsProcessor):
    """Makes any model say a text: what follows is certain behind its beginning."""

    def __init__(self, width: int, text: list[int]) -> None:
        self.width, self.text = width, text

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        forced = torch.full_like(scores, -1e9)
        for row, ids in enumerate(input_ids.tolist()):
            said = ids[self.width :]
            is_so = said == self.text[: len(said)] and len(said) < len(self.text)
            forced[row, self.text[len(said)] if is_so else 0] = 0.0
        return forced


def words(tags: set[str]) -> PreTrainedTokenizerFast:
    """Bytes, and each tag as one special token."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(False)
    core.decoder = decoders.ByteLevel()
    letters = pre_tokenizers.ByteLevel.alphabet()
    core.train_from_iterator(
        ["fruit"], trainers.BpeTrainer(initial_alphabet=letters, show_progress=False)
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=core, eos_token="<eos>", extra_special_tokens=sorted(tags)
    )


@pytest.mark.parametrize("form", ["deepseek", "doctags", "doclang", "front-matter"])
def test_a_form_of_its_own_makes_drafts_worth_their_while(form: str) -> None:
    """Boxes are off by 5 to 9 pixels, and a letter is wrong; the target says its page all the same,
    in a small part of the forwards that it takes with the same drafts as Markdown."""
    text = page_text(FORMS[form], PageDraft(PAGE, size=SIZE))
    moved = []
    for region in PAGE:
        assert region.bbox is not None
        left, top, right, bottom = region.bbox
        moved.append(replace(region, bbox=(left + 7, top - 5, right + 9, bottom + 6)))
    moved[1] = replace(moved[1], drafts=[PAGE[1].drafts[0].replace("trees", "frees")])
    draft = PageDraft(moved, size=SIZE)
    tokenizer = words(set(re.findall(r"<[^<>]+>", text + page_text(FORMS[form], draft))))
    if not FORMS[form].is_special:
        tokenizer = words(set())
    said = tokenizer(text, add_special_tokens=False)["input_ids"]
    model = tiny.model("llama", vocab=len(tokenizer))
    inputs: dict[str, Any] = {"input_ids": torch.tensor([[1, 2, 3]])}
    inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])

    def forwards(written: str) -> int:
        groups = page_drafts(tokenizer, pieces_of(draft, written), written, [])
        made = sooner.generate(
            model, inputs, sooner.HSD([groups], nodes=32, max_nodes=32, depth=32),
            logits_processor=LogitsProcessorList([Say(3, said)]), max_new_tokens=len(said),
            do_sample=False, eos_token_id=None,
        )  # fmt: skip
        assert made.sequences[0, 3:].tolist() == said
        return int(made.stats.nfe)

    own, other = forwards(form), forwards("markdown")
    assert own * 5 < len(said)
    assert own * 1.5 < other
