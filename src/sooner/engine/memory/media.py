"""The pictures and clips of a prompt: which pixels, which placeholders, which content."""

from __future__ import annotations

import inspect
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import torch
from torch import Tensor
from transformers.modeling_outputs import BaseModelOutputWithPooling

from ...errors import SoonerError
from ...models import Adapter
from .pages import MediaItem

PIXELS = {"image": "pixel_values", "video": "pixel_values_videos"}
GRIDS = {"image": "image_grid_thw", "video": "video_grid_thw"}
TOKENS = {
    "image": ("image_token_id", "image_token_index"),
    "video": ("video_token_id", "video_token_index"),
}
OF_TEXT = {"input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids", "position_ids"}


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
    """Returns whether pictures are known to be of one size, and so of as many tokens."""
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


METHODS = {"image": "get_image_features", "video": "get_video_features"}
"""Where transformers' models encode pixels."""


@dataclass(frozen=True)
class Features:
    """The features that one item has.

    Attributes:
        pooled: `[tokens, hidden]`.
        deep: of each DeepStack layer, `[tokens, hidden]`.
    """

    pooled: Tensor
    deep: tuple[Tensor, ...] = ()

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in (self.pooled, *self.deep))


@dataclass(frozen=True)
class Form:
    """Says how a model hands out features: a class of output, items in a tuple or along an axis.

    Attributes:
        is_joined: whether DeepStack features are a tensor of all items (older transformers).
    """

    output: type
    is_stacked: bool
    is_joined: bool
    like: Features

    def blank(self, tokens: int) -> Features:
        """Returns features of an item that will not be read."""
        return Features(
            self.like.pooled.new_zeros(tokens, self.like.pooled.shape[-1]),
            tuple(tensor.new_zeros(tokens, tensor.shape[-1]) for tensor in self.like.deep),
        )

    def output_of(self, items: Sequence[Features]) -> Any:
        """Returns what the model's own method would return."""
        pooled: Any = tuple(item.pooled for item in items)
        made = {"pooler_output": torch.stack(pooled) if self.is_stacked else pooled}
        if self.like.deep:
            layers = zip(*(item.deep for item in items), strict=True)
            made["deepstack_features"] = [
                torch.cat(layer) if self.is_joined else layer for layer in layers
            ]
        return self.output(**made)


