"""Prompts of the zoo: words, and placeholders for what a prompt shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

VOCAB = 160
PAD, BOS, EOS = 0, 1, 2
WORDS = range(3, 90)
"""Ids that prompts are made of; models may say any."""

IMAGE, VIDEO = 130, 131
VISION_START, VISION_END = 132, 133
ROW, SEPARATOR, THUMBNAIL, AUDIO = 134, 135, 136, 137
"""Placeholders and marks of families, above all words."""

PROMPT = ("input_ids", "attention_mask")

KINDS: dict[str, tuple[str, ...]] = {
    "text": (),
    "image": ("image",),
    "images": ("image", "image"),
    "video": ("video",),
}
"""What a prompt of a kind shows, in order."""


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(1000 + seed)


def visible(kind: str, row: int) -> tuple[str, ...]:
    """What the prompt of a row shows; of several pictures the second row has one less."""
    items = KINDS[kind]
    return items[1:] if kind == "images" and row == 1 else items


def prompts(
    kind: str, rows: int, seed: int, span: Callable[[str], Sequence[int]]
) -> tuple[dict[str, torch.Tensor], list[str]]:
    """Ragged rows of words and placeholders, padded on the left.

    Args:
        kind: of `KINDS`.
        span: the ids that stand for a picture or a video in a prompt.

    Returns:
        `input_ids` and `attention_mask`, `[rows, width]`, and what all rows show, in order.
    """
    draws = generator(seed)
    lines, items = list[list[int]](), list[str]()
    for row in range(rows):
        words = torch.randint(WORDS.start, WORDS.stop, (6 + 3 * row,), generator=draws).tolist()
        line = words[:2]
        for item in visible(kind, row):
            line += [*span(item), words[2]]
            items.append(item)
        lines.append([BOS, *line, *words[3:]])
    width = max(len(line) for line in lines)
    ids = [[PAD] * (width - len(line)) + line for line in lines]
    mask = [[0] * (width - len(line)) + [1] * len(line) for line in lines]
    return {"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(mask)}, items


def row_of(inputs: dict[str, Any], kind: str, row: int) -> dict[str, Any]:
    """The prompt of a row alone, without padding, where pictures are listed row by row."""
    begin = sum(len(visible(kind, earlier)) for earlier in range(row))
    items = slice(begin, begin + len(visible(kind, row)))
    ids = inputs["input_ids"][row][inputs["attention_mask"][row].bool()][None]
    rest = {name: value[items] for name, value in inputs.items() if name not in PROMPT}
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), **rest}


def texts(model: Any, kind: str, rows: int, seed: int) -> dict[str, Any]:
    """Prompts of words, and all that is needed of types that are refused before they read."""
    return prompts("text", rows, seed, lambda item: [])[0]


def types_of(ids: torch.Tensor) -> torch.Tensor:
    """`mm_token_type_ids`: 1 for pictures, 2 for videos."""
    return (ids == IMAGE).long() + 2 * (ids == VIDEO).long()


def pixels(count: int, *shape: int, seed: int) -> Any:
    """Random pixels of so many pictures, `[count, *shape]` fp64."""
    return torch.randn(count, *shape, generator=generator(seed + 77), dtype=torch.float64)


def framed(placeholder: int, count: int) -> list[int]:
    """So many placeholders between two marks."""
    return [VISION_START, *[placeholder] * count, VISION_END]


def picture_inputs(
    span: Sequence[int], *shape: int, each: int = 1, types: str = "", **fields: Any
) -> Callable[[Any, str, int, int], dict[str, Any]]:
    """Inputs of prompts whose pictures are all of one size.

    Args:
        span: ids that stand for a picture.
        shape: of the pixels of a part of a picture.
        each: parts that a picture has.
        types: name of the input that says which tokens are a picture's, if there is one.
        fields: other inputs, by their values of one picture.
    """

    def made(model: Any, kind: str, rows: int, seed: int) -> dict[str, Any]:
        inputs, items = prompts(kind, rows, seed, lambda item: span)
        if types:
            inputs[types] = types_of(inputs["input_ids"])
        if count := len(items):
            inputs["pixel_values"] = pixels(count * each, *shape, seed=seed)
            inputs |= {name: torch.tensor([value] * count) for name, value in fields.items()}
        return inputs

    return made
