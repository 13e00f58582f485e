"""What document parsers are asked, and in what form they answer: by their family, which
`families.toml` lists, by a model's own folder, or as a caller says."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ...checks import check_choice, check_keys, check_whole
from ...documents.boxed_forms import Chandra, DocTags, Grounding, LayoutJson
from ...documents.forms import Blocks, FrontMatter, PageForm
from ...documents.regions import Label, Region
from ...documents.serialise import DOTS, FENCE, Style
from ...errors import SoonerError

MARKDOWN_HTML = Style(tables="html", formulas="dollars")

FORMS: dict[str, PageForm] = {
    "markdown": Blocks(),
    "markdown-spaced": Blocks(Style(tables="pipes", formulas="spaced")),
    "markdown-html": Blocks(MARKDOWN_HTML),
    "markdown-brackets": Blocks(Style(tables="html", formulas="brackets", furniture=False)),
    "text": Blocks(Style(tables="html", formulas="dollars", headings=False)),
    "front-matter": FrontMatter(Style(tables="html", formulas="brackets", furniture=False)),
    "otsl": Blocks(Style(tables="otsl", formulas="brackets", headings=False)),
    "otsl-lines": Blocks(Style(tables="otsl", formulas="bracket-lines", headings=False)),
    "dots": LayoutJson(),
    "dots-text": Blocks(DOTS),
    "deepseek": Grounding(Style(tables="html", formulas="brackets", furniture=False)),
    "doctags": DocTags(),
    "chandra-2": Chandra(),
}
"""Names of `--form`: Markdown; with blanks within dollars, `$$ x $$`; with tables in HTML; those
and formulas in brackets; a region's text, without marks of headings; Markdown behind YAML front
matter; a region's table in OTSL, or formula in brackets, and that with brackets on lines of their
own; dots.ocr's list of boxes, and what it writes about a crop; tags with
labels and boxes of DeepSeek-OCR; DocTags; HTML with boxes."""


CODE = "Code"
"""Regions of code, which are texts in a fence: families may have a prompt of their own for them."""


@dataclass(frozen=True)
class CropPrompt:
    """A prompt, and in what form it is answered."""

    prompt: str
    form: str = "markdown"


@dataclass(frozen=True)
class FamilyPrompts:
    """Prompts of a model family, and the formats in which it answers.

    Attributes:
        page: the prompt for a page; empty where a model is shown the picture and asked nothing.
        form: in what form that is answered.
        region: the prompt for a region's crop; empty for the same.
        region_form: in what form that is answered.
        by_label: questions about crops of some labels, or of `CODE`, where these have their own.
        template: the whole input with `{prompt}` in it, where a processor has no chat template.
    """

    page: str
    form: str = "markdown"
    region: str = ""
    region_form: str = ""
    by_label: Mapping[str, CropPrompt] = field(default_factory=dict)
    template: str = ""

    def about(self, region: Region) -> CropPrompt:
        """Returns what is asked about a region's crop."""
        is_code = region.label == Label.TEXT and any(
            text.startswith(FENCE) for text in region.drafts
        )
        label = CODE if is_code and CODE in self.by_label else region.label
        other = CropPrompt(self.region or self.page, self.region_form or self.form)
        return self.by_label.get(label, other)

    def changed(
        self, prompt: str | None, region_prompt: str | None, form: str | None
    ) -> FamilyPrompts:
        """Returns the prompts with what a caller wants instead; regions follow the page."""
        ask = self
        if prompt is not None:
            ask = FamilyPrompts(prompt, ask.form, template=ask.template)
        if form is not None:
            ask = replace(ask, form=form, region_form=form, by_label={})
        if region_prompt is not None:
            ask = replace(ask, region=region_prompt, by_label={})
        return ask


GENERAL = FamilyPrompts("Read this page. Write all of its text as Markdown, in reading order.")
"""What any other model that sees is asked."""


