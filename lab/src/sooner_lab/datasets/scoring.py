"""Scoring answers: the letter of a multiple-choice reply, and open answers word by word."""

from __future__ import annotations

import re
import string
from collections.abc import Sequence

LETTERS = string.ascii_uppercase

_MARKED = re.compile(
    r"(?i:answer|option|choice)\s*(?i:is|:|=)?\s*[:*\"'(\[]*"
    r"([A-Z](?![A-Za-z'])|[a-z](?=\W*$|[.):,*\]\"]))"  # a small letter before a word is an article
)
_BRACKETS = re.compile(r"[(\[]\s*([A-Za-z])\s*[)\]]")
_LEADING = re.compile(r"^\W*([A-Za-z])(?:\W*$|\s*[.):,\n])")
_ARTICLES = {"a", "an", "the"}
_NUMBERS = {
    "zero": "0", "one": "1", "two": "2", "three": "3", "four": "4", "five": "5", "six": "6",
    "seven": "7", "eight": "8", "nine": "9", "ten": "10",
}  # fmt: skip


def letter_of(text: str, options: Sequence[str]) -> int | None:
    """Which option a reply chooses, counted from 0; `None` if it names none, or several.

    Read in this order: a letter that opens the reply (`B`, `b.`, `(B) red`), the last one behind
    "answer", "option" or "choice", the only one in brackets, and at last the one option whose
    words stand in the reply. An `A` before a noun is an article and names nothing.
    """
    if (found := _LEADING.search(text)) is not None:
        chosen = _index(found.group(1), len(options))
        if chosen is not None:
            return chosen
    for pattern in (_MARKED, _BRACKETS):
        named = [_index(found.group(1), len(options)) for found in pattern.finditer(text)]
        known = [index for index in named if index is not None]
        if known and (pattern is _MARKED or len(set(known)) == 1):
            return known[-1]
    return _quoted(text, options)


def _index(letter: str, count: int) -> int | None:
    index = LETTERS.index(letter.upper())
    return index if index < count else None


def _quoted(text: str, options: Sequence[str]) -> int | None:
    """The option that stands in the text, if no other does except as a part of it."""
    said = f" {normalise(text)} "
    found = [place for place, option in enumerate(options) if f" {normalise(option)} " in said]
    longest = max(found, key=lambda place: len(options[place]), default=None)
    if longest is None:
        return None
    whole = f" {normalise(options[longest])} "
    return longest if all(f" {normalise(options[one])} " in whole for one in found) else None


def normalise(text: str) -> str:
    """Lower case, no punctuation and no articles, number words as digits, single spaces."""
    plain = re.sub(r"[^\w\s]", " ", re.sub(r"(?<=\w)['’](?=\w)", "", text.lower()))
    words = [_NUMBERS.get(word, word) for word in plain.split() if word not in _ARTICLES]
    return " ".join(words) or " ".join(plain.split())


def exact_match(text: str, answers: Sequence[str]) -> bool:
    """Whether a reply is one of the answers, both normalised."""
    return normalise(text) in {normalise(answer) for answer in answers}


def choice_prompt(question: str, options: Sequence[str]) -> str:
    """The question, its options under letters, and the request for a letter."""
    lines = [f"{letter}. {option}" for letter, option in zip(LETTERS, options, strict=False)]
    return "\n".join([question, *lines, "Answer with the letter of the right option."])
