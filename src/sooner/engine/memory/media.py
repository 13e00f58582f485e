"""The pictures and clips of a prompt: which pixels, which placeholders, which content."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import torch
from torch import Tensor

from ...errors import SoonerError
from ...models import Adapter
from .prefix import Medium

PIXELS = {"image": "pixel_values", "video": "pixel_values_videos"}
GRIDS = {"image": "image_grid_thw", "video": "video_grid_thw"}
TOKENS = {
    "image": ("image_token_id", "image_token_index"),
    "video": ("video_token_id", "video_token_index"),
}
OF_TEXT = {"input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids", "position_ids"}


@dataclass(frozen=True)
class MediaItem(Medium):
    """A picture or clip, or all of a kind whose places in the prompt can't be told apart.

    Attributes:
        kind: *image* or *video*.
    """

    kind: str = "image"


def media_of(
    adapter: Adapter, inputs: Mapping[str, Any], keys: Sequence[str] = ()
) -> dict[str, list[MediaItem]]:
    """Returns the media of a prompt by kind, each kind in the order of its pixels.

    Args:
        adapter: of the model that reads them.
        inputs: what its processor returned, of one prompt.
        keys: hash of the content of each, in the order of the prompt; taken of its pixels if not
            given. Sizes and grids are part of an item's key whatever is given.

    Raises:
        SoonerError: another number of keys than of media.
    """
    ids = inputs["input_ids"][0]
    mask = inputs.get("attention_mask")
    if mask is not None:
        ids = ids[mask[0].bool()]
    places: list[tuple[str, list[list[int]]]] = []
    for kind, name in PIXELS.items():
        pixels = inputs.get(name)
        tokens = _placeholders(adapter.config, kind, ids)
        if isinstance(pixels, Tensor) and tokens:
            places.append((kind, _split(adapter.config, kind, tokens, inputs)))
    order = sorted(
        (tokens[0], kind, number) for kind, parts in places for number, tokens in enumerate(parts)
    )
    counts = {kind: len(_sizes(kind, inputs)) for kind, _ in places}
    expected = sum(counts.values())
    if keys and len(keys) != expected:
        raise SoonerError(
            f"media_keys has {len(keys)} keys, the inputs show {expected} pictures and clips; give "
            "one for each, in the order of the prompt, or none"
        )
    is_apart = len(order) == expected
    named = dict(zip((entry[1:] for entry in order), keys, strict=False))
    return {
        kind: [
            MediaItem(
                _key(kind, number, inputs, counts[kind], len(parts), tokens,
                     named[kind, number] if keys and is_apart else " ".join(keys)),
                tokens,
                kind,
            )
            for number, tokens in enumerate(parts)
        ]
        for kind, parts in places
    }  # fmt: skip


def count_media(inputs: Mapping[str, Any]) -> int:
    """Returns pictures and clips that inputs show, as `media_of` counts them."""
    kinds = (kind for kind, name in PIXELS.items() if isinstance(inputs.get(name), Tensor))
    return sum(len(_sizes(kind, inputs)) for kind in kinds)


def parts_of(inputs: Mapping[str, Tensor], count: int) -> list[dict[str, Tensor]] | None:
    """Returns the arguments of each item's pixels, or `None` where they can't be taken apart.

    Args:
        inputs: tensors that a tower's method was called with, for items of one kind.
        count: number of items.
    """
    grids = next((inputs[name] for name in GRIDS.values() if name in inputs), None)
    parts: list[dict[str, Tensor]] = [{} for _ in range(count)]
    for name, value in inputs.items():
        if name in PIXELS.values() and grids is not None:
            patches = grids.prod(-1).tolist()
            if len(patches) != count or sum(patches) != len(value):
                return None
            pieces = value.split(patches)
        elif len(value) == count:
            pieces = value.split(1)
        else:
            return None
        for part, piece in zip(parts, pieces, strict=True):
            part[name] = piece
    return parts


def _placeholders(config: Any, kind: str, ids: Tensor) -> list[int]:
    token = next(
        (value for name in TOKENS[kind] if isinstance(value := getattr(config, name, None), int)),
        None,
    )
    return [] if token is None else (ids == token).nonzero()[:, 0].tolist()


def _sizes(kind: str, inputs: Mapping[str, Any]) -> Sequence[Any]:
    """Returns something with as many elements as there are items."""
    sizes: Sequence[Any] | None = inputs.get(GRIDS[kind])
    if sizes is None and kind == "image":
        sizes = inputs.get("image_sizes")
    return inputs[PIXELS[kind]] if sizes is None else sizes


def _split(config: Any, kind: str, tokens: list[int], inputs: Mapping[str, Any]) -> list[list[int]]:
    """Returns the placeholders of each item; all in one list where they can't be told apart."""
    items = len(_sizes(kind, inputs))
    grids = inputs.get(GRIDS[kind])
    counts: list[int] = []
    if grids is not None:
        merge = getattr(getattr(config, "vision_config", None), "spatial_merge_size", None) or 1
        counts = [patches // merge**2 for patches in grids.prod(-1).tolist()]
    elif len(tokens) % items == 0 and (kind == "video" or _same_size(inputs)):
        counts = [len(tokens) // items] * items
    if sum(counts) != len(tokens):
        counts = _runs(tokens)
    if len(counts) != items:
        return [tokens]
    starts = [sum(counts[:number]) for number in range(items)]
    return [tokens[start : start + count] for start, count in zip(starts, counts, strict=True)]


def _same_size(inputs: Mapping[str, Any]) -> bool:
    """Returns whether pictures are known to be as large as each other, and so have as many
    tokens.
    """
    sizes = inputs.get("image_sizes")
    return isinstance(sizes, Tensor) and bool((sizes == sizes[:1]).all())


def _runs(tokens: list[int]) -> list[int]:
    """Returns lengths of the runs of neighbours."""
    counts: list[int] = []
    for before, token in zip([-2, *tokens], tokens, strict=False):
        if token == before + 1:
            counts[-1] += 1
        else:
            counts.append(1)
    return counts


def _key(
    kind: str,
    number: int,
    inputs: Mapping[str, Any],
    items: int,
    parts: int,
    tokens: list[int],
    media_key: str,
) -> bytes:
    """Hash of an item: its content, and everything that its features and positions depend on."""
    digest = blake2b(f"{kind} {len(tokens)} {media_key}".encode(), digest_size=16)
    other = "video" if kind == "image" else "image"
    tensors = {
        name: value
        for name, value in inputs.items()
        if name not in OF_TEXT and other not in name and name != PIXELS[other]
        and isinstance(value, Tensor)
    }  # fmt: skip
    if kind == "video":
        tensors.pop(PIXELS["image"], None)
    grids = inputs.get(GRIDS[kind])
    for name in sorted(tensors):
        value = tensors[name]
        if parts == items and items > 1:  # this item's alone
            if name == PIXELS[kind] and grids is not None:
                patches = grids.prod(-1).tolist()
                start = sum(patches[:number])
                value = value[start : start + patches[number]]
            elif len(value) == items:
                value = value[number : number + 1]
        digest.update(f"{name} {list(value.shape)} {value.dtype}".encode())
        if name != PIXELS[kind] or not media_key:
            digest.update(_bytes(value))
    return digest.digest()


def _bytes(value: Tensor) -> Any:
    flat = value.detach().cpu().contiguous().flatten()
    return flat.view(torch.uint8).numpy() if flat.numel() else b""
