"""Which types of transformers' vision-language models are decoded, as the tests found.

`python -m sooner.models.support > docs/models.md` writes the page.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

FILE = Path(__file__).with_name("support.json")
"""Written by `tests/zoo/support.py`, of a tiny random model of every type."""

Status = Literal["exact", "words only", "refused"]

PAGE = """# Models

`sooner doctor --models` prints this list: the {total} types of transformers {version} that read
pictures and write text. What cannot be decoded exactly is refused, and the error says what it would
take.

| | types |
|---|---|
| decoded exactly | {exact} |
| of these by chains only | {chains} |
| words only: pictures are refused | {words} |
| refused | {refused} |

*Exactly* means: on a tiny random model in fp64, plain decoding, prompt lookup, chains and trees
give the ids of the type's own `generate`, greedy and sampled, in ragged batches, with pictures and
(where it takes them) videos. Types with convolutional or recurrent layers take chains only.

Adapters beside these: `llama` and `qwen2` (text), `openvla` (actions), `cosmos_ar` (clips), and
`dots_ocr` and `DeepseekOCR`, which are code of their checkpoints (`--trust-remote-code`).
[Add a model](add-a-model.md) says how to add one.

## Decoded exactly

"""

END = """
This page is written by `python -m sooner.models.support > docs/models.md`, its data by
`python -m zoo.support` in `tests/`. CI holds both to what the tests see.
"""


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


ADVICE = re.compile(r"(; (decode it with its own|write an adapter)|, or write an adapter).*")
SECTIONS: tuple[Status, ...] = ("words only", "refused")
"""Sections of the page after the types that are exact."""


def page() -> str:
    """Returns the text of docs/models.md."""
    types = supported()
    exact = [entry for entry in types if entry.status == "exact"]
    rest = {name: [entry for entry in types if entry.status == name] for name in SECTIONS}
    groups = {
        "an adapter of its own": [entry for entry in exact if entry.adapter != "generic"],
        "the generic adapter": [e for e in exact if e.adapter == "generic" and e.trees],
        "the generic adapter, chains only": [e for e in exact if not e.trees],
    }
    lines = [
        f"By {name}: {', '.join(f'`{entry.model_type}`' for entry in entries)}.\n\n"
        for name, entries in groups.items()
    ]
    for status, entries in rest.items():
        lines.append(f"## {status.capitalize()}\n\n| type | why |\n|---|---|\n")
        lines += [f"| `{entry.model_type}` | {_reason(entry)} |\n" for entry in entries]
        lines.append("\n")
    head = PAGE.format(
        version=seen_with(),
        total=len(types),
        exact=len(exact),
        chains=sum(not entry.trees for entry in exact),
        words=len(rest["words only"]),
        refused=len(rest["refused"]),
    )
    return head + "".join(lines).rstrip() + "\n" + END


def _reason(entry: Support) -> str:
    """Returns why a type is refused, without the advice that all errors give."""
    reason = ADVICE.sub("", entry.reason)
    return reason.replace(" (docs/add-a-model.md)", "").replace("|", "/")


if __name__ == "__main__":
    print(page(), end="")
