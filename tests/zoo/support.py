"""What the zoo found, for the library: `python -m zoo.support` in tests/ writes it there."""

from __future__ import annotations

import functools
import json
from typing import Any

import transformers

import sooner
from sooner.models import FAMILIES, adapt, support

from .species import Species, model_of
from .zoo import ZOO


@functools.cache
def row(species: Species) -> dict[str, Any]:
    """What the table says of a type, seen on its tiny model; cached, so never change it."""
    try:
        adapter: Any = adapt(model_of(species))
    except sooner.SoonerError as error:
        reason = str(error.__cause__ or error)
        return report(species.model_type, "refused", "", False, reason)
    is_family = species.model_type in FAMILIES
    name = type(adapter).__name__ if is_family else "generic"
    status = "words only" if species.unseen else "exact"
    reason = _lacking(species) if species.unseen else ""
    return report(species.model_type, status, name, not adapter.chains_only, reason)


def report(model_type: str, status: str, adapter: str, trees: bool, reason: str) -> dict[str, Any]:
    return {
        "model_type": model_type, "status": status, "adapter": adapter, "trees": trees,
        "reason": reason,
    }  # fmt: skip


def _lacking(species: Species) -> str:
    """Why pictures are refused."""
    model = model_of(species)
    try:
        sooner.generate(model, species.inputs(model, "image", 1, 0), max_new_tokens=1)
    except sooner.SoonerError as error:
        return str(error)
    raise AssertionError(f"{species} reads pictures")


def table() -> list[dict[str, Any]]:
    return [row(ZOO[name]) for name in sorted(ZOO)]


if __name__ == "__main__":
    record = {"transformers": transformers.__version__, "types": table()}
    text = json.dumps(record, indent=1, ensure_ascii=False) + "\n"
    support.FILE.write_text(text, encoding="utf-8")
