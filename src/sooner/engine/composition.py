"""What a prefill composes with: the one table, of which errors are made and which docs and tests
are checked against (docs/sparse-prefill.md says what each name means)."""

from __future__ import annotations

from ..errors import UnsupportedError

FEATURES = ("static", "dynamic", "chunked", "offloaded", "pruned", "compressed")
METHODS = (
    "plain", "speculative", "parallel", "parallel, ranked behind the pruner", "tree",
    "tree of layer states",
)  # fmt: skip
REFUSALS = {
    frozenset({"dynamic", "chunked"}): (
        "MMInference needs all {width} prompt tokens in one forward to look at the last ones; a "
        "prefill chunk of {chunk} splits them; leave it out, or give MMInference(mlp_chunk={chunk})"
    ),
    frozenset({"compressed"}): (
        "a hook put {slots} slots in the place of {whole} into a layer of the cache, where slots "
        "stay where they are; leave the hook out, or drop visual tokens by FastV"
    ),
    frozenset({"pruned", METHODS[3]}): (
        "ranking needs all {width} prompt tokens, but a prefill context left {left} of them; rank "
        "after an earlier layer, or leave the context"
    ),
    frozenset({"pruned", METHODS[5]}): (
        "the drafter reads the states of all {width} tokens, but a prefill context left {left} of "
        "them at layer {layer}; leave the context"
    ),
}
"""Texts of errors by what is refused together. All else composes: output ids are those of plain
decoding behind the same prefill in one piece."""


def refusal(*parts: str, **values: object) -> UnsupportedError:
    """Returns the error of some parts that are refused together."""
    return UnsupportedError(REFUSALS[frozenset(parts)].format(**values))
