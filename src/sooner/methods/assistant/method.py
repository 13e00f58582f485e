"""Speculative decoding with an assistant of the target's own family, as Gemma 4 publishes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from ...checks import option
from ...engine.interface import Drafter
from ...engine.loop import Rule
from ..context import Context
from ..speculative import reject
from ..trained import TrainedMethod
from ..tree_size import MeasuredSize, Size
from .drafter import AssistantDrafter


@dataclass(frozen=True)
class Assistant(TrainedMethod):
    """Speculative decoding with an assistant that reads the target's keys and values (Gemma 4).

    A few layers without keys of their own draft a chain, token by token, from the target's last
    state and from what one of its layers of each kind has cached; one forward of the target
    verifies it. So a prompt costs the drafter nothing, and neither do its tokens any memory. Exact:
    under greedy decoding the target's choices are followed; under sampling drafts are drawn, and
    rejection sampling keeps the target's distribution.

    Args:
        drafter: an `AssistantModel`, or its folder or name (`google/gemma-4-E2B-it-assistant`). It
            stays as it is: a target on another device or in another dtype is drafted for by a copy.
        num_draft_tokens: of a round, or `"auto"` for the number that measurably pays, which may be
            none. What `"auto"` measures is kept from call to call of this object.
        max_draft_tokens: upper limit for `"auto"`.

    Raises:
        SoonerError: an option out of range, or a folder without an assistant; in a run, a target
            that it was not trained for.
        UnsupportedError: an option of the assistant that can't be run; a run with guidance, or with
            a prefill context that takes tokens out of the cache.
    """

    drafter: Any
    num_draft_tokens: int | Literal["auto"] = option("auto", 1)
    max_draft_tokens: int = option(8, 1)
    name: ClassVar[str] = "assistant"

    def largest(self) -> Size:
        is_auto = self.num_draft_tokens == "auto"
        longest = int(self.max_draft_tokens if is_auto else self.num_draft_tokens)
        return Size(longest, longest)

    def measured(self) -> MeasuredSize:
        lengths = range(1, self.max_draft_tokens + 1)
        return MeasuredSize(self.largest(), [Size(length, length) for length in lengths])

    def build(self, context: Context) -> tuple[Drafter, Rule]:
        return AssistantDrafter(*self.placed(context), context), reject
