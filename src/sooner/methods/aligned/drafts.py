"""Drafts as users give them, read into token ids."""

from __future__ import annotations

from collections.abc import Iterable
from operator import index
from typing import Any

from ...errors import SoonerError

Ids = tuple[int, ...]

Drafts = tuple[tuple[Ids | tuple[Ids, ...], ...], ...]
"""For each row its drafts, each a sequence of token ids, or several: alternatives of one region."""


def read_drafts(drafts: Any, tokenizer: Any = None) -> Drafts:
    """Token ids of `drafts`, which are for each row a list of drafts.

    Args:
        drafts: a draft is a list, array or tensor of token ids, or a text; or a list of such, of
            which the target will say one at most.
        tokenizer: turns texts into ids, without special tokens.

    Raises:
        SoonerError: something else than that, a negative id, or a text without a tokenizer.
    """
    rows = _listed(drafts, "drafts", "a list of drafts for each row")
    return tuple(
        tuple(
            _read(draft, f"drafts[{row}][{place}]", tokenizer)
            for place, draft in enumerate(_listed(given, f"drafts[{row}]", "a list of drafts"))
        )
        for row, given in enumerate(rows)
    )


def alternatives(draft: Ids | tuple[Ids, ...]) -> tuple[Ids, ...]:
    """The drafts that `draft` holds: itself, unless it is several."""
    return draft if draft and isinstance(draft[0], tuple) else (draft,)  # type: ignore[return-value]


def _read(draft: Any, where: str, tokenizer: Any) -> Ids | tuple[Ids, ...]:
    """One draft, or the alternatives that it consists of."""
    if not isinstance(draft, str):
        draft = _listed(draft, where, "a list of token ids, or a text")
        if draft and all(_is_several(one) for one in draft):
            return tuple(
                _read_one(one, f"{where}[{place}]", tokenizer) for place, one in enumerate(draft)
            )
    return _read_one(draft, where, tokenizer)


def _is_several(value: Any) -> bool:
    return isinstance(value, str | list | tuple) or getattr(value, "ndim", 0) > 0


def _read_one(draft: Any, where: str, tokenizer: Any) -> Ids:
    if isinstance(draft, str):
        if tokenizer is None:
            raise SoonerError(f"HSD: {where} is a text; give tokenizer=, or token ids")
        draft = tokenizer(draft, add_special_tokens=False)["input_ids"]
    ids = _listed(draft, where, "a list of token ids, or a text")
    return tuple(_id(token, where) for token in ids)


def _id(token: Any, where: str) -> int:
    try:
        number = index(token)
    except TypeError:
        number = -1
    if number < 0:
        raise SoonerError(
            f"HSD: {where} holds {_short(token)}; token ids are whole numbers from 0 on"
        )
    return number


def _listed(value: Any, where: str, wanted: str) -> list[Any]:
    if hasattr(value, "tolist"):  # arrays and tensors
        value = value.tolist()
    if isinstance(value, str | bytes | dict) or not isinstance(value, Iterable):
        raise SoonerError(f"HSD: {where} is {_short(value)}; it must be {wanted}")
    return list(value)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
