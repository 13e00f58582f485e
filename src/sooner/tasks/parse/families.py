"""Families of document parsers, which `families.toml` lists, and how a model's is recognised."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...documents.regions import FORMULA, PICTURE, TABLE
from .forms import CODE, CropPrompt, FamilyPrompts


@dataclass(frozen=True)
class Family:
    """Holds a family of document parsers.

    Attributes:
        ask: its official prompts, and the forms of its answers.
        source: where these are documented: repositories of GitHub or of Hugging Face's hub, and a
            file in each; `README` is a model card, too.
        types: `model_type` of its checkpoints.
        named: pattern of its checkpoints' names, where others have the same types; empty for all
            of these types.
        longest: pixels of the longer side of the pages that it was trained on; `None` for any, as
            its processor scales pages itself.
        stops: tokens that end its answers beside what its models' generation configs say.
    """

    ask: FamilyPrompts
    source: str
    types: tuple[str, ...]
    named: str = ""
    longest: int | None = None
    stops: tuple[str, ...] = ()


KINDS = {"table": TABLE, "formula": FORMULA, "chart": PICTURE, "code": CODE}
"""Regions that a family may have a prompt of their own for, as its documentation calls them."""


def _family(fields: dict[str, Any]) -> Family:
    """Returns a family from its table in `families.toml`."""
    crops = {KINDS[kind]: CropPrompt(*fields.pop(kind)) for kind in KINDS if kind in fields}
    names = ("page", "form", "region", "region_form", "template")
    ask = FamilyPrompts(by_label=crops, **{name: fields.pop(name, "") for name in names})
    types, stops = (tuple(fields.pop(name, ())) for name in ("types", "stops"))
    return Family(ask, types=types, stops=stops, **fields)


_TABLES = Path(__file__).with_name("families.toml").read_text(encoding="utf-8")

FAMILIES = {name: _family(fields) for name, fields in tomllib.loads(_TABLES).items()}


def recognised(name: str, model_type: str = "") -> str | None:
    """Returns the family of a checkpoint of that name and type; `None` for none of these.

    Args:
        model_type: empty for unknown: then its name matches a pattern, or has a family's in it.
    """
    for entry, family in FAMILIES.items():
        is_type = model_type in family.types if model_type else bool(family.named)
        if is_type and re.search(family.named, name, re.IGNORECASE):
            return entry
    if model_type:
        return None
    letters = _letters(name)
    named = [entry for entry in FAMILIES if _letters(entry) in letters]
    return max((entry for entry in named if not FAMILIES[entry].named), key=len, default=None)


def _letters(name: str) -> str:
    """Returns letters and digits of a name, small."""
    return "".join(filter(str.isalnum, name)).lower()
