"""How many types a version of transformers has, and how many of them are decoded.

`python -m zoo.counts` in tests/ adds the version that is installed to counts.json.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import transformers
from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES

from . import support

FILE = Path(__file__).with_name("counts.json")


def counts() -> dict[str, int]:
    """Returns the number of types, and of those of each status, seen on tiny models."""
    statuses = Counter(row["status"] for row in support.table())
    return {
        "types": len(MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES),
        **{status: statuses[status] for status in ("exact", "words only", "refused")},
    }


def table() -> dict[str, dict[str, int]]:
    """Returns the counts of every version that was tried."""
    versions: dict[str, dict[str, int]] = json.loads(FILE.read_text(encoding="utf-8"))
    return versions


if __name__ == "__main__":
    versions = table() | {transformers.__version__: counts()}
    FILE.write_text(json.dumps(versions, indent=1, sort_keys=True) + "\n", encoding="utf-8")
