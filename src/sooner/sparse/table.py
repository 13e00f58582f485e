"""The pattern of every head of one model, and the file that it is kept in."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from ..checks import check_fields, check_keys, option
from ..errors import SoonerError, reason_of
from ..io import write_json
from ..models import Adapter
from .patterns import Dense, HeadPattern, pattern_from_dict

SCHEMA, KIND = 1, "sooner.patterns"
FIGURES = ("score", "recall", "cost")


@dataclass(frozen=True)
class HeadEntry:
    """What one query head runs, and what a search has measured of it.

    Attributes:
        pattern: the head's pattern; dense heads have `Dense()`.
        score: relative error of the attention output, `|sparse - dense| / |dense|`.
        recall: share of the dense attention that the pattern keeps.
        cost: its time, or FLOPs, relative to dense attention.
    """

    pattern: HeadPattern = field(default_factory=Dense)
    score: float | None = option(None, 0)
    recall: float | None = option(None, 0)
    cost: float | None = option(None, 0)

    def __post_init__(self) -> None:
        check_fields(self)

    def to_dict(self) -> dict[str, Any]:
        """Returns plain data for a pattern file."""
        return {**self.pattern.to_dict(), **{name: getattr(self, name) for name in FIGURES}}

    @classmethod
    def from_dict(cls, options: Mapping[str, Any]) -> HeadEntry:
        """Reads an entry from what `to_dict` wrote.

        Raises:
            SoonerError: an unknown pattern or option, or a figure that is no number.
        """
        if not isinstance(options, Mapping):
            raise SoonerError(f"a head is an object with the key 'pattern', not {options!r}")
        rest = {name: value for name, value in options.items() if name not in FIGURES}
        return cls(pattern_from_dict(rest), **{name: options.get(name) for name in FIGURES})


@dataclass(frozen=True)
class PatternTable:
    """The patterns that all heads of one model have.

    Attributes:
        model: hub id or folder of the model, or its class name; for people.
        fingerprint: of the text config's shapes, see `fingerprint`; for checks.
        layers: one `HeadEntry` for each query head of each decoder layer, dense ones explicit.
        dense_below: prompt tokens below which dense attention was faster; 0 for always sparse.
        frame_tokens: tokens of a video frame in the samples, `None` where there were no videos.
        samples: SHA-256 of each sample file.
        about: device, versions, settings of the search, notes; plain data.
    """

    model: str
    fingerprint: str
    layers: tuple[tuple[HeadEntry, ...], ...]
    dense_below: int = option(0, 0)
    frame_tokens: int | None = None
    samples: tuple[str, ...] = ()
    about: dict[str, Any] = field(default_factory=dict, hash=False)

    @classmethod
    def uniform(cls, adapter: Adapter, pattern: HeadPattern, dense_below: int = 0) -> PatternTable:
        """Returns one pattern for all heads of a model."""
        return cls(
            model=model_name(adapter),
            fingerprint=fingerprint(adapter),
            layers=tuple((HeadEntry(pattern),) * heads for heads, *_ in head_shapes(adapter)),
            dense_below=dense_below,
        )

    @classmethod
    def load(cls, path: Path | str, adapter: Adapter | None = None) -> PatternTable:
        """Read a pattern file.

        Args:
            adapter: the model that it has to be for.

        Raises:
            SoonerError: no pattern file, another schema, an unknown pattern, or another model's;
                says which, and the way out.
        """
        try:
            table = cls.from_dict(json.loads(Path(path).read_text()))
            if adapter is not None:
                table.check(adapter)
        except json.JSONDecodeError as error:
            raise SoonerError(f"pattern file '{path}' is no JSON: {error}") from error
        except (OSError, TypeError, ValueError) as error:  # the last of which SoonerError is
            raise SoonerError(f"pattern file '{path}': {reason_of(error)}") from error
        return table

    @classmethod
    def from_dict(cls, data: Any) -> PatternTable:
        """Reads a table from what `to_dict` wrote.

        Raises:
            SoonerError: as `load`.
        """
        if not isinstance(data, dict) or data.get("kind") != KIND:
            raise SoonerError(f"it is no pattern file, which has the kind '{KIND}'")
        if data.get("schema") != SCHEMA:
            raise SoonerError(
                f"it has schema {data.get('schema')!r}, this version reads {SCHEMA}; search again"
            )
        data = {name: value for name, value in data.items() if name not in ("kind", "schema")}
        check_keys("key", data, cls)
        if missing := [name for name in ("model", "fingerprint", "layers") if name not in data]:
            raise SoonerError(f"it lacks {', '.join(missing)}; search again, or take another file")
        layers = tuple(_read_layer(number, layer) for number, layer in enumerate(data["layers"]))
        samples = tuple(data.get("samples", ()))
        return cls(**{**data, "layers": layers, "samples": samples})

    def __post_init__(self) -> None:
        check_fields(self)

    def to_dict(self) -> dict[str, Any]:
        """Returns plain data, schema included."""
        plain = {name.name: getattr(self, name.name) for name in fields(self)}
        plain["layers"] = [[head.to_dict() for head in layer] for layer in self.layers]
        return {"kind": KIND, "schema": SCHEMA, **plain, "samples": list(self.samples)}

    def save(self, path: Path | str) -> None:
        """Write the pattern file.

        Raises:
            SoonerError: it can't be written.
        """
        try:
            write_json(self.to_dict(), path)
        except OSError as error:
            raise SoonerError(f"'{path}' can't be written: {error.strerror}") from error

    def check(self, adapter: Adapter) -> None:
        """Refuse another model.

        Raises:
            SoonerError: names what differs.
        """
        expected = [heads for heads, *_ in head_shapes(adapter)]
        shape = [len(layer) for layer in self.layers]
        if expected != shape:
            has, wants = ("/".join(map(str, sorted({*counts}))) for counts in (shape, expected))
            raise SoonerError(
                f"it has {len(shape)} layers of {has} heads, but {model_name(adapter)} has "
                f"{len(expected)} of {wants}; search patterns for this model"
            )
        ours = fingerprint(adapter)
        if ours != self.fingerprint:
            theirs = self.fingerprint.split()
            differs = ", ".join(part for part in ours.split() if part not in theirs)
            raise SoonerError(
                f"it is for {self.model}, and {model_name(adapter)} differs in {differs}; search "
                "patterns for this model"
            )


def _read_layer(number: int, layer: Any) -> tuple[HeadEntry, ...]:
    if not isinstance(layer, list):
        raise SoonerError(f"layer {number} is no list of heads; search again")
    made = []
    for place, head in enumerate(layer):
        try:
            made.append(HeadEntry.from_dict(head))
        except SoonerError as error:
            raise type(error)(f"layer {number}, head {place}: {error}") from error
    return tuple(made)


def fingerprint(adapter: Adapter) -> str:
    """Returns what patterns depend on: `name=value` of the text config, and a hash of its RoPE."""
    config = adapter.text_config
    rope = getattr(config, "rope_parameters", None) or {"theta": getattr(config, "rope_theta", 0)}
    # A base of 100000 is one of 1e5: checkpoints of one model in two formats differ in that.
    rope = json.loads(json.dumps(rope, default=str), parse_int=float)
    digest = hashlib.sha256(json.dumps(rope, sort_keys=True).encode()).hexdigest()
    # A number for all layers, or, where they differ, one for each.
    heads, kv_heads, head_dim = (
        ",".join(map(str, sizes if len({*sizes}) > 1 else sizes[:1]))
        for sizes in zip(*head_shapes(adapter), strict=True)
    )
    shapes = {
        "model_type": config.model_type,
        "layers": adapter.layers,
        "heads": heads,
        "kv_heads": kv_heads,
        "head_dim": head_dim,
        "hidden": config.hidden_size,
        "rope": digest[:12],
    }
    return " ".join(f"{name}={value}" for name, value in shapes.items())


def head_shapes(adapter: Adapter) -> list[tuple[int, int, int]]:
    """Returns query heads, key heads and width of a head of each decoder layer."""
    shapes = []
    for layer in adapter.text_config.per_layer_config[: adapter.layers]:  # Gemma 4's are of two
        heads = layer.num_attention_heads
        kv_heads = getattr(layer, "num_key_value_heads", None) or heads
        shapes.append(
            (heads, kv_heads, getattr(layer, "head_dim", 0) or layer.hidden_size // heads)
        )
    return shapes


def windowed_layers(adapter: Adapter) -> frozenset[int]:
    """Returns the layers in which a token sees a window or a chunk of those before it: patterns
    leave them to the model's own attention."""
    windows = adapter.windows
    kinds = getattr(adapter.text_config, "layer_types", None) or [""] * adapter.layers
    numbers = range(adapter.layers)
    return frozenset(number for number in numbers if any(windows.get(kinds[number], ())))


def model_name(adapter: Adapter) -> str:
    """Hub id or folder of a model, or its class name where it was never saved."""
    return getattr(adapter.model, "name_or_path", "") or type(adapter.model).__name__