class VisualFeatures:
    """Keeps encoded pictures and clips of one model; the least recently used go first.

    Args:
        limit: bytes.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.nbytes = 0
        self._items: OrderedDict[bytes, Features] = OrderedDict()
        self._forms: dict[str, Form] = {}

    @contextmanager
    def reusing(
        self,
        body: Any,
        media: Mapping[str, list[MediaItem]],
        skipped: frozenset[bytes] = frozenset(),
    ) -> Iterator[None]:
        """While `body` embeds one prompt in this thread, encode only what is not known.

        Args:
            body: the module whose forward encodes pixels.
            media: what the prompt shows.
            skipped: keys of items whose features will not be read.
        """
        thread = threading.get_ident()
        originals = {
            kind: getattr(body, name)
            for kind, name in METHODS.items()
            if media.get(kind) and callable(getattr(body, name, None))
        }
        is_inside = False  # a model's method for clips may call the one for pictures

        def instead(kind: str) -> Callable[..., Any]:
            original = originals[kind]
            signature = inspect.signature(original)

            def encode(*args: Any, **kwargs: Any) -> Any:
                nonlocal is_inside
                if threading.get_ident() != thread or is_inside:
                    return original(*args, **kwargs)
                arguments = signature.bind(*args, **kwargs).arguments
                is_inside = True
                try:
                    return self._encode(original, media[kind], kind, skipped, arguments)
                finally:
                    is_inside = False

            return encode

        try:
            for kind in originals:
                setattr(body, METHODS[kind], instead(kind))
            yield
        finally:
            for kind in originals:  # another thread may have taken it off
                vars(body).pop(METHODS[kind], None)

    def _encode(
        self,
        original: Callable[..., Any],
        items: list[MediaItem],
        kind: str,
        skipped: frozenset[bytes],
        arguments: Mapping[str, Any],
    ) -> Any:
        arguments = {**arguments, **arguments.get("kwargs", {})}
        arguments.pop("kwargs", None)
        known = [self._find(item.key) for item in items]
        form = self._forms.get(kind)
        if form is not None:
            known = [
                form.blank(len(item.tokens)) if entry is None and item.key in skipped else entry
                for item, entry in zip(items, known, strict=True)
            ]
        missing = [number for number, entry in enumerate(known) if entry is None]
        if form is not None and not missing:
            return form.output_of([entry for entry in known if entry is not None])
        named = {name: value for name, value in arguments.items() if isinstance(value, Tensor)}
        parts = parts_of(named, len(items))
        if form is None or parts is None or len(missing) == len(items):
            output = original(**arguments)
            made = self._read(kind, output, items)
            for item, entry in zip(items, made, strict=False):
                self._keep(item.key, entry)
            return output
        some = {name: torch.cat([parts[number][name] for number in missing]) for name in parts[0]}
        output = original(**{**arguments, **some})
        made = self._read(kind, output, [items[number] for number in missing])
        if len(made) != len(missing):
            return original(**arguments)
        for number, entry in zip(missing, made, strict=True):
            known[number] = entry
            self._keep(items[number].key, entry)
        return form.output_of([entry for entry in known if entry is not None])

    def _read(self, kind: str, output: Any, items: list[MediaItem]) -> list[Features]:
        """Returns the features of each item in an output; nothing where it holds something else."""
        pooled = getattr(output, "pooler_output", None)
        deep = getattr(output, "deepstack_features", None) or []
        is_stacked, is_joined = isinstance(pooled, Tensor), any(map(torch.is_tensor, deep))
        counts = [len(item.tokens) for item in items]
        if is_joined and any(len(layer) != sum(counts) for layer in deep):
            return []
        pieces = [pooled, *(layer.split(counts) if is_joined else layer for layer in deep)]
        if not all(isinstance(piece, (Tensor, tuple, list)) for piece in pieces):
            return []
        if len(items) == 1:  # it may stand for several that can't be told apart
            pieces = [
                piece.flatten(0, -2)[None]
                if isinstance(piece, Tensor)
                else [torch.cat(tuple(piece))]
                for piece in pieces
            ]
        if any(len(piece) != len(items) for piece in pieces):
            return []
        features = [Features(parts[0], tuple(parts[1:])) for parts in zip(*pieces, strict=True)]
        if [len(piece.pooled) for piece in features] != counts:
            return []
        like = _first_token(features[0])
        self._forms.setdefault(kind, Form(class_of(output), is_stacked, is_joined, like))
        return features

    def _find(self, key: bytes) -> Features | None:
        if (entry := self._items.get(key)) is not None:
            self._items.move_to_end(key)
        return entry

    def _keep(self, key: bytes, features: Features) -> None:
        if key in self._items or features.nbytes > self.limit:
            return
        # Copies: a piece of all that was encoded together would keep the whole.
        stored = Features(
            features.pooled.clone(), tuple(tensor.clone() for tensor in features.deep)
        )
        self._items[key] = stored
        self.nbytes += stored.nbytes
        while self.nbytes > self.limit:
            _, gone = self._items.popitem(last=False)
            self.nbytes -= gone.nbytes


def class_of(output: Any) -> type:
    """Returns the class that makes outputs like one of a `get_..._features`."""
    made = type(output)  # older SmolVLM sets `pooler_output` on a class without
    return made if hasattr(made, "pooler_output") else BaseModelOutputWithPooling


def _first_token(features: Features) -> Features:
    return Features(
        features.pooled[:1].clone(), tuple(tensor[:1].clone() for tensor in features.deep)
    )
