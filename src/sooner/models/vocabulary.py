"""Ids that a family's config gives by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..errors import SoonerError, did_you_mean


def token_id(vocabulary: Mapping[str, int], name: str, owner: str) -> int:
    """The id of a token.

    Raises:
        SoonerError: there is none of this name.
    """
    if name not in vocabulary:
        near = did_you_mean(name, (key for key in vocabulary if key.startswith("<")))
        raise SoonerError(
            f"the vocabulary_map of {owner} has no '{name}'{near}; load a checkpoint whose "
            "config.json has the whole map"
        )
    return int(vocabulary[name])


def id_range(ids: Iterable[int], name: str, owner: str) -> tuple[int, int]:
    """The half-open range that ids fill.

    Raises:
        SoonerError: there are none, or others lie between them.
    """
    known = sorted(ids)
    if not known:
        raise SoonerError(
            f"the vocabulary_map of {owner} has no tokens named '{name}...', which pictures are "
            "made of; load a checkpoint that draws"
        )
    low, high = known[0], known[-1] + 1
    if high - low != len(known):
        raise SoonerError(
            f"the {len(known)} tokens '{name}...' of {owner} are scattered over the ids {low} to "
            f"{high - 1}; a grid needs them side by side"
        )
    return low, high
