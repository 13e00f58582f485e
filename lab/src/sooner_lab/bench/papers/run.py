"""`sooner bench papers`: read the results and hold the papers against them."""

from __future__ import annotations

from sooner.errors import SoonerError

from ..run import Data, Keep, Progress, Recorder
from .paper_rows import compare_papers, summary
from .results import Results
from .settings import PapersSettings


def run(settings: PapersSettings, progress: Progress = print, keep: Keep | None = None) -> Data:
    """Return every row of the papers with ours; nothing is measured.

    Raises:
        SoonerError: the folder is none, or holds a JSON that is no result.
    """
    if not settings.results.is_dir():
        raise SoonerError(
            f"'{settings.results}' is no folder; give --results the one with the results' JSONs"
        )
    progress("reading the results")
    results = Results(settings.results)
    rows = compare_papers(results)
    recorder = Recorder("papers", {"results": settings.results.name}, keep=keep)
    recorder.origin("cpu", "float64", 0)
    return recorder.add(summary=summary(rows), results=results.origins(), papers=rows)
