"""Drafts made without the processors, less the tokens that a row's processors forbid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..engine.sampling import Processing, RowParams


class KnowsTrees(Protocol):
    """A logits processor that can tell of a whole draft which nodes it forbids, as a grammar."""

    def allowed(self, tokens: Sequence[int], parents: Sequence[int]) -> Sequence[bool]:
        """Returns which nodes may stand where they are, each with all above it.

        Args:
            tokens, parents: of one row, as `decoding.tree.Tree` has them.
        """


def allowed_nodes(
    processing: Processing, row: int, tokens: Sequence[int], parents: Sequence[int]
) -> list[int]:
    """Returns nodes of a draft of active row `row` that are worth verifying; parents among them.

    All, unless a processor of the row `KnowsTrees`. What such a one raises ends the row: nothing is
    drafted for it any more, and the next round tells (`RowParams.failed`).
    """
    nodes = list(range(len(tokens)))
    params: RowParams = processing.params_of(row)
    known = [processor for processor in params.host if hasattr(processor, "allowed")]
    if not nodes or not known:
        return nodes
    try:
        verdicts = [processor.allowed(tokens, parents) for processor in known]
    except Exception as error:
        params.failed.append(error)
        return []
    return [node for node in nodes if all(verdict[node] for verdict in verdicts)]
