"""Losses of the decoder: the tokens of the page, and attention to the places of its words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from transformers import Qwen3VLForConditionalGeneration
from transformers.models.qwen3_vl.modeling_qwen3_vl import apply_rotary_pos_emb

from sooner.models.hooks import ForwardHooks

from .data import IGNORE, PageRows
from .losses import DocumentHints, Seen, share

PREVIOUS, AGAIN, HERE, NEXT = 1 / 8, 1 / 4, 1 / 2, 3 / 4
"""Depth of the layers whose first head is guided: from a word on the page to the one read before
it, twice, so that it knows of two; then from a token of the answer to the last word said, then to
the next one. One word before is not enough to know a place by: "in the" stands on a page often."""
AttentionInputs = dict[int, tuple[Tensor, tuple[Tensor, Tensor]]]
"""Inputs of attention by layer: states `[rows, length, width]`, RoPE's cos and sin."""


@dataclass(frozen=True)
class PageInputs:
    """Pages as the decoder gets them; `words` and `previous` of `data.Sheets`, [pages, cells]."""

    seen: Seen
    words: Tensor
    previous: Tensor


def read(
    model: Qwen3VLForConditionalGeneration,
    hints: DocumentHints,
    rows: PageRows,
    pages: PageInputs,
    guide: float,
    bf16: bool,
) -> tuple[Tensor, dict[str, Any]]:
    """Cross-entropy of the page's tokens, plus the auxiliary losses by the weight `guide`.

    Args:
        guide: weight of the guided attention and of naming, in each visual token, the word that is
            read before it; 0 leaves them out.
        bf16: run the decoder under bfloat16 autocast.
    """
    decoder = model.model.language_model
    with _listening(decoder, _guided(decoder) if guide else ()) as inputs:
        hidden = _decode(decoder, rows, pages.seen, bf16)  # [rows, length, width]
    has_label = rows.labels[:, 1:] != IGNORE
    logits = model.lm_head(hidden[:, :-1][has_label])  # [labelled, vocab]
    truth = rows.labels[:, 1:][has_label]
    loss, report = cross_entropy(logits, truth), {"read": share(logits.argmax(-1) == truth)}
    if not guide:
        return loss, report
    extra, figures = _guide(decoder, hints, inputs, rows, pages)
    return loss + guide * extra, {**report, **figures}


def _decode(decoder: Any, rows: PageRows, seen: Seen, bf16: bool) -> Tensor:
    cells = slice(rows.image, rows.image + seen.features.shape[1])
    embeds = decoder.embed_tokens(rows.ids)  # [rows, length, width]
    parts = [embeds[:, : cells.start], seen.features.to(embeds), embeds[:, cells.stop :]]
    visual = torch.zeros(rows.ids.shape, dtype=torch.bool)
    visual[:, cells] = True
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        output = decoder(
            inputs_embeds=torch.cat(parts, dim=1), position_ids=rows.positions, use_cache=False,
            visual_pos_masks=visual,
            deepstack_visual_embeds=[seen.deep.flatten(0, 1).to(embeds)],
        )  # fmt: skip
    return output.last_hidden_state.float()


def _guided(decoder: Any) -> tuple[int, ...]:
    return tuple(int(depth * len(decoder.layers)) for depth in (PREVIOUS, AGAIN, HERE, NEXT))


@contextmanager
def _listening(decoder: Any, layers: tuple[int, ...]) -> Iterator[AttentionInputs]:
    inputs: AttentionInputs = {}

    def keep(layer: int, module: nn.Module, args: tuple, processing: dict[str, Any]) -> None:
        inputs[layer] = processing["hidden_states"], processing["position_embeddings"]

    with ForwardHooks() as hooks:
        for layer in layers:
            hooks.before(decoder.layers[layer].self_attn, partial(keep, layer))
        yield inputs


def _guide(
    decoder: Any, hints: DocumentHints, inputs: AttentionInputs, rows: PageRows, pages: PageInputs
) -> tuple[Tensor, dict[str, Any]]:
    """The sum of the auxiliary losses."""
    cells = slice(rows.image, rows.image + pages.words.shape[1])
    answer = slice(rows.begin, rows.ids.shape[1])
    previous, again, here, following = _guided(decoder)
    cell_ids = torch.arange(pages.words.shape[1])
    # A second column follows words that the first one's cells cannot see yet.
    earlier = pages.previous.masked_fill(pages.previous > cell_ids, IGNORE)
    loss, report = _name_previous(decoder, hints, inputs[here][0][:, cells], pages)
    for name, layer, at, targets in (
        ("previous", previous, cells, earlier),
        ("again", again, cells, earlier),
        ("here", here, answer, rows.here[:, answer]),
        ("next", following, answer, rows.next[:, answer]),
    ):
        scores = _scores(decoder.layers[layer].self_attn, *inputs[layer], at)
        known = targets != IGNORE
        scores, truth = scores[known], targets[known] + rows.image  # [known, length]
        loss = loss + cross_entropy(scores, truth)
        report[name] = share(scores.argmax(-1) == truth)
    return loss, report


def _name_previous(
    decoder: Any, hints: DocumentHints, states: Tensor, pages: PageInputs
) -> tuple[Tensor, dict[str, Any]]:
    """Name, in each visual token with a word, the one read before it and the one before that."""
    table = decoder.embed_tokens.weight  # [vocab, width]
    loss, report = states.new_zeros(()).float(), {}
    place = torch.arange(pages.previous.shape[1]).expand_as(pages.previous)
    for name, head in (("before", hints.before), ("before that", hints.before_that)):
        place = torch.where(place == IGNORE, place, pages.previous.gather(1, place.clamp(min=0)))
        known = place != IGNORE
        truth = pages.words.gather(1, place.clamp(min=0))[known]
        named = head(states[known].float()) @ table.T  # [known, vocab]
        loss = loss + cross_entropy(named, truth)
        report[name] = share(named.argmax(-1) == truth)
    return loss, report


def _scores(attention: Any, states: Tensor, waves: tuple[Tensor, Tensor], at: slice) -> Tensor:
    """What the first head's softmax is taken of, for the places `at`: `[rows, places, length]`"""
    states, width, length = states.float(), attention.head_dim, states.shape[1]
    query = attention.q_norm(states @ attention.q_proj.weight[:width].T)[:, None]
    key = attention.k_norm(states @ attention.k_proj.weight[:width].T)[:, None]
    query, key = apply_rotary_pos_emb(query, key, waves[0].float(), waves[1].float())
    scores = query[:, 0, at] @ key[:, 0].transpose(1, 2) * attention.scaling
    later = torch.arange(length) > torch.arange(at.start, at.stop)[:, None]
    return scores.masked_fill(later, float("-inf"))
