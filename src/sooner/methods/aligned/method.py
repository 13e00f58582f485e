"""Decoupled speculative verification: fixed drafts of a page, aligned with what is said."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from ...decoding.interface import Drafter
from ...decoding.loop import Rule
from ...decoding.stats import EXACT, RELAXED
from ...errors import SoonerError
from ..base import Method
from ..checks import positive
from ..context import Context
from ..prompt_lookup import NgramIndex
from ..rules import follow_choices
from .acceptance import follow_tolerantly
from .alignment import Alignment
from .drafter import AlignedDrafter
from .drafts import Drafts, alternatives, read_drafts
from .index import DraftIndex
from .size import Experience, FixedNodes, MeasuredNodes, Sizing

TRIAL_EVERY = 16
"""Plain rounds after which a tolerance is given another chance."""


@dataclass(frozen=True)
class HSD(Method):
    """Hierarchical speculative decoding's verification (Liao et al. 2026, section 3.2).

    Drafts are made once, by whatever is quick and rough, such as an OCR pipeline, and never
    change. After each round the last `window` tokens are looked up in them (eq. 4, 5), all
    continuations are merged into a prefix tree (eq. 6), and one forward verifies it (eq. 7 to 11).
    A row's drafts are an unordered set: which follows which is the target's decision.

    Beyond the paper, steps are saved where no window matches: at the start and between drafts,
    openings of unused drafts are proposed; a shorter window is tried; and behind a token that a
    draft got wrong, the draft is taken up again.

    Args:
        drafts: for each prompt a list of drafts, each a list, array or tensor of token ids, or a
            text. A row without drafts decodes plainly. A draft may be a list of such: alternatives
            of one region, of which none is proposed again once one was followed. Or a function
            that returns all this, called once the prompt is prefilled, so that drafts may be made
            meanwhile.
        window: tokens that must match, n; fewer are tried where nothing does.
        tolerance: tau of eq. 10. 1 is exact; below it (the paper has 0.75) a draft token passes
            that is nearly as likely as the target's best one, and the result is *relaxed*.
        nodes: draft tokens that a forward verifies, or `"auto"` for the number that measurably
            pays, which may be none.
        max_nodes: upper limit for `"auto"`.
        depth: most draft tokens on one path.
        width: most branches of a tree.
        separator: token ids that the target is expected to write between two drafts, until it is
            seen what it does write there.
        repeats: take continuations from the row's own text, too, which may repeat itself.
        tokenizer: turns drafts that are texts into ids.
        experience: what earlier pages taught about drafts and costs, and where more of it goes;
            for one model on one device.

    Raises:
        SoonerError: drafts that are no such lists, an option out of range; in a run, drafts for
            another number of prompts, or of another vocabulary.
    """

    drafts: Any = field(repr=False)
    window: int = 3
    tolerance: float = 1.0
    nodes: int | Literal["auto"] = "auto"
    max_nodes: int = 64
    depth: int = 64
    width: int = 8
    separator: tuple[int, ...] = ()
    repeats: bool = False
    tokenizer: Any = field(default=None, repr=False, compare=False)
    experience: Experience | None = field(default=None, repr=False, compare=False)
    name: ClassVar[str] = "hsd"

    def __post_init__(self) -> None:
        positive(self, "window", "max_nodes", "depth", "width")
        if self.nodes != "auto":
            if isinstance(self.nodes, str):
                raise SoonerError(
                    f"HSD: nodes is {self.nodes!r}; it must be 'auto' or a whole number of 1 or "
                    "more"
                )
            positive(self, "nodes")
        if not isinstance(self.tolerance, int | float) or not 0 < self.tolerance <= 1:
            raise SoonerError(
                f"HSD: tolerance is {self.tolerance!r}; it must be above 0, and at most 1 (exact)"
            )
        if not callable(self.drafts):
            object.__setattr__(self, "drafts", read_drafts(self.drafts, self.tokenizer))
        ((separator,),) = read_drafts([[self.separator]], self.tokenizer)
        object.__setattr__(self, "separator", separator)

    @property
    def mode(self) -> str:  # type: ignore[override]
        """*exact*, or *relaxed* with a tolerance below 1."""
        return EXACT if self.tolerance == 1 else RELAXED

    def largest_block(self) -> int:
        return 1 + (self.max_nodes if self.nodes == "auto" else int(self.nodes))

    def drafter(self, context: Context) -> Drafter:
        experience = self.experience if self.experience is not None else Experience()
        is_late = callable(self.drafts)

        def rows() -> list[Alignment]:
            drafts = read_drafts(self.drafts(), self.tokenizer) if is_late else self.drafts
            return self._rows(drafts, context, experience)

        sizing = self._sizing(experience)
        return AlignedDrafter(context, rows if is_late else rows(), sizing, self.depth, self.width)

    def _rows(self, drafts: Drafts, context: Context, experience: Experience) -> list[Alignment]:
        """Each row's drafts, indexed; copies of a prompt share theirs."""
        self._check(drafts, context)
        rows = []
        for row in drafts:
            several = [alternatives(draft) for draft in row]
            groups = [number for number, each in enumerate(several) for _ in each]
            index = DraftIndex([one for each in several for one in each], self.window, groups)
            for _ in range(context.copies):
                repeats = NgramIndex(self.window, self.window, []) if self.repeats else None
                rows.append(Alignment(index, experience.trust, self.separator, repeats))
        return rows

    def rule(self, context: Context) -> Rule:
        return follow_choices if self.tolerance == 1 else follow_tolerantly(self.tolerance)

    def _sizing(self, experience: Experience) -> Sizing:
        if self.nodes == "auto":
            return MeasuredNodes(
                self.max_nodes, experience, None if self.tolerance == 1 else TRIAL_EVERY
            )
        return FixedNodes(int(self.nodes))

    def _check(self, drafts: Drafts, context: Context) -> None:
        if len(drafts) != context.prompts:
            raise SoonerError(
                f"HSD: drafts are for {len(drafts)} rows, the batch has {context.prompts}; give "
                "each row a list of drafts, an empty one for none"
            )
        known = context.target.vocab_size
        each = (one for row in drafts for draft in row for one in alternatives(draft))
        largest = max((max(one, default=0) for one in each), default=0)
        if max(largest, *self.separator, 0) >= known:
            raise SoonerError(
                f"HSD: drafts hold token id {largest}, the target has {known} ids; encode them "
                "with the target's own tokenizer"
            )
