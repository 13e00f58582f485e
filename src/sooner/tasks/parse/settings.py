"""How pages are parsed: frozen, checked when made, hashable to a short text. Needs no torch."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ... import miniatures
from ...checks import check_choice, check_fields, option
from ...errors import SoonerError
from ..identity import RECORDS, fingerprint
from ..settings import parse_prefill, short_hash

MINIATURE = "document"
DEMO = "miniature"
"""Name of the bundled miniature on the command line."""

STAGES = ("auto", "page", "both", "regions")

RELAXED_NODES = 16
"""Draft tokens of a forward where the text depends on their number."""


@dataclass(frozen=True)
class ParseSettings:
    """How a page is parsed.

    Attributes:
        stages: what verifies the drafts: `page` is the whole page (stage 2 alone); `both` is each
            region's crop first (stage 1), and what comes out of that on the page; `auto` is of
            these two what measurably pays, or `both` below acceptance threshold 1, where the
            text depends on it; `regions` stops after stage 1, whose result is *approximate*.
        acceptance_threshold: tau of eq. 10: 1 is exact, below it (the paper has 0.75) the result is
            *relaxed*.
        family: what the model is a finetune of, where neither its name nor its type tells:
            olmocr, glm-ocr, ..., whose prompts and forms are used (see docs/reference/parsers.md).
        form: how the target writes: markdown, markdown-html, dots, doctags, deepseek, ... (see
            docs/reference/parsers.md); by default as its family does, or as its sooner.json says.
        prompt: what the target is asked about a page; by default what its family is best asked.
        region_prompt: what it is asked about a region; by default the same, or the family's own.
        max_new_tokens: where a page is cut.
        sure: confidence of the drafter above which a region is left out of stage 1: its text is
            not likely to change. 1 looks at every region, whatever was drafted.
        margin: pixels of the page around a region's crop. Models that lay a raster of visual
            tokens over a page get whole cells of that instead.
        nodes: draft tokens that a forward verifies; `auto` takes what measurably pays, and 16 below
            acceptance threshold 1, where the text depends on it and the clock must not matter.
        max_nodes: most that `nodes` takes by itself.
        depth: most draft tokens on one path of a tree.
        repetition: tokens that repeat a period until a page counts as runaway; 0 for never.
        timeout: seconds that decoding a page, and each batch of regions, may take, by default any;
            what takes longer is cut, and the page is PARTIAL. On the command line a page's drafter
            has as many, by default 120; then the page decodes plainly.
        verify_every: rounds after which a committed block is decoded again, plainly; one that
            differs is logged, and ends drafting. 1000 takes at most 1 % of the forwards. By default
            none is.
        prefill: what makes the page's prompt cheaper and the result *approximate*: a pattern file,
            `auto`, `auto-search`, or `fastv` with the share of visual tokens that it drops behind a
            colon. By default the model's own prefill.

    Raises:
        SoonerError: a value out of range, or a name that is unknown.
    """

    stages: str = option("auto", known=STAGES)
    acceptance_threshold: float = option(1.0, 0, 1, above=True, hint=" (exact)")
    family: str | None = option(None, metavar="NAME")
    form: str | None = option(None, metavar="NAME")
    prompt: str | None = None
    region_prompt: str | None = None
    max_new_tokens: int = option(8192, 1)
    sure: float = option(0.95, 0, 1, hint=" (every region)", metavar="0..1")
    margin: int = option(8, 0)
    nodes: int | Literal["auto"] = option("auto")
    max_nodes: int = option(64, 1)
    depth: int = option(64, 1)
    repetition: int = option(256, 0)
    timeout: float | None = option(None, 0, above=True, metavar="S")
    verify_every: int | None = option(None, 1)
    prefill: str | None = option(None, metavar="FILE|NAME[:SHARE]")

    def __post_init__(self) -> None:
        check_fields(self)
        if self.form is not None:
            from .families import FORMS  # with all that reads documents

            check_choice("form", self.form, FORMS)
        if self.family is not None:
            from .families import FAMILIES

            check_choice("family", self.family, FAMILIES)
        if self.nodes == "auto" and self.acceptance_threshold < 1:
            object.__setattr__(self, "nodes", min(RELAXED_NODES, self.max_nodes))
        if self.prefill is not None:
            parse_prefill(self.prefill)
        for name in ("prompt", "region_prompt"):
            text = getattr(self, name)
            if text is not None and not text.strip():
                raise SoonerError(f"{name} is empty; leave it out for the model's own")

    def verification(self, experience: Any = None) -> dict[str, Any]:
        """Returns options of `HSD`.

        Args:
            experience: what earlier pages taught; it chooses the nodes, on which the text depends
                below acceptance threshold 1, where it is left out.
        """
        names = ("acceptance_threshold", "nodes", "max_nodes", "depth")
        options = {name: getattr(self, name) for name in names}
        return {**options, "experience": experience if self.acceptance_threshold == 1 else None}

    def digest(self, model: str, dtype: str, drafter: str, resolution: object) -> str:
        """Returns a short hash of all that decides a page's result besides its document, stable
        between runs.

        Args:
            model: its name, from `parser_name`.
            drafter: from `drafter_hash`.
        """
        details = fingerprint(model), dtype, drafter, repr(resolution), RECORDS
        values = dataclasses.asdict(self)
        del values["verify_every"]  # which decides nothing
        if self.prefill is not None:  # a file may change under its name
            values["prefill"] = parse_prefill(self.prefill).digest() or self.prefill
        return short_hash(values, *details)


def parser_name(model: str | None) -> str:
    """Returns a model's name; the bundled miniature's folder for `None` or `"miniature"`.

    Raises:
        SoonerError: it is not installed; or a folder that does not exist.
    """
    if model is None or model == DEMO:
        return str(miniatures.find(MINIATURE).target)
    if model.startswith(("/", ".", "~")) and not Path(model).is_dir():
        raise SoonerError(f"model folder '{model}' does not exist; check the path")
    return model
