"""Writes docs/models.md, the list of model types that are decoded.

usage:
    python tools/models_page.py
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from sooner.models.support import Support, seen_with, supported

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

By the version of transformers that is installed, among the types that it has (those in no other
column were not tried):

{versions}

*Exactly* means: on a tiny random model in fp64, plain decoding, prompt lookup, chains and trees
give the ids of the type's own `generate`, greedy and sampled, in ragged batches, with pictures and
(where it takes them) videos. Types with convolutional or recurrent layers take chains only.
Unlimited-OCR's own `generate` lets rows of a batch see their padding once they are longer than its
window; here they say what it says to each alone.

Adapters beside these: `llama` and `qwen2` (text), `llava_video` (LLaVA-Video and LongVILA with
SigLIP towers, VideoChat-Flash with UMT-L, as published: videos only; other towers, S2, TSP, fast
frames and dropping tokens within the decoder are refused by name), `openvla` (actions),
`cosmos_ar` (clips), and `dots_ocr` and `DeepseekOCR`, which are code of their checkpoints
(`--trust-remote-code`). [Add a model](add-a-model.md) says how to add one.

## Decoded exactly

"""

END = """
This page is written by `python tools/models_page.py`, its data by
`python -m zoo.support` and, for each version, `python -m zoo.counts` in `tests/`. CI holds both to
what the tests see.
"""


ADVICE = re.compile(r"(; (decode it with its own|write an adapter)|, or write an adapter).*")
ROOT = Path(__file__).parents[1]
COUNTS = ROOT / "tests" / "zoo" / "counts.json"
SECTIONS = ("words only", "refused")
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
        versions=_versions(),
        total=len(types),
        exact=len(exact),
        chains=sum(not entry.trees for entry in exact),
        words=len(rest["words only"]),
        refused=len(rest["refused"]),
    )
    return head + "".join(lines).rstrip() + "\n" + END


def _versions() -> str:
    """Returns the table of counts, a version of transformers a row; the rest was not tried."""
    rows = ["| transformers | types | exact | words only | refused |", "|---|---|---|---|---|"]
    table = json.loads(COUNTS.read_text(encoding="utf-8"))
    for version, counts in table.items():
        cells = (counts[name] for name in ("types", "exact", "words only", "refused"))
        rows.append(f"| {version} | {' | '.join(map(str, cells))} |")
    return "\n".join(rows)


def _reason(entry: Support) -> str:
    """Returns why a type is refused, without the advice that all errors give."""
    reason = ADVICE.sub("", entry.reason)
    return reason.replace(" (docs/add-a-model.md)", "").replace("|", "/")


if __name__ == "__main__":
    (ROOT / "docs" / "models.md").write_text(page(), encoding="utf-8")
