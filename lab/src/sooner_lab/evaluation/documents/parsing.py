"""A benchmark's pages parsed into predictions, resumable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from sooner.documents import Document
from sooner.tasks.parse.delivery import Delivery
from sooner.tasks.parse.job import ParseJob
from sooner.tasks.parse.plan import DocumentWork
from sooner.tasks.parse.result import FAILED, Counts

from .benchmark import Benchmark
from .predictions import page_name


@dataclass(frozen=True)
class PredictionFiles(Delivery):
    """One Markdown file a page, called as the official scorer wants it.

    Attributes:
        kind: of the benchmark.
    """

    formats: tuple[str, ...] = ("md",)
    overlay: bool = False
    kind: str = ""

    def files(self, document: Document, number: int) -> list[Path]:
        return [Path(page_name(self.kind, PurePosixPath(document.place.as_posix()), number))]

    def write_document(self, work: DocumentWork, records: Any) -> None:
        """Documents have no files of their own."""

    def has_document(self, document: Document) -> bool:
        return True


def predicting(job: ParseJob, benchmark: Benchmark) -> ParseJob:
    """The same run over a benchmark's documents, each page's prediction in a file of its own.

    Pages are kept as they are done; a run that was killed goes on behind them.

    Args:
        job: says how, and in which folder; its own documents are left alone.

    Raises:
        SoonerError: a page's file is missing, or the folder can't be written.
    """
    benchmark.check_sources()
    places = dict.fromkeys((one.place, one.source) for one in benchmark.samples)
    return replace(
        job,
        documents=[Document(source, Path(place)) for place, source in places],
        delivery=PredictionFiles(job.delivery.folder, kind=benchmark.kind),
        counts=Counts(),
    )


def failures(job: ParseJob, benchmark: Benchmark) -> Mapping[str, str]:
    """Reasons by page of what failed; of a document that could not be opened, for all its pages."""
    found = {}
    for sample in benchmark.samples:
        for record in job.manifest.of(Path(sample.place)):
            if record["status"] == FAILED and record["page"] in (0, sample.number):
                found[sample.name] = record["reason"]
    return found
