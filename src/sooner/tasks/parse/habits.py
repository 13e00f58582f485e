"""What a model's own folder says about parsing with it; no torch."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import SoonerError, unknown
from .forms import FORMS, Ask

NAME = "sooner.json"
KEYS = ("prompt", "form", "region_prompt", "region_form", "size")


@dataclass(frozen=True)
class Habits:
    """What a model was trained on.

    Attributes:
        ask: what it is asked, and in what form it answers; `None` is what its family has.
        size: width and height of the pages that it reads, in pixels; `None` for any.
    """

    ask: Ask | None = None
    size: tuple[int, int] | None = None


def habits_of(model: str) -> Habits:
    """Habits from `sooner.json` in a model's folder, none without it:

        {"parse": {"prompt": "read the page", "form": "markdown-spaced", "size": [512, 640]}}

    `region_prompt` and `region_form` are about a region's crop, by default those of the page.

    Args:
        model: a folder, or a hub id, of which nothing is known.

    Raises:
        SoonerError: the file is not like that.
    """
    path = Path(model).expanduser() / NAME
    if not path.is_file():
        return Habits()
    try:
        told = json.loads(path.read_text(encoding="utf-8")).get("parse", {})
        return _read(told)
    except (OSError, ValueError, TypeError, AttributeError) as error:
        text = " ".join(str(error).split())[:100]
        raise SoonerError(f"'{path}' can't be used: {text}; correct it or take it away") from error


def _read(told: dict[str, Any]) -> Habits:
    for name in told:
        if name not in KEYS:
            raise unknown("key", name, KEYS)
    for name in ("form", "region_form"):
        if name in told and told[name] not in FORMS:
            raise unknown("form", str(told[name]), FORMS)
    size = told.get("size")
    if size is not None:
        width, height = (int(side) for side in size)
        if min(width, height) < 1:
            raise SoonerError(f"size is {size}; both sides must be 1 or more")
        size = (width, height)
    if "prompt" not in told:
        if "form" in told or "region_prompt" in told:
            raise SoonerError("it has a form but no prompt")
        return Habits(None, size)
    ask = Ask(
        str(told["prompt"]),
        told.get("form", "markdown"),
        str(told.get("region_prompt", "")),
        told.get("region_form", ""),
    )
    return Habits(ask, size)
