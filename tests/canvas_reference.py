"""Drawing written down once more, token by token: what the published code of each family does.

Every row runs alone, without padding, on the model's own modules and HF's `DynamicCache`. Guidance
runs a second sequence beside it. Nothing of sooner is used.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

import tiny_canvas as tiny

CODES = range(tiny.C_CODES, tiny.C_CODES + tiny.CODES)


def allowed(family: str) -> Iterator[list[int]]:
    """Ids that the published logits processors leave, place by place."""
    if family in ("janus", "cosmos_ar"):
        yield from [list(range(tiny.CODES))] * {"janus": 16, "cosmos_ar": 24}[family]
    elif family == "chameleon":  # ImageDecoder of facebookresearch/chameleon
        yield from [list(CODES)] * 16
        yield [tiny.C_EOI]
    elif family == "emu3":
        yield from emu3_allowed(3, 5)
    else:
        yield from lumina_allowed(4, 6)


def lumina_allowed(height: int, width: int) -> Iterator[list[int]]:
    """`MultiModalLogitsProcessor` of Alpha-VLLM/Lumina-mGPT, behind the size tokens."""
    for position in range(height * (width + 1) + 1):
        if (position + 1) % (width + 1) == 0:
            yield [tiny.C_ROW_END]
        elif position + 1 == (width + 1) * height + 1:
            yield [tiny.C_EOI]
        else:
            yield list(CODES)


def emu3_allowed(height: int, width: int) -> Iterator[list[int]]:
    """`prefix_allowed_tokens_fn` of the Emu3 page in transformers' documentation."""
    for offset in range(1, (width + 1) * height + 4):
        if offset % (width + 1) == 0:
            yield [tiny.E_EOL]
        elif offset == (width + 1) * height + 1:
            yield [tiny.E_EOF]
        elif offset == (width + 1) * height + 2:
            yield [tiny.E_EOI]
        elif offset == (width + 1) * height + 3:
            yield [tiny.E_EOS]
        else:
            yield list(range(tiny.E_CODES, tiny.E_CODES + tiny.CODES))


def contexts(family: str, prompt: list[int]) -> tuple[list[int], list[int]]:
    """A prompt with its picture opened, and the one without a condition."""
    if family == "janus":
        blank = [t if t in (tiny.BOS, tiny.BOI) else tiny.PAD for t in prompt]
        return prompt, blank
    if family == "chameleon":
        return [*prompt, tiny.C_BOI], [tiny.C_BOS, tiny.C_BOI]
    if family == "lumina":
        opening = [tiny.C_BOI, tiny.C_SIZE + 2, tiny.C_SIZE + 3]
        return [*prompt, *opening], opening
    if family == "emu3":
        return prompt, [tiny.E_BOS, *prompt[-5:]]
    return prompt, []


class Context:
    """One sequence and its cache."""

    def __init__(self, family: str, model: Any) -> None:
        self.family, self.model = family, model
        self.cache = DynamicCache()

    def next_logits(self, tokens: list[int], is_prompt: bool) -> Tensor:
        """Logits `[vocab]` behind further tokens."""
        model, ids = self.model, torch.tensor([tokens])
        if self.family == "janus":
            embeds = model.get_input_embeddings()(ids)
            if not is_prompt:
                embeds = model.prepare_embeddings_for_image_generation(ids)
            body, head = model.model.language_model, model.model.generation_head
            states = body(inputs_embeds=embeds, past_key_values=self.cache, use_cache=True)
        else:
            body, head = model.model, model.lm_head
            states = body(input_ids=ids, past_key_values=self.cache, use_cache=True)
        return head(states.last_hidden_state[0, -1])


@torch.no_grad()
def draw_row(
    family: str, model: Any, prompt: list[int], guidance: float, blank: list[int] | None = None
) -> list[int]:
    """The greedy picture of one prompt."""
    cond, uncond = contexts(family, prompt)
    uncond = uncond if blank is None else blank
    ours, other = Context(family, model), Context(family, model)
    drawn_ids: list[int] = []
    for ids in allowed(family):
        logits = ours.next_logits(drawn_ids[-1:] or cond, not drawn_ids)
        if guidance != 1:
            plain = other.next_logits(drawn_ids[-1:] or uncond, not drawn_ids)
            logits = plain + guidance * (logits - plain)
        drawn_ids.append(ids[int(logits[ids].argmax())])
    return drawn_ids


@functools.cache
def drawn(family: str, rows: int, guidance: float, count: int = 1) -> list[list[int]]:
    """Greedy spans of `tiny_canvas.inputs(family, rows)`, given places included."""
    inputs = tiny.inputs(family, rows)
    mask = inputs.get("attention_mask", torch.ones_like(inputs["input_ids"])).bool()
    results = []
    for ids, real in zip(inputs["input_ids"], mask, strict=True):
        prompt = ids[real].tolist()
        prefix = prompt if family == "cosmos_ar" else []
        results += [prefix + draw_row(family, tiny.model(family), prompt, guidance)] * count
    return results
