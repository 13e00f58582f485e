"""Drafts as users give them, read into token ids."""

from __future__ import annotations

from collections.abc import Iterable
from operator import index
from typing import Any

from ...errors import SoonerError

Drafts = tuple[tuple[tuple[int, ...], ...], ...]
"""For each row its drafts, each a sequence of token ids."""


def read_drafts(drafts: Any, tokenizer: Any = None) -> Drafts:
    """Token ids of `drafts`, which are for each row a list of drafts.

    Args:
        drafts: a draft is a list, array or tensor of token ids, or a text.
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


def _read(draft: Any, where: str, tokenizer: Any) -> tuple[int, ...]:
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
