"""How much of what poppler's `pdftotext` reads in a PDF our drafts have, word for word, in order.

    python tests/documents/reading.py 1-20 manual.pdf paper.pdf

prints a table: words of pdftotext, share of words in order, seconds a page.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
import unicodedata
from pathlib import Path

from rapidfuzz.distance import Indel, LCSseq

from sooner.documents import Page, read_pages, to_markdown
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


def in_order(found: list[str], wanted: list[str]) -> float:
    """Twice the longest common subsequence over the sum of lengths: 1 for the same words."""
    return Indel.normalized_similarity(found, wanted)


def share_in_order(found: list[str], wanted: list[str]) -> float:
    """Share of the words that are wanted which stand in order among those that were read."""
    return LCSseq.similarity(found, wanted) / max(len(wanted), 1)


def markdown(page: Page) -> str:
    """What the text layer's drafter makes of a page."""
    return to_markdown(TextLayer(force=True)(page).regions)


def main(pages: str, *files: str) -> None:
    print(f"{'PDF':40} {'pages':>5} {'words':>6} {'in order':>8} {'worst':>6} {'s/page':>6}")
    for name in files:
        path = Path(name)
        shares, weights, seconds, worst = [], [], 0.0, (1.0, 0)
        began = time.perf_counter()
        for page in read_pages(path, pages):
            if not isinstance(page, Page):
                continue
            found = words(markdown(page))
            seconds += time.perf_counter() - began
            wanted = words(pdftotext(path, page.number))
            shares.append(in_order(found, wanted))
            weights.append(len(wanted))
            worst = min(worst, (shares[-1], page.number))
            began = time.perf_counter()
        total = sum(share * weight for share, weight in zip(shares, weights, strict=True))
        print(
            f"{path.name[-40:]:40} {len(shares):5} {sum(weights):6} {total / sum(weights):8.4f} "
            f"{worst[0]:.3f} (page {worst[1]}) {seconds / len(shares):6.2f}"
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
