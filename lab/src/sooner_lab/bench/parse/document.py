"""Whole PDFs, from the file to written Markdown, by the same job as `sooner parse`."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sooner.documents import Resolution, find_documents, read_pages
from sooner.documents.drafters import OCR
from sooner.documents.page import Page
from sooner.miniatures import MADE_UP
from sooner.tasks.parse import Delivery, ParseJob, ParseOutput
from sooner.tasks.parse.drafters import guard, make_drafter
from sooner.tasks.parse.output import Intake

from ..run import Data, Progress
from .arms import ParseModels
from .pdf import DPI, write_pdf
from .settings import ParseBenchSettings
from .sheets import sample_sheets

KINDS = {"scan": "ocr", "text layer": "text-layer"}
"""Documents, and what drafts them."""
ARMS = {"plain": None, "hsd-page": "page", "hsd": "both", "hsd-auto": "auto"}
"""Arms, and the stages of those that have a draft; `hsd-auto` is what `sooner parse` does."""


def documents(settings: ParseBenchSettings, models: ParseModels, progress: Progress) -> list[Data]:
    """Return a row for each kind of document and arm: wall seconds plainly and with drafts.

    Models are loaded before, the drafter's process has seen a page, and one page warms up each
    parser. All arms write the same files.
    """
    sheets = sample_sheets(settings.document_pages, "document", settings.seed)
    names = [name for name in ARMS if name in {"plain", "hsd-auto", *settings.arms}]
    rows: list[Data] = []
    with tempfile.TemporaryDirectory() as folder:
        for number, (kind, drafter) in enumerate(KINDS.items()):
            path = Path(folder) / f"{kind.replace(' ', '-')}.pdf"
            write_pdf(path, sheets, text_layer=kind == "text layer")
            # The second document has the other order: drift of the machine hits all arms.
            turns = names if number % 2 == 0 else list(reversed(names))
            runs = {name: _parse(models, path, drafter, name, progress) for name in turns}
            plain = runs.pop("plain")
            rows += [_row(kind, name, plain, runs[name]) for name in names if name in runs]
    return rows


def _parse(
    models: ParseModels, path: Path, drafter_name: str, arm: str, progress: Progress
) -> Data:
    """Parse a document; return seconds from the file to the last byte written, and the texts."""
    stages, intake = ARMS[arm], Intake(resolution=Resolution(DPI))
    parser = models.parser(stages=stages or "page")
    drafter = None
    if stages is not None:
        is_ocr = drafter_name == "ocr"
        made = OCR(models.settings.threads) if is_ocr else make_drafter(drafter_name)
        drafter = guard(made, drafter_name)
    records: list[Data] = []

    def note(record: Data, counts: Any) -> None:
        records.append(record)
        progress(f"{path.stem}, {arm}: page {record['page']}")

    try:
        page = next(iter(read_pages(path, "1", intake.resolution)))
        assert isinstance(page, Page)
        began = time.perf_counter()
        draft = drafter(page) if drafter is not None else None
        start = time.perf_counter() - began
        parser(page, draft)
        with tempfile.TemporaryDirectory() as output:
            began = time.perf_counter()
            job = ParseJob(
                documents=find_documents([path]),
                output=ParseOutput(Delivery(Path(output), ("md", "json")), arm, intake),
                drafter=drafter,
                on_page=note,
            )
            job.run(lambda: parser)
            wall = time.perf_counter() - began
            texts = {
                record["page"]: Path(output, name).read_text()
                for record in records
                for name in record["files"]
                if record["status"] != "FAILED" and name.endswith(".md")
            }
    finally:
        if drafter is not None:
            drafter.close()
    return {"wall": wall, "records": records, "texts": texts, "start_seconds": start}


def _row(kind: str, arm: str, plain: Data, drafted: Data) -> Data:
    """Return the row of an arm; pages that never ended are taken out of both times."""
    records, count = drafted["records"], len(drafted["records"])
    ended = [
        {record["page"] for record in run["records"] if record["status"] == "SUCCESS"}
        for run in (plain, drafted)
    ]
    counted = ended[0] & ended[1]
    seconds, arm_seconds = (
        run["wall"]
        - sum(
            record["seconds"].get("e2e", 0.0)
            for record in run["records"]
            if record["page"] not in counted
        )
        for run in (plain, drafted)
    )
    kinds = dict.fromkeys(name for record in records for name in record["seconds"])
    return {
        "document": kind,
        "method": arm,
        "drafter": ", ".join(sorted({record["drafter"] for record in records})),
        "pages": count,
        "counted": len(counted),
        "left_out": sorted({record["page"] for record in records} - counted),
        "identical": sum(
            plain["texts"].get(page) == drafted["texts"].get(page) for page in counted
        ),
        "plain_seconds": seconds,
        "seconds": arm_seconds,
        "speedup": seconds / arm_seconds if counted else None,
        "notes": sorted(
            {note for record in records for note in record["notes"] if MADE_UP not in note}
        )[:3],
        "start_seconds": drafted["start_seconds"],
        "aal": aal([record for record in records if record["page"] in counted]),
        "spent": {
            name: sum(record["seconds"].get(name, 0.0) for record in records) / count
            for name in kinds
        },
    }


def aal(records: Sequence[Data]) -> float | None:
    """Return accepted draft tokens a verification step (eq. 14), over all pages together as for the
    arms: the prefill is the one forward of a page that verifies nothing."""
    known = [
        (record["aal"], record["steps"] - 1) for record in records if record["aal"] is not None
    ]
    steps = sum(count for _, count in known)
    return sum(each * count for each, count in known) / steps if steps else None
