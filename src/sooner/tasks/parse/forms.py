"""Output formats of document parsers by name, and what a family of them is asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...documents.boxed_forms import Chandra, DocTags, Grounding, LayoutJson
from ...documents.forms import Blocks, FrontMatter, PageForm
from ...documents.regions import TEXT, Region
from ...documents.serialise import DOTS, FENCE, Style

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
    "chandra": Chandra(1024, "list"),
    "chandra-2": Chandra(1000, "blanks"),
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
        template: the whole input with `{prompt}` in it, for models whose processors come without a
            chat template.
    """

    page: str
    form: str = "markdown"
    region: str = ""
    region_form: str = ""
    by_label: Mapping[str, CropPrompt] = field(default_factory=dict)
    template: str = ""

    def about(self, region: Region) -> CropPrompt:
        """Returns what is asked about a region's crop."""
        is_code = region.label == TEXT and any(text.startswith(FENCE) for text in region.drafts)
        label = CODE if is_code and CODE in self.by_label else region.label
        other = CropPrompt(self.region or self.page, self.region_form or self.form)
        return self.by_label.get(label, other)


GENERAL = FamilyPrompts("Read this page. Write all of its text as Markdown, in reading order.")
