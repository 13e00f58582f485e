"""A benchmark's pages parsed into predictions, resumable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from sooner.documents import Document
from sooner.tasks.parse.delivery import Delivery
from sooner.tasks.parse.job import ParseJob
from sooner.tasks.parse.result import FAILED, Counts

from .benchmark import Benchmark
from .predictions import page_name

if TYPE_CHECKING:
    from sooner.ray import RayJob


@dataclass(frozen=True)
class PredictionFiles(Delivery):
    """One Markdown file a page, called as the official scorer wants it.

    Attributes:
        kind: of the benchmark.
    """

    formats: tuple[str, ...] = ("md",)
    kind: str = ""

    def files(self, place: Path, number: int) -> dict[str, str]:
        return {"md": str(page_name(self.kind, PurePosixPath(place.as_posix()), number))}

    def document_files(self, place: Path) -> dict[str, str]:
        """Documents have no files of their own."""
        return {}


def predicting(job: ParseJob, benchmark: Benchmark) -> ParseJob:
    """Returns the run over a benchmark's documents, each page's prediction in a file of its own.

    Pages are kept as they are done; a run that was killed goes on behind them.

    Args:
        job: says how, and in which folder; its own documents are left alone.

    Raises:
        SoonerError: a page's file is missing, or the folder can't be written.
    """
    benchmark.check_sources()
    places = dict.fromkeys((sample.place, sample.source) for sample in benchmark.samples)
    return replace(
        job,
        documents=[Document(source, Path(place)) for place, source in places],
        output=replace(
            job.output, delivery=PredictionFiles(job.output.delivery.folder, kind=benchmark.kind)
        ),
        counts=Counts(),
    )


def failures(job: ParseJob | RayJob, benchmark: Benchmark) -> Mapping[str, str]:
    """Reasons by page of what failed; of a document that could not be opened, for all its pages."""
    reasons = {}
    for sample in benchmark.samples:
        for line in job.delivery.lines(sample.place.as_posix()):
            if line["status"] == FAILED and line["page"] in (0, sample.number):
                reasons[sample.name] = line["reason"]
    return reasons
