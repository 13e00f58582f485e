"""What a model was trained to be asked: by its folder, its name, its type, or as a caller says."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...checks import check_choice, check_keys
from ...errors import SoonerError
from .families import FAMILIES, recognised
from .forms import FORMS, GENERAL, FamilyPrompts

NAME = "sooner.json"

KEYS = ("prompt", "form", "region_prompt", "region_form", "size", "longest", "family")


@dataclass(frozen=True)
class Habits:
    """Prompts, output format and page size that a model was trained with.

    Attributes:
        ask: what it is asked, and in what form it answers; `None` is what its family has.
        size: width and height of the pages that it reads, in pixels; `None` for any.
        longest: pixels of the longer side of pages that it reads best; `None` for unknown.
        family: name of the family that it is of (`families.py`); `None` for what its own name and
            type say.
    """

    ask: FamilyPrompts | None = None
    size: tuple[int, int] | None = None
    longest: int | None = None
    family: str | None = None


def habits_of(model: str) -> Habits:
    """Returns habits from `sooner.json` in a model's folder, none without it:

        {"parse": {"prompt": "read the page", "form": "markdown-spaced", "size": [512, 640]}}

    `region_prompt` and `region_form` are about a region's crop, by default those of the page. In
    place of prompts, `"family": "olmocr"` says that it is a finetune of a known family.

    Args:
        model: a folder, or a hub id, of which nothing is known.

    Raises:
        SoonerError: the file is not like that.
    """
    path = Path(model).expanduser() / NAME
    if not path.is_file():
        return Habits()
    try:
        return _read(json.loads(path.read_text(encoding="utf-8")).get("parse", {}))
    except (OSError, ValueError, TypeError, AttributeError) as error:
        text = " ".join(str(error).split())[:100]
        raise SoonerError(f"'{path}' can't be used: {text}; correct it or take it away") from error


def _read(data: dict[str, Any]) -> Habits:
    check_keys("key", data, KEYS)
    for name in ("form", "region_form"):
        if name in data:
            check_choice("form", data[name], FORMS)
    if data.get("family") is not None:
        check_choice("family", data["family"], FAMILIES)
    size, longest, ask = data.get("size"), data.get("longest"), None
    if size is not None:
        width, height = (int(side) for side in size)
        if min(width, height) < 1:
            raise SoonerError(f"size is {size}; both sides must be 1 or more")
        size = (width, height)
    if longest is not None and int(longest) < 1:
        raise SoonerError(f"longest is {longest}; it must be 1 or more")
    if "prompt" in data:
        region = str(data.get("region_prompt", "")), data.get("region_form", "")
        ask = FamilyPrompts(str(data["prompt"]), data.get("form", "markdown"), *region)
    elif "form" in data or "region_prompt" in data:
        raise SoonerError("it has a form but no prompt")
    return Habits(ask, size, None if longest is None else int(longest), data.get("family"))


def known_habits(model: str, model_type: str = "", chosen: str | None = None) -> Habits:
    """Returns what a model was trained with: what its folder says, and else its family.

    Its family is what the caller has `chosen`, else what the folder's `sooner.json` names, else the
    one of its name and type. A finetune in a folder of another name is not recognised, if its base
    is no parser.

    Args:
        model: a folder or hub id.
        model_type: of its config; empty for unknown, where its name alone must tell.
        chosen: a family by whose prompts it is asked whatever its folder says.

    Raises:
        SoonerError: an unknown family, or a broken `sooner.json`.
    """
    habits = habits_of(model)
    name = chosen or habits.family or recognised(base_name(model), model_type)
    if name is None:
        return habits
    check_choice("family", name, FAMILIES)
    family = FAMILIES[name]
    ask = family.ask if chosen is not None or habits.ask is None else habits.ask
    return replace(habits, ask=ask, longest=habits.longest or family.longest, family=name)


def type_of(model: str) -> str:
    """Returns the `model_type` in a folder's config.json; empty for a hub id, or without one."""
    try:
        config = json.loads((Path(model).expanduser() / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ""
    return str(config.get("model_type", "")) if isinstance(config, dict) else ""


def base_name(model: str) -> str:
    """Returns the part of a folder or hub id that is the model's own: the last one, but for a
    snapshot of the hub's cache, which is a number.
    """
    path = Path(model).expanduser()
    return path.parent.parent.name if path.parent.name == "snapshots" else path.name


def ask_of(
    known: FamilyPrompts | None = None,
    prompt: str | None = None,
    region_prompt: str | None = None,
    form: str | None = None,
) -> FamilyPrompts:
    """Returns the prompts and formats of a model, all filled in.

    Args:
        known: what it was trained on; without, any model that sees is asked for Markdown.
        prompt, region_prompt, form: what a caller wants instead; regions follow the page.
    """
    ask = known or GENERAL
    if prompt is not None:
        ask = FamilyPrompts(prompt, ask.form, template=ask.template)
    if form is not None:
        ask = replace(ask, form=form, region_form=form, by_label={})
    if region_prompt is not None:
        ask = replace(ask, region=region_prompt, by_label={})
    return replace(ask, region=ask.region or ask.page, region_form=ask.region_form or ask.form)
