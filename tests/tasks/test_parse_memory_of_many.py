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
from sooner.tasks.parse import Delivery, ParseJob
from tasks.drafting import EchoParser, picture
from tasks.parse_jobs import SMALL

STATUS, FORGET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def resident(name: str = "VmRSS") -> int:
    """Bytes of this process that are in memory; `VmHWM` for the most since `forget_most`."""
    found = re.search(rf"{name}:\s+(\d+) kB", STATUS.read_text())
    assert found is not None
    return int(found[1]) * 1024


def forget_most() -> None:
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
        self.found: list[float] = []

    def __call__(self, page: Any, draft: Any = None) -> Any:
        self.count += 1
        self.report.clear()
        if self.count in self.at:
            gc.collect()
            self.found.append(self.weigh())
        return super().__call__(page, draft)


def run(source: Path, out: Path, parser: Weighs) -> ParseJob:
    asked = ParseJob(
        find_documents([source]),
        Delivery(out, ("md",), overlay=False),
        "s",
        intake=SMALL,
        workers=1,
    )
    asked.run(lambda: parser)
    return asked


@pytest.mark.soak
@pytest.mark.skipif(not FORGET.exists(), reason="reads /proc")
def test_a_hundred_thousand_documents_take_the_memory_of_ten_thousand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """50 MB more at most, the manifest at the end included; and the first page comes at once."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    count = int(os.environ.get("SOONER_DOCUMENTS", "100000"))
    source = many(tmp_path / "in", count)
    forget_most()
    began = time.perf_counter()
    at = (1, count // 10, *range(count // 5, count + 1, count // 5))
    parser = Weighs(lambda: (time.perf_counter() - began, resident()), at)
    asked = run(source, tmp_path / "out", parser)
    took, most = time.perf_counter() - began, resident("VmHWM")
    assert asked.counts.done == count
    for number, (seconds, there) in zip(at, parser.found, strict=True):
        print(f"document {number} after {seconds:.1f} s: {there / 1e6:.1f} MB")
    print(f"all after {took:.1f} s: {most / 1e6:.1f} MB at most")
    (start, _), (_, early), *_ = parser.found
    assert most - early < 50e6
    assert start < 60
