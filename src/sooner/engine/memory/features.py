"""What vision towers said of pictures and clips, by the hash of their content."""

from __future__ import annotations

import inspect
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .media import MediaItem, parts_of

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
    """Says how a model hands out features: a class of output, items in a tuple or along an axis."""

    output: type
    is_stacked: bool
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
            made["deepstack_features"] = [
                tuple(item.deep[layer] for item in items) for layer in range(len(self.like.deep))
            ]
        return self.output(**made)


class VisualFeatures:
    """Keeps encoded pictures and clips of one model; the least recently used go first.

    Args:
        limit: bytes.

    Attributes:
        encoded, reused: items that went through the tower, and that did not.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.encoded = self.reused = 0
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
        thread, put = threading.get_ident(), list[str]()
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
                put.append(METHODS[kind])
            yield
        finally:
            for name in put:
                delattr(body, name)

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
            self.reused += len(items)
            return form.output_of([entry for entry in known if entry is not None])
        named = {name: value for name, value in arguments.items() if isinstance(value, Tensor)}
        parts = parts_of(named, len(items))
        if form is None or parts is None or len(missing) == len(items):
            output = original(**arguments)
            made = self._read(kind, output, items)
            self.encoded += len(items)
            for item, entry in zip(items, made, strict=False):
                self._keep(item.key, entry)
            return output
        some = {name: torch.cat([parts[number][name] for number in missing]) for name in parts[0]}
        output = original(**{**arguments, **some})
        made = self._read(kind, output, [items[number] for number in missing])
        if len(made) != len(missing):
            return original(**arguments)
        self.encoded += len(missing)
        self.reused += len(items) - len(missing)
        for number, entry in zip(missing, made, strict=True):
            known[number] = entry
            self._keep(items[number].key, entry)
        return form.output_of([entry for entry in known if entry is not None])

    def _read(self, kind: str, output: Any, items: list[MediaItem]) -> list[Features]:
        """Returns the features of each item in an output; nothing where it holds something else."""
        pooled = getattr(output, "pooler_output", None)
        deep = getattr(output, "deepstack_features", None) or []
        pieces = [pooled, *deep]
        is_stacked = isinstance(pooled, Tensor)
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
        if any(
            len(piece.pooled) != len(item.tokens)
            for piece, item in zip(features, items, strict=True)
        ):
            return []
        self._forms.setdefault(kind, Form(type(output), is_stacked, _first_token(features[0])))
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


def _first_token(features: Features) -> Features:
    return Features(
        features.pooled[:1].clone(), tuple(tensor[:1].clone() for tensor in features.deep)
    )
