"""What the recipe minimises: naming the words on a page, saying them, and knowing where one is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from transformers import Qwen3VLForConditionalGeneration
from transformers.models.qwen3_vl.modeling_qwen3_vl import apply_rotary_pos_emb

from .data import IGNORE, MARKS, Rows, Sheets
from .page import LABELS

BLANK = 0.2
"""Weight of visual tokens in which no word begins: most of a page."""
HERE, NEXT = 1 / 3, 2 / 3
"""Depth of the layers whose first head is guided to the last word said, and to the next one."""


class Hints(nn.Module):
    """Linear heads of the auxiliary losses; they are dropped when the checkpoint is written."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.kind = nn.Linear(width, len(MARKS) + 1 + len(LABELS))
        self.before = nn.Linear(width, width)


@dataclass(frozen=True)
class Seen:
    """What the tower tells the decoder: `features` and DeepStack's `deep`, [pages, cells, width]"""

    features: Tensor
    deep: Tensor


def see(model: Qwen3VLForConditionalGeneration, patches: Tensor, grid: Tensor) -> Seen:
    """Run the tower on grey pages of one size; patches as in `data.Sheets`."""
    with _grey(model.model.visual.patch_embed):
        seen = model.model.visual(patches, grid_thw=grid, return_dict=True)
    pages = len(grid)
    return Seen(
        seen.pooler_output.unflatten(0, (pages, -1)),
        seen.deepstack_features[0].unflatten(0, (pages, -1)),
    )


@contextmanager
def _grey(embed: Any) -> Iterator[None]:
    """Embed grey patches: channels and frames are equal, so the kernel is summed over them.

    The convolution's backward takes longer than all the rest of the tower's.
    """
    kernel = embed.proj.weight.sum((1, 2)).flatten(1)  # [width, PATCH * PATCH]
    embed.forward = lambda patches: patches @ kernel.T + embed.proj.bias
    try:
        yield
    finally:
        del embed.forward


def name(
    model: Qwen3VLForConditionalGeneration, hints: Hints, seen: Seen, sheets: Sheets
) -> tuple[Tensor, dict[str, Any]]:
    """The auxiliary loss on visual tokens: which word begins there, and what it belongs to.

    Words are named by the decoder's own embeddings, so that a visual token lies next to the word
    that it shows, and saying it is copying.
    """
    table = model.model.language_model.embed_tokens.weight  # [vocab, width]
    logits = seen.features @ table.T  # [pages, cells, vocab]
    truth, shown = sheets.words, sheets.labels > 0
    weight = torch.where(shown, 1.0, BLANK)
    each = cross_entropy(logits.flatten(0, 1), truth.flatten(), reduction="none")
    loss = (each * weight.flatten()).sum() / weight.sum()
    marks, labels = hints.kind(seen.deep + seen.features).split([len(MARKS), 1 + len(LABELS)], -1)
    loss = loss + cross_entropy(marks[shown], sheets.marks[shown])
    loss = loss + cross_entropy(labels[shown], sheets.labels[shown])
    best = logits.argmax(-1)
    dotted = shown & (sheets.marks > 0)
    report = {
        "word": _share((best == truth)[shown]),
        "blank": _share((best == truth)[~shown]),
        "mark": _share((marks.argmax(-1) == sheets.marks)[dotted]),
        "label": _share((labels.argmax(-1) == sheets.labels)[shown]),
    }
    return loss, report


def _share(right: Tensor) -> float:
    return round(float(right.float().mean()), 4)


def read(
    model: Qwen3VLForConditionalGeneration,
    hints: Hints,
    rows: Rows,
    seen: Seen,
    before: Tensor,
    guide: float,
    bf16: bool,
) -> tuple[Tensor, dict[str, Any]]:
    """The loss of saying the page, and with `guide` those that show the decoder how.

    Args:
        before: of `Sheets`, `[rows, cells]`.
        guide: weight of the guided attention (to the last and the next word) and of naming, in
            each visual token, the word that is read before it; 0 leaves them out.
    """
    decoder = model.model.language_model
    cells = seen.features.shape[1]
    picture = slice(rows.image, rows.image + cells)
    embeds = decoder.embed_tokens(rows.ids)  # [rows, length, width]
    embeds = torch.cat(
        [embeds[:, : picture.start], seen.features.to(embeds), embeds[:, picture.stop :]], dim=1
    )
    visual = torch.zeros(rows.ids.shape, dtype=torch.bool)
    visual[:, picture] = True
    guided = [round(share * len(decoder.layers)) for share in (HERE, NEXT)] if guide else []
    with _watched(decoder, guided) as heard, torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        hidden = decoder(
            inputs_embeds=embeds, position_ids=rows.positions, use_cache=False,
            visual_pos_masks=visual,
            deepstack_visual_embeds=[seen.deep.flatten(0, 1).to(embeds)],
        ).last_hidden_state.float()  # fmt: skip
    told = rows.labels[:, 1:] != IGNORE
    logits = model.lm_head(hidden[:, :-1][told])  # [told, vocab]
    truth = rows.labels[:, 1:][told]
    loss = cross_entropy(logits, truth)
    report = {"read": _share(logits.argmax(-1) == truth)}
    if not guide:
        return loss, report
    for where, layer, targets in zip(("here", "next"), guided, (rows.here, rows.next), strict=True):
        extra, report[where] = _attend(
            decoder.layers[layer].self_attn, heard[layer], targets, rows, cells
        )
        loss = loss + guide * extra
    known = before != IGNORE
    told_before = hints.before(heard[guided[0]][0].float()[:, picture][known])
    named = told_before @ decoder.embed_tokens.weight.T
    report["before"] = _share(named.argmax(-1) == before[known])
    return loss + guide * cross_entropy(named, before[known]), report


@contextmanager
def _watched(decoder: Any, layers: list[int]) -> Iterator[dict[int, tuple[Tensor, Any]]]:
    """What the attention of `layers` is given: states `[rows, length, width]`, RoPE's waves."""
    heard: dict[int, tuple[Tensor, Any]] = {}

    def listen(layer: int) -> Any:
        def hook(module: nn.Module, args: tuple, given: dict[str, Any]) -> None:
            heard[layer] = given["hidden_states"], given["position_embeddings"]

        return hook

    handles = [
        decoder.layers[layer].self_attn.register_forward_pre_hook(listen(layer), with_kwargs=True)
        for layer in layers
    ]
    try:
        yield heard
    finally:
        for handle in handles:
            handle.remove()


def _attend(
    attention: Any, heard: tuple[Tensor, Any], targets: Tensor, rows: Rows, cells: int
) -> tuple[Tensor, float]:
    """Cross-entropy of the first head's attention against the visual tokens `targets`."""
    states, (cos, sin) = heard
    states, width = states.float(), attention.head_dim
    query = attention.q_norm(states @ attention.q_proj.weight[:width].T)[:, None]
    key = attention.k_norm(states @ attention.k_proj.weight[:width].T)[:, None]
    query, key = apply_rotary_pos_emb(query, key, cos.float(), sin.float())
    scores = query[:, 0, rows.begin :] @ key[:, 0].transpose(1, 2) * attention.scaling
    length = key.shape[2]
    later = torch.arange(length) > torch.arange(rows.begin, length)[:, None]
    scores = scores.masked_fill(later, float("-inf"))  # [rows, answer, length]
    wanted = targets[:, rows.begin :]
    known = wanted != IGNORE
    scores, truth = scores[known], wanted[known] + rows.image
    return cross_entropy(scores, truth), _share(scores.argmax(-1) == truth)