@dataclass(frozen=True)
class Family:
    """Holds what a family of document parsers, or a single model, was trained with.

    Attributes:
        ask: its official prompts, and the forms of its answers.
        source: where these are documented: repositories of GitHub or of Hugging Face's hub, and a
            file in each; `README` is a model card, too.
        types: `model_type` of its checkpoints.
        named: pattern of its checkpoints' names, where others have the same types; empty for all
            of these types.
        longest: pixels of the longer side of the pages that it was trained on; `None` for any, as
            its processor scales pages itself.
        size: width and height of the pages that it reads, in pixels; `None` for any.
        stops: tokens that end its answers beside what its models' generation configs say.
        name: in `FAMILIES`; `None` for a model of none of these.
    """

    ask: FamilyPrompts = GENERAL
    source: str = ""
    types: tuple[str, ...] = ()
    named: str = ""
    longest: int | None = None
    size: tuple[int, int] | None = None
    stops: tuple[str, ...] = ()
    name: str | None = None


KINDS = {"table": Label.TABLE, "formula": Label.FORMULA, "chart": Label.PICTURE, "code": CODE}
"""Regions that a family may have a prompt of their own for, as its documentation calls them."""


def _family(name: str, fields: dict[str, Any]) -> Family:
    """Returns a family from its table in `families.toml`."""
    crops = {KINDS[kind]: CropPrompt(*fields.pop(kind)) for kind in KINDS if kind in fields}
    names = ("page", "form", "region", "region_form", "template")
    ask = FamilyPrompts(by_label=crops, **{name: fields.pop(name, "") for name in names})
    types, stops = (tuple(fields.pop(name, ())) for name in ("types", "stops"))
    return Family(ask, types=types, stops=stops, name=name, **fields)


_TABLES = Path(__file__).with_name("families.toml").read_text(encoding="utf-8")

FAMILIES = {name: _family(name, fields) for name, fields in tomllib.loads(_TABLES).items()}

NAME = "sooner.json"

KEYS = ("prompt", "form", "region_prompt", "region_form", "size", "longest", "family")


def family_of(model: str, model_type: str = "", chosen: str | None = None) -> Family:
    """Returns what a model was trained with: what its folder says, and else its family.

    Its family is what the caller has `chosen`, else what the folder's `sooner.json` names, else the
    one of its name and type; a finetune of another name is unknown, if its base is no parser.

    Args:
        model: a folder or hub id.
        model_type: of its config; empty for unknown, where its name alone must tell.
        chosen: a family by whose prompts it is asked whatever its folder says.

    Raises:
        SoonerError: an unknown family, or a broken `sooner.json`.
    """
    trained = family_in_folder(model)
    name = chosen or trained.name or recognised(base_name(model), model_type)
    if name is None:
        return trained
    check_choice("family", name, FAMILIES)
    family = FAMILIES[name]
    ask = family.ask if chosen is not None or trained.ask is GENERAL else trained.ask
    longest = trained.longest or family.longest
    return replace(family, ask=ask, size=trained.size, longest=longest)


def family_in_folder(model: str) -> Family:
    """Returns what `sooner.json` in a model's folder says, nothing without it:

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
        return Family()
    try:
        return _read(json.loads(path.read_text(encoding="utf-8")).get("parse", {}))
    except (OSError, ValueError, TypeError, AttributeError) as error:
        text = " ".join(str(error).split())[:100]
        raise SoonerError(f"'{path}' can't be used: {text}; correct it or take it away") from error


def _read(data: dict[str, Any]) -> Family:
    check_keys("key", data, KEYS)
    for key, known in (("form", FORMS), ("region_form", FORMS), ("family", FAMILIES)):
        if data.get(key) is not None:
            check_choice(key, data[key], known)
    size, longest, ask = data.get("size"), data.get("longest"), GENERAL
    if size is not None:
        width, height = size
        check_whole("size", min(width, height))
        size = (width, height)
    if longest is not None:
        check_whole("longest", longest)
    if "prompt" in data:
        region = str(data.get("region_prompt", "")), data.get("region_form", "")
        ask = FamilyPrompts(str(data["prompt"]), data.get("form", "markdown"), *region)
    elif "form" in data or "region_prompt" in data:
        raise SoonerError("it has a form but no prompt")
    return Family(ask, size=size, longest=longest, name=data.get("family"))


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


def type_of(model: str) -> str:
    """Returns the `model_type` in a folder's config.json; empty for a hub id, or without one."""
    try:
        config = json.loads((Path(model).expanduser() / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ""
    return str(config.get("model_type", "")) if isinstance(config, dict) else ""


def base_name(model: str) -> str:
    """Returns a model's own name: its last part, or its repository's in a snapshot of the hub."""
    path = Path(model).expanduser()
    return path.parent.parent.name if path.parent.name == "snapshots" else path.name
