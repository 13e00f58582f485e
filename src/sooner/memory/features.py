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
    """Features of one item.

    Attributes:
        pooled: `[tokens, hidden]`.
        deep: of each DeepStack layer, `[tokens, hidden]`.
    """

    pooled: Tensor
    deep: tuple[Tensor, ...] = ()

    @property
    def nbytes(self) -> int:
        return sum(one.nbytes for one in (self.pooled, *self.deep))


@dataclass(frozen=True)
class Form:
    """How a model hands out features: a class of output, items in a tuple or along an axis."""

    output: type
    is_stacked: bool
    like: Features

    def blank(self, tokens: int) -> Features:
        """Returns features of an item that nobody will look at."""
        return Features(
            self.like.pooled.new_zeros(tokens, self.like.pooled.shape[-1]),
            tuple(one.new_zeros(tokens, one.shape[-1]) for one in self.like.deep),
        )

    def output_of(self, items: Sequence[Features]) -> Any:
        """Returns what the model's own method would return."""
        pooled: Any = tuple(one.pooled for one in items)
        made = {"pooler_output": torch.stack(pooled) if self.is_stacked else pooled}
        if self.like.deep:
            made["deepstack_features"] = [
                tuple(one.deep[layer] for one in items) for layer in range(len(self.like.deep))
            ]
        return self.output(**made)


class VisualFeatures:
    """Encoded pictures and clips of one model; the least recently used go first.

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
            skipped: keys of items whose features nobody will look at.
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
                given = signature.bind(*args, **kwargs).arguments
                is_inside = True
                try:
                    return self._encode(original, media[kind], kind, skipped, given)
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
        given: Mapping[str, Any],
    ) -> Any:
        given = {**given, **given.get("kwargs", {})}
        given.pop("kwargs", None)
        known = [self._find(item.key) for item in items]
        form = self._forms.get(kind)
        if form is not None:
            known = [
                form.blank(len(item.tokens)) if one is None and item.key in skipped else one
                for item, one in zip(items, known, strict=True)
            ]
        missing = [number for number, one in enumerate(known) if one is None]
        if form is not None and not missing:
            self.reused += len(items)
            return form.output_of([one for one in known if one is not None])
        named = {name: value for name, value in given.items() if isinstance(value, Tensor)}
        parts = parts_of(named, len(items))
        if form is None or parts is None or len(missing) == len(items):
            output = original(**given)
            made = self._read(kind, output, items)
            self.encoded += len(items)
            for item, one in zip(items, made, strict=False):
                self._keep(item.key, one)
            return output
        some = {name: torch.cat([parts[number][name] for number in missing]) for name in parts[0]}
        output = original(**{**given, **some})
        made = self._read(kind, output, [items[number] for number in missing])
        if len(made) != len(missing):
            return original(**given)
        self.encoded += len(missing)
        self.reused += len(items) - len(missing)
        for number, one in zip(missing, made, strict=True):
            known[number] = one
            self._keep(items[number].key, one)
        return form.output_of([one for one in known if one is not None])

    def _read(self, kind: str, output: Any, items: list[MediaItem]) -> list[Features]:
        """Returns the features of each item in an output; nothing where it holds something else."""
        pooled = getattr(output, "pooler_output", None)
        deep = getattr(output, "deepstack_features", None) or []
        pieces = [pooled, *deep]
        is_stacked = isinstance(pooled, Tensor)
        if not all(isinstance(one, (Tensor, tuple, list)) for one in pieces):
            return []
        if len(items) == 1:  # it may stand for several that can't be told apart
            pieces = [
                one.flatten(0, -2)[None] if isinstance(one, Tensor) else [torch.cat(tuple(one))]
                for one in pieces
            ]
        if any(len(one) != len(items) for one in pieces):
            return []
        features = [Features(own[0], tuple(own[1:])) for own in zip(*pieces, strict=True)]
        if any(
            len(one.pooled) != len(item.tokens) for one, item in zip(features, items, strict=True)
        ):
            return []
        self._forms.setdefault(kind, Form(type(output), is_stacked, _first_token(features[0])))
        return features

    def _find(self, key: bytes) -> Features | None:
        if (found := self._items.get(key)) is not None:
            self._items.move_to_end(key)
        return found

    def _keep(self, key: bytes, features: Features) -> None:
        if key in self._items or features.nbytes > self.limit:
            return
        # Copies: a piece of all that was encoded together would keep the whole.
        own = Features(features.pooled.clone(), tuple(one.clone() for one in features.deep))
        self._items[key] = own
        self.nbytes += own.nbytes
        while self.nbytes > self.limit:
            _, gone = self._items.popitem(last=False)
            self.nbytes -= gone.nbytes


def _first_token(features: Features) -> Features:
    return Features(features.pooled[:1].clone(), tuple(one[:1].clone() for one in features.deep))
