"""Prompts and output formats of document parsers, by family or from a model's own folder."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ...checks import check_choice, check_keys
from ...documents import DOTS, MARKDOWN, Style
from ...errors import SoonerError

NAME = "sooner.json"

KEYS = ("prompt", "form", "region_prompt", "region_form", "size")


@dataclass(frozen=True)
class Habits:
    """Prompts, output format and page size that a model was trained with.

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
    check_keys("key", told, KEYS)
    for name in ("form", "region_form"):
        if name in told:
            check_choice("form", told[name], FORMS)
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


Target = Style | Literal["layout-json", "html"]

FORMS: dict[str, Target] = {
    "markdown": MARKDOWN,
    "markdown-spaced": Style(formulas="spaced"),
    "markdown-html": Style(tables="html", formulas="dollars"),
    "dots": "layout-json",
    "dots-text": DOTS,
    "html": "html",
}

"""Markdown; with blanks within dollars, `$$ x $$`; with tables in HTML; dots.ocr's list of boxes,
and what it writes about a crop; HTML elements, one a line."""


@dataclass(frozen=True)
class Ask:
    """Prompts of a model family, and the formats in which it answers.

    Attributes:
        page: the prompt for a page.
        form: in what form that is answered.
        region: the prompt for a region's crop; empty for the same.
        region_form: in what form that is answered.
    """

    page: str
    form: str = "markdown"
    region: str = ""
    region_form: str = ""


GENERAL = Ask("Read this page. Write all of its text as Markdown, in reading order.")

DOTS_PAGE = """\
Please output the layout information from the PDF image, including each layout element's bbox, \
its category, and the corresponding text content within the bbox.

1. Bbox format: [x1, y1, x2, y2]

2. Layout Categories: The possible categories are ['Caption', 'Footnote', 'Formula', \
'List-item', 'Page-footer', 'Page-header', 'Picture', 'Section-header', 'Table', 'Text', 'Title'].

3. Text Extraction & Formatting Rules:
    - Picture: For the 'Picture' category, the text field should be omitted.
    - Formula: Format its text as LaTeX.
    - Table: Format its text as HTML.
    - All Others (Text, Title, etc.): Format their text as Markdown.

4. Constraints:
    - The output text must be the original text from the image, with no translation.
    - All layout elements must be sorted according to human reading order.

5. Final Output: The entire output must be a single JSON object.
"""

"""The prompt that dots.ocr was trained on, from its own documentation."""

ASKS = {
    "dots_ocr": Ask(DOTS_PAGE, "dots", "Extract the text content from this image.", "dots-text"),
    "hunyuan_vl": Ask(
        "Extract all information from the main body of the document image and represent it in "
        "markdown format, ignoring headers and footers. Tables should be expressed in HTML "
        "format, formulas in the document should be represented using LaTeX format, and the "
        "parsing should be organized according to the reading order.",
        "markdown-html",
    ),
    "paddleocr_vl": Ask("OCR:"),
}

"""By `model_type`; others get `GENERAL`, or what the model's own folder says (`habits.py`)."""


def ask_of(
    model_type: str,
    known: Ask | None = None,
    prompt: str | None = None,
    region_prompt: str | None = None,
    form: str | None = None,
) -> Ask:
    """The prompts and formats of a model, all filled in.

    Args:
        known: what this very model was trained on, if its folder says so.
        prompt, region_prompt, form: what a caller wants instead; regions follow the page.
    """
    ask = known or ASKS.get(model_type, GENERAL)
    if prompt is not None:
        ask = Ask(prompt, ask.form)
    if form is not None:
        ask = Ask(ask.page, form, ask.region, form)
    return Ask(
        ask.page,
        ask.form,
        region_prompt or ask.region or ask.page,
        ask.region_form or ask.form,
    )
