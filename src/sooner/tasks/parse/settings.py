"""How pages are parsed: frozen, checked when made, hashable to a short text. Needs no torch."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from typing import Any, Literal

from ...errors import SoonerError, unknown
from ..settings import parse_prefill
from .forms import FORMS

STAGES = ("auto", "page", "both", "regions")

RELAXED_NODES = 16
"""Draft tokens of a forward where the text depends on their number."""


@dataclass(frozen=True)
class ParseSettings:
    """How a page is parsed.

    Attributes:
        stages: `page` verifies the drafts on the whole page (stage 2 alone); `both` verifies each
            region's on its crop first (stage 1), and what comes out of that on the page;
            `auto` is of these two what measurably pays, or `both` below tolerance 1, where the
            text depends on it; `regions` stops after stage 1, whose result is *approximate*.
        tolerance: tau of eq. 10; 1 is exact, below it the result is *relaxed*.
        form: how the target writes, one of `forms.FORMS`; `None` is what its family writes.
        prompt: what the target is asked about a page; `None` is what its family is best asked.
        region_prompt: what it is asked about a region; `None` is the same, or the family's own.
        max_new_tokens: where a page is cut.
        sure: confidence of the drafter, from 0 to 1, above which a region is left out of stage 1:
            its text is not likely to change. 1 looks at every region, whatever was drafted.
        margin: pixels of the page around a region's crop. Models that lay a raster of visual
            tokens over a page get whole cells of that instead (`cells.py`).
        region_rows: most regions that are verified in one batch.
        nodes: draft tokens that a forward verifies, or `"auto"` for what measurably pays. Below
            tolerance 1 the text depends on it, so `"auto"` is `RELAXED_NODES` there, whatever the
            clock says.
        max_nodes: upper limit of `"auto"`.
        depth: most draft tokens on one path of a tree.
        window: tokens that must match, n of eq. 4.
        repetition: tokens that repeat a period until a page counts as runaway; 0 for never.
        timeout: seconds of decoding, for a page and for each batch of regions; what takes longer
            is cut. `None` never is.
        prefill: what makes the page's prompt cheaper and the result *approximate*, as in
            `CaptionSettings`; `None` is the model's own prefill.

    Raises:
        SoonerError: a value out of range, or a name that is unknown.
    """

    stages: str = "auto"
    tolerance: float = 1.0
    form: str | None = None
    prompt: str | None = None
    region_prompt: str | None = None
    max_new_tokens: int = 8192
    sure: float = 0.95
    margin: int = 8
    region_rows: int = 32
    nodes: int | Literal["auto"] = "auto"
    max_nodes: int = 64
    depth: int = 64
    window: int = 3
    repetition: int = 256
    timeout: float | None = None
    prefill: str | None = None

    def __post_init__(self) -> None:
        if self.stages not in STAGES:
            raise unknown("stages", self.stages, STAGES)
        if self.form is not None and self.form not in FORMS:
            raise unknown("form", self.form, FORMS)
        if not 0 < self.tolerance <= 1:
            raise SoonerError(
                f"tolerance is {self.tolerance:g}; it must be above 0, and at most 1 (exact)"
            )
        if not 0 <= self.sure <= 1:
            raise SoonerError(f"sure is {self.sure:g}; it must be from 0 to 1 (every region)")
        _at_least(1, max_new_tokens=self.max_new_tokens, region_rows=self.region_rows)
        _at_least(1, window=self.window, nodes=1 if self.nodes == "auto" else self.nodes)
        _at_least(1, max_nodes=self.max_nodes, depth=self.depth)
        if self.nodes == "auto" and self.tolerance < 1:
            object.__setattr__(self, "nodes", min(RELAXED_NODES, self.max_nodes))
        _at_least(0, margin=self.margin, repetition=self.repetition)
        if self.timeout is not None and not self.timeout > 0:
            raise SoonerError(f"timeout is {self.timeout:g}; it must be above 0")
        if self.prefill is not None:
            parse_prefill(self.prefill)
        for name in ("prompt", "region_prompt"):
            text = getattr(self, name)
            if text is not None and not text.strip():
                raise SoonerError(f"{name} is empty; leave it out for the model's own")

    @property
    def verification(self) -> dict[str, Any]:
        """Options of `HSD`."""
        names = ("window", "tolerance", "nodes", "max_nodes", "depth")
        return {name: getattr(self, name) for name in names}

    def digest(self, *others: Any) -> str:
        """A short hash of these settings and `others` (model, drafter, dpi), stable between
        runs."""
        text = json.dumps([dataclasses.asdict(self), *others], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def _at_least(least: int, **values: Any) -> None:
    for name, value in values.items():
        if not isinstance(value, int) or value < least:
            raise SoonerError(f"{name} is {value!r}; it must be a whole number of {least} or more")
