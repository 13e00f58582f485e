"""How much of what poppler's `pdftotext` reads in a PDF our drafts have, word for word, in order.

    python tests/documents/reading.py 1-20 manual.pdf paper.pdf --json results.json
    python tests/documents/reading.py 1-20 sources/*.pdf --truth groundtruth/

print a line a document: words that are wanted, share of them in order, the worst page, seconds; and
write the same as JSON.
"""

from __future__ import annotations

import argparse
import html
import json
import re
import shutil
import subprocess
import time
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rapidfuzz.distance import Indel, LCSseq

from sooner.documents import Page, read_pages, to_markdown
from sooner.documents.drafters import TextLayer

MARKS = re.compile(r"^(?:```\w*|#{1,6} |- |\|(?: --- \|)+$)", re.MULTILINE)
CELLS, SUPERSCRIPTS = re.compile(r"</?t[a-z]+[^>]*>"), re.compile(r"</?sup>")
COMMENTS = re.compile(r"<!--.*?-->", re.DOTALL)
HAS_PDFTOTEXT = shutil.which("pdftotext") is not None


def pdftotext(path: Path, page: int, *options: str) -> str:
    """A page as poppler reads it."""
    command = [
        "pdftotext",
        *options,
        "-enc",
        "UTF-8",
        "-f",
        str(page),
        "-l",
        str(page),
        str(path),
        "-",
    ]
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
    return to_markdown(TextLayer(force=True)(page).regions)


def measured(
    path: Path, pages: str, truth: Path | None = None, options: Sequence[str] = ()
) -> dict[str, Any]:
    """Words of a PDF's ground truth, or else those of `pdftotext`, and how many a draft has.

    Args:
        path: the PDF.
        pages: which are read, such as `1-20`.
        truth: Markdown of the whole document.
        options: of `pdftotext`.
    """
    actual: list[str] = []
    shares, weights, seconds, worst = [], [], 0.0, (1.0, 0)
    began = time.perf_counter()
    for page in read_pages(path, pages):
        if not isinstance(page, Page):
            continue
        actual += (draft := words(markdown(page)))
        seconds += time.perf_counter() - began
        if truth is None:
            expected = words(pdftotext(path, page.number, *options))
            shares.append(share_in_order(draft, expected))
            weights.append(len(expected))
            worst = min(worst, (shares[-1], page.number))
        began = time.perf_counter()
    if truth is not None:
        expected = words(html.unescape(COMMENTS.sub("", truth.read_text())).replace("\\", ""))
        shares, weights = [share_in_order(actual, expected)], [len(expected)]
    total = sum(share * weight for share, weight in zip(shares, weights, strict=True))
    return {
        "file": path.name,
        "words": sum(weights),
        "in order": round(total / max(sum(weights), 1), 4),
        "worst page": worst[1],
        "seconds": round(seconds, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pages", help="such as 1-20")
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--truth", type=Path, help="folder of Markdown files named as the PDFs are")
    parser.add_argument(
        "--raw",
        action="store_true",
        help="pdftotext's words in the order of the file, as TeX has it",
    )
    parser.add_argument("--least", type=int, default=1, help="words below which a PDF is left out")
    parser.add_argument("--json", type=Path, help="file that the results are written to")
    args = parser.parse_args()
    results = []
    for path in args.files:
        truth = args.truth / f"{path.stem}.md" if args.truth else None
        if truth is not None and not truth.exists():
            continue
        result = measured(path, args.pages, truth, ["-raw"] if args.raw else [])
        if result["words"] >= args.minimum:
            results.append(result)
            print("  ".join(str(value) for value in result.values()), flush=True)
    shares = [result["in order"] for result in results]
    summary = {
        "files": len(shares),
        "mean": round(sum(shares) / max(len(shares), 1), 4),
        "at 0.9 or more": sum(share >= 0.9 for share in shares),
        "below 0.6": sum(share < 0.6 for share in shares),
    }
    print(summary)
    if args.json:
        args.json.write_text(json.dumps({"summary": summary, "files": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
