"""Which types of transformers' vision-language models are decoded, as the tests found."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

FILE = Path(__file__).with_name("support.json")
"""Written by `tests/zoo/support.py`, of a tiny random model of every type."""

Status = Literal["exact", "words only", "refused"]


@dataclass(frozen=True)
class Support:
    """What is known of one type.

    Attributes:
        model_type: as in transformers' mapping of types that read pictures and write text.
        status: *exact*: every method gives the ids of the type's own `generate`; *words only*: that
            holds for prompts without pictures, others are refused; *refused*.
        adapter: the class that decodes it, or `generic`.
        trees: whether drafts may be trees.
        reason: why it is refused, or its pictures are, and what it would take.
    """

    model_type: str
    status: Status
    adapter: str
    trees: bool
    reason: str = ""


@cache
def _file() -> dict[str, Any]:
    data: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return data


def supported() -> list[Support]:
    """Returns every type that is known, in alphabetical order."""
    return [Support(**entry) for entry in _file()["types"]]


def seen_with() -> str:
    """Returns the version of transformers whose types these are."""
    return str(_file()["transformers"])
