"""Which types of transformers' vision-language models are decoded, as the tests found.

`python -m sooner.models.support > docs/models.md` writes the page.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

FILE = Path(__file__).with_name("support.json")
"""Written by `tests/zoo/support.py`, of a tiny random model of every type."""

Status = Literal["exact", "words only", "refused"]

PAGE = """# Models

Every type that transformers {version} lists for reading pictures and writing text, as
`sooner doctor --models` prints them. {exact} are decoded *exactly*: on a tiny random model in fp64,
plain decoding, prompt lookup, chains and trees give the ids of the type's own `generate`, greedy
and sampled, in ragged batches, with pictures and (where it takes them) videos. {chains} of them
have convolutional or recurrent layers; their drafts are chains, and methods that draft trees are
refused by name.
{words} are decoded for *words only* and refuse pictures; {refused} are refused by name. This page
is written by `python -m sooner.models.support > docs/models.md`, its data by
`python -m zoo.support` in `tests/`, and CI holds both to what the tests see.
[Add a model](add-a-model.md) says how to add one.

| type | status | adapter | trees | why not, and what it would take |
|---|---|---|---|---|
"""


@dataclass(frozen=True)
class Support:
    """What is known of one type.

    Attributes:
        model_type: as in transformers' mapping of types that read pictures and write text.
        status: *exact*: every method says what the type's own `generate` says; *words only*: that
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


def page() -> str:
    """Returns the text of docs/models.md."""
    types = supported()
    counts = {
        name: sum(entry.status == status for entry in types)
        for name, status in (("exact", "exact"), ("words", "words only"), ("refused", "refused"))
    }
    chains = sum(entry.status == "exact" and not entry.trees for entry in types)
    rows = [
        f"| `{entry.model_type}` | {entry.status} | {entry.adapter and f'`{entry.adapter}`'} "
        f"| {'yes' if entry.trees else ''} | {entry.reason.replace('|', '/')} |\n"
        for entry in types
    ]
    return PAGE.format(version=seen_with(), chains=chains, **counts) + "".join(rows)


if __name__ == "__main__":
    print(page(), end="")
