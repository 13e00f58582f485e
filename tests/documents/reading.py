"""Words of a page, as drafts have them and as poppler's `pdftotext` reads them."""

from __future__ import annotations

import re
import shutil
import subprocess
import unicodedata
from pathlib import Path

from rapidfuzz.distance import Indel, LCSseq

from sooner.documents import Page, to_markdown
from sooner.documents.drafters import TextLayer

MARKS = re.compile(r"^(?:```\w*|#{1,6} |- |\|(?: --- \|)+$)", re.MULTILINE)
CELLS, SUPERSCRIPTS = re.compile(r"</?t[a-z]+[^>]*>"), re.compile(r"</?sup>")
HAS_PDFTOTEXT = shutil.which("pdftotext") is not None


def pdftotext(path: Path, page: int) -> str:
    """A page as poppler reads it."""
    command = ["pdftotext", "-enc", "UTF-8", "-f", str(page), "-l", str(page), str(path), "-"]
    return subprocess.run(command, check=True, capture_output=True).stdout.decode()


def words(text: str) -> list[str]:
    """Words without the signs of Markdown and HTML; what has no letter or digit (bullets, rows of
    dots) is no word."""
    plain = MARKS.sub("", unicodedata.normalize("NFKC", text)).replace("\\|", "|")
    plain = SUPERSCRIPTS.sub("", CELLS.sub(" ", plain))
    parts = (part.strip("|") for part in plain.replace("\u00ad", "").split())
    return [part for part in parts if any(letter.isalnum() for letter in part)]


def in_order(actual: list[str], expected: list[str]) -> float:
    """Twice the longest common subsequence over the sum of lengths: 1 for the same words."""
    return Indel.normalized_similarity(actual, expected)


def share_in_order(actual: list[str], expected: list[str]) -> float:
    """Share of the words that are wanted which stand in order among those that were read."""
    return LCSseq.similarity(actual, expected) / max(len(expected), 1)


def markdown(page: Page) -> str:
    """What the text layer's drafter makes of a page."""
    return to_markdown(TextLayer()(page).regions)
