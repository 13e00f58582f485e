"""`sooner bench papers`: read the results and hold the papers against them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sooner.errors import SoonerError
from sooner.provenance import provenance

from .paper_rows import compare_papers, summary
from .results import Results


@dataclass(frozen=True)
class PapersSettings:
    """Settings.

    Attributes:
        results: folder of the results' JSONs.
    """

    results: Path


def run(settings: PapersSettings, progress: Callable[[str], None]) -> dict[str, Any]:
    """Every row of the papers with ours; nothing is measured.

    Raises:
        SoonerError: the folder is none, or holds a JSON that is no result.
    """
    if not settings.results.is_dir():
        raise SoonerError(
            f"'{settings.results}' is no folder; give --results the one with the results' JSONs"
        )
    progress("reading the results")
    results = Results(settings.results)
    all_papers = compare_papers(results)
    return {
        "bench": "papers",
        "settings": {"results": settings.results.name},
        "summary": summary(all_papers),
        "results": results.origins(),
        "papers": all_papers,
        "provenance": provenance("cpu", "float64", 0),
    }
