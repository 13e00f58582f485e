"""What a command's settings say to the method that they name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from .draft_length import Acceptance


@dataclass(frozen=True)
class MethodSettings:
    """Models, inputs and options at hand; `Method.from_settings` takes those that it knows.

    Attributes:
        draft: the draft model; `None` without one.
        draft_inputs: the prompt as the draft's own processor gives it; `None` for drafts that read
            text only.
        head: folder of a draft head.
        num_draft_tokens: draft tokens a round, nodes of a tree, or `"auto"`.
        prune: share of the visual tokens that a pruned draft does without; `None` is the method's.
        placement: where a draft beside the target runs.
        draft_device: that the draft has for itself; `None`: it has none.
        standing: a `StandingDraft`, the draft's process for all runs.
        experience: acceptance of earlier runs, by the share of the visual tokens that the draft did
            without, `None` for a draft that saw none.
    """

    draft: Any = None
    draft_inputs: Mapping[str, Any] | None = field(default=None, repr=False)
    head: str | None = None
    num_draft_tokens: int | Literal["auto"] = "auto"
    prune: float | None = None
    placement: str = "auto"
    draft_device: str | None = None
    standing: Any = None
    experience: Callable[[float | None], Acceptance | None] = lambda prune: None

    def explicit(self, *names: str) -> dict[str, Any]:
        """Returns those of the options `names` that were asked for; others are left to the
        method.
        """
        values = {name: getattr(self, name) for name in names}
        return {name: value for name, value in values.items() if value not in (None, "auto")}
