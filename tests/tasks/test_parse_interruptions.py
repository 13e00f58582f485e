"""A run that is out of disk space: what is finished is kept."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from sooner.storage import StorageError
from sooner.tasks.parse import Delivery
from tasks.drafting import SayNumber, pdf
from tasks.parse_jobs import listing, records, run
from tasks.parse_workers import left_over


def test_a_full_disk_leaves_nothing_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever write is the first that fails, and with it every one behind."""
    source = pdf(tmp_path / "a.pdf", 2)
    sync, writes, allowed = os.fsync, [0], [1000]

    def full(handle: int) -> None:
        writes[0] += 1
        if writes[0] > allowed[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(handle)

    def parsed(out: Path) -> list[int]:
        texts = Delivery(out, ("md", "json"))
        return run(source, out, SayNumber(), delivery=texts).report

    monkeypatch.setattr(os, "fsync", full)
    assert parsed(tmp_path / "whole") == [1, 2]
    whole = listing(tmp_path / "whole")
    for number in range(writes[0]):
        out = tmp_path / f"{number}"
        writes[0], allowed[0] = 0, number
        with pytest.raises(StorageError, match="can't be written: No space left on device; wh"):
            parsed(out)
        allowed[0] = 1000
        assert left_over(out) == []
        done = {int(path.stem) for path in out.glob(".sooner/pages/*/*/*.json")}
        assert parsed(out) == sorted({1, 2} - done)
        assert listing(out) == whole
        assert (out / "a.pdf.md").read_text() == "number 1\n\nnumber 2\n"
        assert sorted(records(out)) == [("a.pdf", 1), ("a.pdf", 2)]
