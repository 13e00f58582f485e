"""Whole PDFs, from the file to written Markdown, by the same job as `sooner parse`."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sooner.documents import Resolution, find_documents, read_pages
from sooner.documents.drafters import OCR, PageDrafter
from sooner.documents.page import Page
from sooner.tasks.parse import Delivery, PageParser, ParseJob
from sooner.tasks.parse.drafters import Guarded, guard, make_drafter
from sooner.tasks.parse.plan import Intake

from .arms import Stable
from .pdf import DPI, write_pdf
from .settings import ParseBenchSettings
from .sheets import sample_sheets

Progress = Callable[[str], None]
Data = dict[str, Any]
KINDS = {"scan": "ocr", "text layer": "text-layer"}
"""Documents, and what drafts them."""
ARMS = {"plain": None, "hsd-page": "page", "hsd": "both", "hsd-auto": "auto"}
"""Arms, and the stages of those that have a draft; `hsd-auto` is what `sooner parse` does."""


def documents(settings: ParseBenchSettings, stable: Stable, progress: Progress) -> list[Data]:
    """A row for each kind of document and stages: wall seconds plainly and with drafts.

    Models are loaded before, the drafter's process has seen a page, and one page warms up each
    parser. Both arms write the same files.
    """
    sheets = sample_sheets(settings.document_pages, "document", settings.seed)
    names = {"plain", "hsd-auto", *settings.arms}
    rows: list[Data] = []
    with tempfile.TemporaryDirectory() as folder:
        for number, (kind, drafter) in enumerate(KINDS.items()):
            path = Path(folder) / f"{kind.replace(' ', '-')}.pdf"
            write_pdf(path, sheets, text_layer=kind == "text layer")
            race = _Race(stable, path, drafter, progress)
            # The second document has the other order: drift of the machine hits all arms.
            arms = list(ARMS) if number % 2 == 0 else list(reversed(ARMS))
            runs = {arm: race.run(arm) for arm in arms if arm in names}
            rows += [
                _row(kind, arm, runs["plain"], runs[arm], len(sheets))
                for arm in ARMS
                if arm in runs and arm != "plain"
            ]
    return rows


class _Race:
    """One document parsed by one arm after the other."""

    def __init__(self, stable: Stable, path: Path, drafter: str, progress: Progress) -> None:
        self.stable, self.path, self.drafter = stable, path, drafter
        self.progress = progress
        self.intake = Intake(resolution=Resolution(DPI))

    def run(self, arm: str) -> Data:
        """Seconds from the file to the last byte written, and what was written."""
        stages = ARMS[arm]
        parser = self.stable.parser(stages=stages or "page")
        drafter = guard(self._drafter(), self.drafter) if stages is not None else None
        try:
            start = self._warm(parser, drafter)
            with tempfile.TemporaryDirectory() as output:
                return {**self._job(arm, parser, drafter, Path(output)), "start_seconds": start}
        finally:
            if drafter is not None:
                drafter.close()

    def _drafter(self) -> PageDrafter | None:
        if self.drafter == "ocr":
            return OCR(self.stable.settings.threads)
        return make_drafter(self.drafter)

    def _warm(self, parser: PageParser, drafter: Guarded | None) -> float:
        """Seconds that the drafter took for its first page, its models loaded with it."""
        page = next(iter(read_pages(self.path, "1", self.intake.resolution)))
        assert isinstance(page, Page)
        began = time.perf_counter()
        draft = drafter(page) if drafter is not None else None
        took = time.perf_counter() - began
        parser(page, draft)
        return took

    def _job(self, arm: str, parser: PageParser, drafter: Guarded | None, output: Path) -> Data:
        records: list[Data] = []

        def note(record: Data, counts: Any) -> None:
            records.append(record)
            self.progress(f"{self.path.stem}, {arm}: page {record['page']}")

        began = time.perf_counter()
        job = ParseJob(
            documents=find_documents([self.path]),
            delivery=Delivery(output, ("md", "json")),
            settings_hash=arm,
            intake=self.intake,
            drafter=drafter,
            on_page=note,
        )
        job.run(lambda: parser)
        wall = time.perf_counter() - began
        texts = {
            record["page"]: (output / next(name for name in record["files"] if name[-3:] == ".md"))
            .read_text()
            for record in records if record["status"] != "FAILED"
        }  # fmt: skip
        return {"wall": wall, "records": records, "texts": texts}


def _row(kind: str, arm: str, plain: Data, drafted: Data, pages: int) -> Data:
    """One arm on a document; pages that never ended are taken out of both times."""
    counted = _ended(plain) & _ended(drafted)
    seconds, arm_seconds = _without(plain, counted), _without(drafted, counted)
    spent: dict[str, float] = {}
    for record in drafted["records"]:
        for name, took in record["seconds"].items():
            spent[name] = spent.get(name, 0.0) + took / pages
    return {
        "document": kind,
        "method": arm,
        "drafter": ", ".join(sorted({record["drafter"] for record in drafted["records"]})),
        "pages": pages,
        "counted": len(counted),
        "left_out": sorted({*range(1, pages + 1)} - counted),
        "identical": sum(
            plain["texts"].get(page) == drafted["texts"].get(page) for page in counted
        ),
        "plain_seconds": seconds,
        "seconds": arm_seconds,
        "speedup": seconds / arm_seconds if counted else None,
        "notes": sorted({note for record in drafted["records"] for note in record["notes"]})[:3],
        "start_seconds": drafted["start_seconds"],
        "aal": _aal([record for record in drafted["records"] if record["page"] in counted]),
        "spent": spent,
    }


def _ended(run: Data) -> set[int]:
    return {record["page"] for record in run["records"] if record["status"] == "SUCCESS"}


def _without(run: Data, counted: set[int]) -> float:
    """Wall seconds less what the pages took that don't count."""
    uncounted = (record for record in run["records"] if record["page"] not in counted)
    return float(run["wall"] - sum(record["seconds"].get("e2e", 0.0) for record in uncounted))


def _aal(records: list[Data]) -> float | None:
    """Accepted draft tokens a verification step (eq. 14), over all pages together as for the arms:
    the prefill is the one forward of a page that verifies nothing."""
    known = [
        (record["aal"], record["steps"] - 1) for record in records if record["aal"] is not None
    ]
    steps = sum(count for _, count in known)
    return sum(aal * count for aal, count in known) / steps if steps else None
