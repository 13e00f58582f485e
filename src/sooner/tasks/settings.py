"""What a job is asked for: frozen, checked when made, hashable to a short text. Needs no torch."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ..errors import SoonerError, unknown
from ..registry import choices

PREFILLS = ("auto", "fastv", "sparsevlm", "pyramiddrop", "dycoke", "visionzip")
"""Sparse prefills that are known by name; any other is a pattern file."""
DEFAULT_PRUNE = 0.9
"""Share of the visual tokens that a pruned draft does without, as in the papers."""


@dataclass(frozen=True)
class CaptionSettings:
    """How a video is captioned.

    Attributes:
        method: a choice of `sooner.registry`; `None` is `eagle` with a head, `speculative` or
            `parallel`, whichever is measured to be faster, with a draft that sees, else
            `prompt-lookup`.
        window: draft tokens a round, nodes of the tree for `eagle`, or `"auto"`.
        head: folder of a draft head that was trained for the model, for `eagle`.
        prune: share of the visual tokens that the draft of `parallel`, `specvlm` or
            `sparse-to-dense` does without; `None` is `DEFAULT_PRUNE`.
        placement: where the draft of `parallel` runs.
        frames: frames sampled from each video; `None` leaves it to the model's processor.
        fps: frames sampled a second of video, instead of `frames`.
        prompt: what the model is asked; `None` is the miniature's own or a general one.
        max_new_tokens: where a caption is cut.
        temperature: 0 is greedy; above it, tokens are sampled.
        top_p: share of the probability that sampling draws from.
        seed: of the draws.
        compare: decode plainly too, and report speed-up and parity.
        prefill: what makes the prompt cheaper, and the result *approximate*: a pattern file, `auto`
            for patterns that nobody searched, or one of `PREFILLS`, with the share of visual tokens
            that it drops behind a colon. `None` is the model's own prefill.
        prefill_chunk: prompt tokens that are prefilled at once; `None` is all of them. With
            patterns, whose attention needs the whole prompt, those that pass an MLP at once.
        prefill_recall: measure what patterns keep of the attention, which takes time of its own.

    Raises:
        SoonerError: a value out of range, or two that contradict each other.
    """

    method: str | None = None
    window: int | Literal["auto"] = "auto"
    prune: float | None = None
    placement: str = "auto"
    frames: int | None = None
    fps: float | None = None
    prompt: str | None = None
    max_new_tokens: int = 512
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    compare: bool = False
    prefill: str | None = None
    prefill_chunk: int | None = None
    prefill_recall: bool = False
    head: str | None = None

    def __post_init__(self) -> None:
        if self.method is not None:
            if self.method not in choices():
                raise unknown("method", self.method, choices())
            if choices()[self.method].draft_model == "head" and self.head is None:
                raise SoonerError(
                    f"method '{self.method}' needs a draft head; give --head (`sooner train draft` "
                    "trains one)"
                )
        if self.head is not None and self.method not in (None, "eagle"):
            raise SoonerError(
                f"head '{self.head}' is for method 'eagle', not for '{self.method}'; leave one of "
                "them out"
            )
        if self.frames is not None and self.fps is not None:
            raise SoonerError(
                f"frames={self.frames} and fps={self.fps:g} contradict each other; give one of them"
            )
        _at_least(1, frames=self.frames, max_new_tokens=self.max_new_tokens)
        _at_least(1, prefill_chunk=self.prefill_chunk)
        if self.prefill is not None:
            parse_prefill(self.prefill)
        if self.window != "auto":
            _at_least(1, window=self.window)
        if self.prune is not None and not 0 <= self.prune <= 1:
            raise SoonerError(f"prune is {self.prune:g}; it must lie in 0 to 1")
        if self.fps is not None and not 0 < self.fps < float("inf"):
            raise SoonerError(f"fps is {self.fps:g}; it must be above 0")
        if not 0 <= self.temperature < float("inf"):
            raise SoonerError(f"temperature is {self.temperature:g}; it must be 0 (greedy) or more")
        if not 0 < self.top_p <= 1:
            raise SoonerError(f"top_p is {self.top_p:g}; it must be above 0 and at most 1")
        if self.top_p < 1 and self.is_greedy:
            raise SoonerError(f"top_p is {self.top_p:g}, but temperature 0 is greedy; raise it")

    @classmethod
    def from_dict(cls, options: Mapping[str, Any]) -> CaptionSettings:
        """Build settings from plain data; unknown keys are refused by name."""
        names = [field.name for field in dataclasses.fields(cls)]
        for key in options:
            if key not in names:
                raise unknown("setting", str(key), names)
        return cls(**options)

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0

    def generation_options(self) -> dict[str, Any]:
        """The options of `generate` that choose tokens."""
        if self.is_greedy:
            return {"do_sample": False}
        return {"do_sample": True, "temperature": self.temperature, "top_p": self.top_p}

    def digest(self, *others: Any) -> str:
        """A short hash of these settings and `others` (models, dtype), stable between runs."""
        patterns = None if self.prefill is None else parse_prefill(self.prefill).digest()
        text = json.dumps([dataclasses.asdict(self), patterns, *others], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class PrefillChoice:
    """A sparse prefill as it was asked for.

    Attributes:
        name: one of `PREFILLS`; empty for a pattern file.
        ratio: share of the visual tokens that is dropped; `None` is the pruner's own.
        file: the pattern file.
    """

    name: str = ""
    ratio: float | None = None
    file: Path | None = None

    def digest(self) -> str | None:
        """Hash of the pattern file's content; a file may change under its name."""
        return None if self.file is None else hashlib.sha256(self.file.read_bytes()).hexdigest()


def parse_prefill(text: str) -> PrefillChoice:
    """A name of `PREFILLS`, a pruner's name with `:ratio`, or a pattern file.

    Raises:
        SoonerError: none of these; or a ratio that is no share, or not a pruner's.
    """
    name, colon, share = text.partition(":")
    if name in PREFILLS:
        return PrefillChoice(name, _ratio(text, name, share) if colon else None)
    file = Path(text)
    if file.is_file():
        return PrefillChoice(file=file)
    if file.suffix or len(file.parts) > 1:
        raise SoonerError(
            f"pattern file '{text}' does not exist; `sooner search patterns` makes one"
        )
    raise unknown("prefill", name, PREFILLS)


def _ratio(text: str, name: str, share: str) -> float:
    if name == "auto":
        raise SoonerError(f"prefill is '{text}', but 'auto' drops nothing; leave ':{share}' out")
    try:
        ratio = float(share)
    except ValueError:
        ratio = -1.0
    if not 0 <= ratio <= 1:
        raise SoonerError(f"prefill is '{text}'; behind the colon is a share in 0 to 1")
    return ratio


def parse_window(text: str, name: str = "window") -> int | Literal["auto"]:
    """`auto` or a whole number of 1 or more, from the command line."""
    if text == "auto":
        return "auto"
    try:
        return int(text)
    except ValueError:
        raise SoonerError(
            f"{name} is '{text}'; it must be 'auto' or a whole number of 1 or more"
        ) from None


def _at_least(least: int, **values: Any) -> None:
    for name, value in values.items():
        if value is not None and (not isinstance(value, int) or value < least):
            raise SoonerError(f"{name} is {value!r}; it must be a whole number of {least} or more")
