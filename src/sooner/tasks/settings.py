"""Settings of a job: frozen, validated on creation, with a digest. Needs no torch."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ..checks import check_fields, option
from ..errors import SoonerError, unknown
from ..registry import choices


def short_hash(*parts: Any) -> str:
    """Returns a short hash of plain data, the same in all runs."""
    text = json.dumps(parts, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def parse_numbers(text: str) -> tuple[int, ...]:
    """Returns the numbers of a text such as `9` or `2,16,29`.

    Raises:
        SoonerError: something else.
    """
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise SoonerError(f"'{text}' is no list of numbers; write it as 9 or 2,16,29") from error


PREFILLS = ("auto", "auto-search", "fastv")
"""Sparse prefills that are known by name; any other is a pattern file."""


@dataclass(frozen=True)
class CaptionSettings:
    """How a video is captioned.

    Attributes:
        method: how drafts are made; by default the head's with one; with a draft `parallel` where
            that sees and has a core or a device of its own, else `speculative`; without any
            `prompt-lookup`.
        num_draft_tokens: draft tokens a round, for `eagle` nodes of the tree.
        prune: share of the visual tokens that the draft of `parallel` does without; by default
            the paper's 0.9.
        placement: where the draft of `parallel` runs: auto, process, spawn or thread.
        frames: frames of each video; by default what the model's processor samples.
        fps: frames a second of video, instead of `frames`.
        prompt: what the model is asked; by default a miniature's own, or a general one.
        max_new_tokens: where an answer is cut.
        temperature: 0 is greedy; above it, tokens are sampled.
        top_p: share of the probability that sampling draws from.
        seed: of the draws.
        compare: decode plainly too, and report speed-up and parity.
        verify_every: rounds after which a committed block is decoded again, plainly; one that
            differs is logged, and ends drafting. 1000 takes at most 1 % of the forwards. By default
            none is.
        prefill: what makes the prompt cheaper, and the result *approximate*: a pattern file, `auto`
            for patterns that are known for the model, or else defaults, `auto-search` to search
            them on the first long prompt if none are known, or `fastv` with the share of visual
            tokens that it drops behind a colon. By default the model's own prefill.
        prefill_chunk: prompt tokens that are prefilled at once, by default 2,048 of long videos, or
            with patterns that look at a prompt's end, which refuse chunks, of their MLPs alone.
        kv_offload: keep the target's keys and values in host memory, for prompts beyond a GPU's.
        prefill_recall: measure what patterns keep of the attention, which takes time of its own.
        head: folder or name of a draft head that was trained for the model (`load_drafter`).

    Raises:
        SoonerError: a value out of range, or two that contradict each other.
    """

    method: str | None = option(
        None, known={name: entry.summary for name, entry in choices().items()}
    )
    num_draft_tokens: int | Literal["auto"] = option("auto")
    prune: float | None = option(None, 0, 1, metavar="SHARE")
    placement: str = option("auto", metavar="NAME")
    frames: int | None = option(None, 1)
    fps: float | None = option(None, 0, above=True)
    prompt: str | None = None
    max_new_tokens: int = option(512, 1)
    temperature: float = option(0.0, 0, hint="; 0 is greedy")
    top_p: float = option(1.0, 0, 1, above=True)
    seed: int = 0
    compare: bool = False
    verify_every: int | None = option(None, 1)
    prefill: str | None = option(None, metavar="FILE|NAME[:SHARE]")
    prefill_chunk: int | None = option(None, 1)
    kv_offload: bool = False
    prefill_recall: bool = False
    head: str | None = option(None, metavar="DIR")

    def __post_init__(self) -> None:
        check_fields(self)
        is_for_head = self.method is not None and choices()[self.method].draft_model == "head"
        if is_for_head and self.head is None:
            raise SoonerError(
                f"method '{self.method}' needs a draft head; give --head (`sooner train draft` "
                "trains one)"
            )
        if self.head is not None and self.method is not None and not is_for_head:
            raise SoonerError(
                f"head '{self.head}' is for a method that takes one, not for '{self.method}'; "
                "leave one of them out"
            )
        if self.frames is not None and self.fps is not None:
            raise SoonerError(
                f"frames={self.frames} and fps={self.fps:g} contradict each other; give one of them"
            )
        if self.prefill is not None:
            parse_prefill(self.prefill)
        if self.top_p < 1 and self.is_greedy:
            raise SoonerError(f"top_p is {self.top_p:g}, but temperature 0 is greedy; raise it")

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0

    def generation_options(self) -> dict[str, Any]:
        """Returns the options of `generate` that choose tokens."""
        if self.is_greedy:
            return {"do_sample": False}
        return {"do_sample": True, "temperature": self.temperature, "top_p": self.top_p}

    def as_options(self) -> list[str]:
        """Returns what differs from the defaults, as options of a command line."""
        options = []
        for item in dataclasses.fields(self):
            value = getattr(self, item.name)
            if item.name != "compare" and value != item.default:
                options += [f"--{item.name.replace('_', '-')}", str(value)][: 2 - (value is True)]
        return options

    def digest(self, *extras: Any) -> str:
        """Hashes these settings and `extras` (models, dtype), the same in all runs."""
        patterns = None if self.prefill is None else parse_prefill(self.prefill).digest()
        values = dataclasses.asdict(self)
        del values["verify_every"], values["kv_offload"]  # which decide nothing
        return short_hash(values, patterns, *extras)


@dataclass(frozen=True)
class PrefillChoice:
    """A sparse prefill as it was asked for.

    Attributes:
        name: one of `PREFILLS`; empty for a pattern file.
        ratio: share of the visual tokens that is dropped; `None` is `FastV`'s own.
        file: the pattern file.
    """

    name: str = ""
    ratio: float | None = None
    file: Path | None = None

    def digest(self) -> str | None:
        """Hash of the pattern file's content; a file may change under its name."""
        return None if self.file is None else hashlib.sha256(self.file.read_bytes()).hexdigest()


def parse_prefill(text: str) -> PrefillChoice:
    """Returns a name of `PREFILLS`, `fastv` with `:ratio`, or a pattern file.

    Raises:
        SoonerError: none of these; or a ratio that is no share, or not that of `fastv`.
    """
    name, _, share = text.partition(":")
    if name in PREFILLS[:2] and share:
        raise SoonerError(f"prefill is '{text}', but '{name}' drops nothing; leave ':{share}' out")
    if name in PREFILLS:
        with suppress(ValueError):
            ratio = float(share) if name != text else None
            if ratio is None or 0 <= ratio <= 1:
                return PrefillChoice(name, ratio)
        raise SoonerError(f"prefill is '{text}'; behind the colon is a share in 0 to 1")
    file = Path(text)
    if file.is_file():
        return PrefillChoice(file=file)
    if Path(name).suffix or len(file.parts) > 1:
        raise SoonerError(
            f"pattern file '{text}' does not exist; `sooner search patterns` makes one"
        )
    raise unknown("prefill", name, PREFILLS)
