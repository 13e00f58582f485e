"""Jobs whose pages are parsed side by side: the files are those of one page after the other."""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from sooner.documents import Page
from sooner.errors import SoonerError
from sooner.storage.attempts import this_process
from sooner.tasks.parse import PageParser, ParseSettings
from sooner.tasks.parse.concurrent import page_parser
from sooner.tasks.parse.delivery import PAGES
from tasks.drafting import EchoParser, SayNumber, pdf, picture
from tasks.parse_jobs import job, listing, records, run
from tasks.parsing import qwen3_vl

IN_FLIGHT = 3


class ScatteredParser(EchoParser):
    """Has pages under way that end in a random order; `maximum` is how many there ever were.

    None ends before there are as many as the job may have, however slowly it reads.
    """

    pages_in_flight = IN_FLIGHT

    def __init__(self, raising: dict[int, BaseException] | None = None) -> None:
        super().__init__(raising)
        self.pool, self.random = ThreadPoolExecutor(8), random.Random(7)
        self.changing, self.under_way, self.maximum = threading.Lock(), 0, 0
        self.is_closed, self.is_full = False, threading.Event()

    async def parse(self, page: Page, draft: Any = None) -> Any:
        with self.changing:
            self.under_way += 1
            self.maximum = max(self.maximum, self.under_way)
            if self.under_way == IN_FLIGHT:
                self.is_full.set()
        seconds = self.random.random() / 30
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.pool, self._later, page, draft, seconds)

    def _later(self, page: Page, draft: Any, seconds: float) -> Any:
        assert self.is_full.wait(60), "pages wait for another's end, though there is room"
        time.sleep(seconds)
        try:
            return self(page, draft)
        finally:
            with self.changing:
                self.under_way -= 1

    def close(self) -> None:
        self.pool.shutdown(cancel_futures=True)
        self.is_closed = True


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "in"
    root.mkdir()
    for number, pages in enumerate((5, 1, 7, 2)):
        pdf(root / f"{number}.pdf", pages)
    picture(root / "picture.png")
    (root / "broken.pdf").write_bytes(b"%PDF-1.4 nothing")
    return root


def side_by_side(tree: Path, out: Path, **options: Any) -> ScatteredParser:
    parser = ScatteredParser(options.pop("raising", None))
    job(tree, out, SayNumber(), **options).run(lambda: parser)
    return parser


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_the_files_are_those_of_serial_pages(workers: int, tree: Path, tmp_path: Path) -> None:
    raising = {4: SoonerError("page 4 does not fit")}
    run(tree, tmp_path / "one", SayNumber(), raising=raising)
    parser = side_by_side(tree, tmp_path / "several", workers=workers, raising=raising)
    assert parser.is_closed
    assert parser.maximum == IN_FLIGHT
    serial, several = records(tmp_path / "one"), records(tmp_path / "several")
    assert listing(tmp_path / "several") == listing(tmp_path / "one")
    assert {key: (row["status"], row["reason"]) for key, row in several.items()} == {
        key: (row["status"], row["reason"]) for key, row in serial.items()
    }
    for name in listing(tmp_path / "one"):
        if name.endswith((".md", ".json")):
            assert (tmp_path / "several" / name).read_bytes() == (
                tmp_path / "one" / name
            ).read_bytes(), name


def test_a_run_goes_on_where_the_last_was_broken_off(tree: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    pages: list[tuple[str, int]] = []

    def stop(record: dict[str, Any], counts: Any) -> None:
        pages.append((record["document"], record["page"]))
        if len(pages) == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        side_by_side(tree, out, on_page=stop)
    saved = [path for path in out.glob(f"{PAGES}/*/*/*.json") if path.stem.isdigit()]
    assert len(saved) >= sum(page > 0 for _, page in pages)
    parser = side_by_side(tree, out)
    assert len(parser.report) == 5 + 1 + 7 + 2 + 1 - len(saved)
    run(tree, tmp_path / "one", SayNumber())
    assert listing(out) == listing(tmp_path / "one")


def test_a_job_over_a_shared_engine_writes_what_serial_pages_do(tree: Path, tmp_path: Path) -> None:
    (tree / "broken.pdf").unlink()
    pair, settings = qwen3_vl(), ParseSettings(max_new_tokens=8, nodes=4)
    job(tree, tmp_path / "one", SayNumber()).run(lambda: PageParser(pair, settings))
    job(tree, tmp_path / "several", SayNumber()).run(lambda: page_parser(pair, settings, 4))
    for name in listing(tmp_path / "one"):
        if name.endswith(".md"):
            assert (tmp_path / "several" / name).read_text() == (
                tmp_path / "one" / name
            ).read_text()
    assert listing(tmp_path / "several") == listing(tmp_path / "one")


def test_a_page_at_which_a_process_died_has_the_parser_for_itself(
    tree: Path, tmp_path: Path
) -> None:
    """And those that wait for that keep nobody from being kept."""
    out, beside = tmp_path / "out", dict[str, int]()
    run_before = job(tree, out, SayNumber())
    (long,) = (one for one in run_before.documents if one.path.name == "2.pdf")
    key = run_before.output.plan(long).task(4).key
    record = {**this_process(), "started": 0.0}  # before this process
    run_before.store.write(
        f".sooner/attempts/{key.replace('/', '~')}.1.json", json.dumps(record).encode()
    )

    class WatchedParser(ScatteredParser):
        async def parse(self, page: Page, draft: Any = None) -> Any:
            if page.number == 4:
                beside[page.source.name] = self.under_way + 1
            return await super().parse(page, draft)

    parser = WatchedParser()
    job(tree, out, SayNumber()).run(lambda: parser)
    assert beside["2.pdf"] == 1
    assert parser.maximum > 1
    run(tree, tmp_path / "one", SayNumber())
    assert listing(out) == listing(tmp_path / "one")


def test_the_first_failure_ends_a_run_that_asks_for_that(tree: Path, tmp_path: Path) -> None:
    with pytest.raises(SoonerError, match="page 4: too hard"):
        side_by_side(
            tree, tmp_path / "out", raising={4: SoonerError("too hard")}, stop_on_error=True
        )
