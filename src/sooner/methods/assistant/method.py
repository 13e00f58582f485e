"""Speculative decoding with an assistant of the target's own family, as Gemma 4 publishes them: it
reads the target's cache and keeps nothing itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from torch import Tensor

from ...checks import option
from ...engine.attention.block import Block
from ...engine.attention.context import block_attention
from ...engine.cache import SlotCache
from ...engine.interface import Drafter, Outcome
from ...engine.loop import Rule
from ...engine.tree import Tree
from ...errors import UnsupportedError
from ..context import Context
from ..sized_draft import SizedDrafter
from ..speculative import draw_chain, match_vocabulary, reject
from ..trained import TrainedMethod
from ..tree_size import MeasuredSize, Size, TreeSize
from .model import SLIDING


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


class AssistantDrafter(SizedDrafter):
    """Drafts a chain behind the last committed token, step by step.

    What it drafts from is the target's: its cache, which holds every committed token but the last,
    and the state that the last one was said from. So rows come and go without a word, and a prompt
    costs the drafter nothing.
    """

    def __init__(self, model: Any, sizing: TreeSize, context: Context) -> None:
        super().__init__(context, sizing)
        if context.runner.cache.is_offloaded:
            raise UnsupportedError(
                "the assistant reads the target's keys and values, which cache_implementation="
                "'offloaded' keeps in host memory; leave it unset"
            )
        self.model = model
        self.sources: dict[str, int] = model.sources(context.target)

    def begin(self, outcome: Outcome) -> Iterator[None]:
        self.levels = [0] * len(outcome.rows.active)
        return iter(())

    def merge(self, other: AssistantDrafter) -> None:
        self.levels += other.levels

    def draft(self, outcome: Outcome) -> Tree:
        context, model = self.context, self.model
        target, committed = context.target, outcome.committed
        token, hidden = committed.last(1).to(target.device), outcome.hidden  # [rows, 1]
        last = (committed.entries - 1).to(hidden.device)  # a chain's path is its entries
        states = hidden.gather(1, last[:, None, None].expand(-1, 1, hidden.shape[2]))
        positions = context.runner.next_position
        if positions.ndim > 1:  # all axes say the same of what is no pixel
            positions = positions[0]
        rotations = model.rotations(positions.to(model.device))

        def step(drafted: Tensor | None) -> Tensor:
            nonlocal states
            embeds = target.embed_tokens(token if drafted is None else drafted)
            states, logits = model(embeds, states.to(target.device), rotations, self._attend)
            return match_vocabulary(logits.to(target.device), target.vocab_size)

        return draw_chain(step, self.levels, outcome, context.processing)

    def _attend(self, kind: str, queries: Tensor) -> Tensor:
        """Returns what queries `[rows, heads, 1, dim]` find in the target's keys and values of a
        kind of layer.

        Raises:
            UnsupportedError: a prefill context took tokens out of them.
        """
        cache: SlotCache = self.context.runner.cache
        layer = cache.slot_layers[self.sources[kind]]
        if layer.dropped:
            raise UnsupportedError(
                f"the assistant reads the keys of all prompt tokens, but a prefill context left "
                f"{layer.dropped} out of layer {self.sources[kind]}; leave the context"
            )
        keys, values = layer.stores
        # A block's entry sees the committed slots and its own, which is the last committed one.
        block = Block(cache.lengths_on(keys.device) - 1, page_table=cache.page_table)
        window = self.model.config.sliding_window + 1 if kind == SLIDING else None
        output = block_attention(
            queries.to(keys.device), keys, values, block, scaling=1.0, window=window
        )
        return output.to(queries.device)
