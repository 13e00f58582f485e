"""Drafters that read pages themselves, and what guards them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from documents.pages import blank, line
from sooner.documents import Page, PageDraft, PageText, Region
from sooner.documents.drafters import TextLayer
from sooner.errors import SoonerError
from sooner.tasks.parse import FirstOf, GuardedDrafter

LONG = 60.0


def test_a_text_layer_is_a_draft_where_it_is_good() -> None:
    good = PageText([line("Some words of text", 10, 100)], coverage=1.0)
    draft = TextLayer()(blank(text=good))
    assert (draft.texts, draft.reason, draft.size) == (["Some words of text"], "", (300, 400))
    bad = PageText(good.lines, garbled=0.5, coverage=1.0)
    assert TextLayer()(blank(text=bad)).regions == []
    assert "garbage" in TextLayer()(blank(text=bad)).reason
    assert TextLayer()(blank()).reason == "no text layer"


class FixedDrafter:
    """A drafter that says the same of every page."""

    def __init__(self, name: str, *texts: str, reason: str = "") -> None:
        self.name, self.texts, self.reason = name, texts, reason
        self.calls = 0

    def __call__(self, page: Page) -> PageDraft:
        self.calls += 1
        regions = [
            Region((0, 50 * n, 100, 50 * n + 20), order=n, drafts=[text])
            for n, text in enumerate(self.texts)
        ]
        return PageDraft(regions, 1.0, self.name, page.size, self.reason)


def test_the_first_drafter_with_any_text_is_used() -> None:
    last = FixedDrafter("c", "z")
    draft = FirstOf(FixedDrafter("a", reason="nothing"), FixedDrafter("b", "x"), last)(blank())
    assert (draft.texts, draft.drafter, draft.seconds, draft.reason) == (["x"], "b", 2.0, "")
    assert last.calls == 0
    empty = FirstOf(FixedDrafter("a", reason="nothing"), FixedDrafter("b", reason="blank"))(blank())
    assert empty.reason == "a: nothing; b: blank"


class Fails:
    name = "fails"

    def __call__(self, page: Page) -> PageDraft:
        raise [ValueError("broken\ninside"), SoonerError("said so"), SystemExit(3)][page.number - 1]


def test_a_drafter_that_fails_gives_an_empty_draft() -> None:
    drafter = GuardedDrafter(Fails(), LONG, processes=0)
    reasons = [drafter(blank(number)).reason for number in (1, 2, 3)]
    assert reasons == ["failed with ValueError: broken inside", "said so",
                       "failed with SystemExit: 3"]  # fmt: skip
    assert drafter(blank()).size == (300, 400)


def test_the_texts_of_a_guarded_drafter_come_through() -> None:
    assert GuardedDrafter(FixedDrafter("a", "x"), LONG, processes=0)(blank()).texts == ["x"]
    with pytest.raises(SoonerError, match="must be above 0"):
        GuardedDrafter(FixedDrafter("a"), 0)


class Misbehaves:
    """Dies on page 2, hangs on page 3, and fails on page 4."""

    name = "misbehaves"

    def __call__(self, page: Page) -> PageDraft:
        if page.number == 2:
            os._exit(7)
        if page.number == 3:
            time.sleep(LONG)
        if page.number == 4:
            raise ValueError("no")
        return PageDraft([Region(None, drafts=[str(os.getpid())])], drafter=self.name)


def test_a_process_can_be_ended_whatever_it_does() -> None:
    drafter = GuardedDrafter(Misbehaves(), 0.2)
    drafter.timeout = LONG
    try:
        (first,) = drafter(blank(1)).texts
        assert first != str(os.getpid())
        assert drafter(blank(4)).reason == "failed with ValueError: no"
        assert drafter(blank(1)).texts == [first]
        drafter.timeout = 0.2
        assert drafter(blank(3)).reason == "no answer within 0.2 s"
        drafter.timeout = LONG
        assert drafter(blank(2)).reason == "its process died"
        (again,) = drafter(blank(1)).texts
        assert again != first
        os.kill(int(again), signal.SIGKILL)  # between two pages
        (process,) = drafter.processes
        assert process.process is not None
        process.process.join()
        assert len(drafter(blank(1)).texts) == 1
    finally:
        drafter.close()


def test_a_drafter_that_cannot_travel_is_reported() -> None:
    local = FixedDrafter("a")
    local.lock = threading.Lock()  # type: ignore[attr-defined]
    assert "TypeError" in GuardedDrafter(local, LONG)(blank()).reason


class Slow:
    """Takes its time over page 2, says its process over others."""

    name = "slow"

    def __call__(self, page: Page) -> PageDraft:
        if page.number == 2:
            time.sleep(LONG)
        return PageDraft([Region(None, drafts=[str(os.getpid())])], 0.0, self.name)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"


def test_a_page_goes_to_a_process_that_is_free() -> None:
    """One hangs, the other goes on; when they are closed, both are gone and the call is over."""
    drafter = GuardedDrafter(Slow(), timeout=LONG, processes=2)
    stuck: list[PageDraft] = []
    hanging = threading.Thread(target=lambda: stuck.append(drafter(blank(2))))
    hanging.start()
    try:
        pids = {int(drafter(blank()).texts[0]) for _ in range(3)}
        assert hanging.is_alive()
    finally:
        drafter.close()
    hanging.join(LONG / 2)
    assert not hanging.is_alive()
    assert stuck[0].regions == []
    assert "its process died" in stuck[0].reason
    assert not any(is_alive(pid) for pid in pids)


PARENT = """
import sys, threading
from documents.pages import blank
from documents.test_documents_drafters import Slow
from sooner.tasks.parse import GuardedDrafter

if __name__ == "__main__":
    drafter = GuardedDrafter(Slow(), timeout=60)
    print(drafter(blank()).texts[0], flush=True)
    drafter(blank(2))
"""


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="looks into /proc")
def test_a_process_ends_with_its_parent_even_in_the_middle_of_a_page(tmp_path: Path) -> None:
    (tmp_path / "parent.py").write_text(PARENT)
    path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path}
    with subprocess.Popen(
        [sys.executable, str(tmp_path / "parent.py")],
        stdout=subprocess.PIPE, env=environment, text=True,
    ) as parent:  # fmt: skip
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert is_alive(pid)
        status = Path(f"/proc/{pid}/status").read_text()
        blocked, ignored = (
            int(status.partition(name)[2].split()[0], 16) for name in ("SigBlk:", "SigIgn:")
        )
        assert blocked & ignored & 1 << signal.SIGINT - 1  # a terminal sends it to both
        parent.kill()
        parent.wait()
    for _ in range(600):
        if not is_alive(pid):
            break
        time.sleep(0.05)
    assert not is_alive(pid)
