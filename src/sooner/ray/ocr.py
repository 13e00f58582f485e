"""`OCR`: drafts of pages, on CPU actors."""

from __future__ import annotations

import time
from typing import Any

from ..documents import Page
from ..tasks.parse.drafters import TIMEOUT, guard, make_drafter
from ..tasks.parse.plan import Intake
from .rows import Batch, RowReader, batch_of, draft_to_text, is_page, rows_of


class OCRStage:
    """Drafts pages for `Parser`, in Ray Data's `map_batches`.

        >>> drafted = pages.map_batches(OCR, num_cpus=1, concurrency=4, batch_size=1)

    Rows have `path` and `page`, and get `draft`, and `read`: the seconds that reading took. A page
    that can't be read, or that OCR fails or hangs at, has an empty draft with the reason, so the
    pages behind it go on; OCR itself runs in a process of its own, which is killed where it hangs.

    Args:
        drafter: `auto` (a PDF's own text where it is good, else OCR), `ocr`, `text-layer`,
            `saved:FILE`, `text:FILE`, or `none`; several with commas between.
        intake: how pages are read; as `Parser` reads them, or boxes don't fit.
        timeout: seconds for a page.
        processes: 0 runs OCR in the actor's own process, where it can't be killed alone.

    Raises:
        SoonerError: an unknown name, a file that does not exist, or OCR that is not installed.
    """

    def __init__(
        self,
        drafter: str = "auto",
        intake: Intake | None = None,
        timeout: float = TIMEOUT,
        processes: int = 1,
    ) -> None:
        self.read = RowReader(intake or Intake())
        self.drafter = guard(make_drafter(drafter), drafter, timeout, processes)

    def __call__(self, batch: Batch) -> dict[str, list[Any]]:
        return batch_of({**row, **self._drafted(row)} for row in rows_of(batch))

    def _drafted(self, row: dict[str, Any]) -> dict[str, Any]:
        if self.drafter is None or not is_page(row):
            return {"draft": "", "read": 0.0}
        began = time.perf_counter()
        page = self.read(row)
        read = time.perf_counter() - began
        drafted = draft_to_text(self.drafter(page)) if isinstance(page, Page) else ""
        return {"draft": drafted, "read": read}
