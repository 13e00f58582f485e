"""A run over very many documents: what it remembers does not grow with them."""

from __future__ import annotations

import gc
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest

from sooner.documents import find_documents
from sooner.tasks.parse import Delivery, ParseJob, ParseOutput
from tasks.drafting import EchoParser, picture
from tasks.parse_jobs import SMALL

STATUS, FORGET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def resident(name: str = "VmRSS") -> int:
    """Bytes of this process that are in memory; `VmHWM` for the most since `reset_peak`."""
    match = re.search(rf"{name}:\s+(\d+) kB", STATUS.read_text())
    assert match is not None
    return int(match[1]) * 1024


def reset_peak() -> None:
    FORGET.write_text("5")


def many(folder: Path, count: int) -> Path:
    """Pictures of different content, a thousand in a folder."""
    data = picture(folder.parent / "one.png", 16, 16).read_bytes()
    for number in range(count):
        place = folder / f"{number // 1000:03d}"
        if not number % 1000:
            place.mkdir(parents=True)
        (place / f"{number}.png").write_bytes(data + f"{number}".encode())
    return folder


class Weighs(EchoParser):
    """Calls `weigh` at some of the pages that it parses."""

    def __init__(self, weigh: Any, at: tuple[int, ...]) -> None:
        super().__init__()
        self.weigh, self.at, self.count = weigh, at, 0
        self.samples: list[float] = []

    def __call__(self, page: Any, draft: Any = None) -> Any:
        self.count += 1
        self.report.clear()
        if self.count in self.at:
            gc.collect()
            self.samples.append(self.weigh())
        return super().__call__(page, draft)


def run(source: Path, out: Path, parser: Weighs) -> ParseJob:
    parse_job = ParseJob(
        find_documents([source]),
        ParseOutput(Delivery(out, ("md",), overlay=False), "s", SMALL),
    )
    parse_job.run(lambda: parser)
    return parse_job


@pytest.mark.soak
@pytest.mark.skipif(not FORGET.exists(), reason="reads /proc")
def test_a_hundred_thousand_documents_take_the_memory_of_ten_thousand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """50 MB more at most, the manifest at the end included; and the first page comes at once."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    count = int(os.environ.get("SOONER_DOCUMENTS", "100000"))
    source = many(tmp_path / "in", count)
    reset_peak()
    began = time.perf_counter()
    at = (1, count // 10, *range(count // 5, count + 1, count // 5))
    parser = Weighs(lambda: (time.perf_counter() - began, resident()), at)
    parse_job = run(source, tmp_path / "out", parser)
    took, peak = time.perf_counter() - began, resident("VmHWM")
    assert parse_job.counts.done == count
    for number, (seconds, there) in zip(at, parser.samples, strict=True):
        print(f"document {number} after {seconds:.1f} s: {there / 1e6:.1f} MB")
    print(f"all after {took:.1f} s: {peak / 1e6:.1f} MB at most")
    (start, _), (_, early), *_ = parser.samples
    assert peak - early < 50e6
    assert start < 60
