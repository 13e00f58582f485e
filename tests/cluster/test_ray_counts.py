"""What a run on Ray counts, when rows come again after a machine was lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

pytest.importorskip("ray.data")

from cluster.stub_run import make_job
from sooner.ray.job import RayJob


def opened_job(folder: Path) -> RayJob:
    """A job that takes rows of one document of two pages."""
    Image.new("RGB", (8, 8)).save(folder / "a.png")
    job = make_job(str(folder), str(folder / "out"), "local", 0.0)
    job._is_seen, job._is_done = bytearray(1), bytearray(1)
    job._looked = float("inf")  # there is no cluster to look at
    job._took(row("a.png", -1, told={"document": 0, "todo": 2, "of": 2, "before": 0, "aside": 0}))
    return job


def row(path: str, page: int, told: dict[str, int]) -> dict[str, Any]:
    line = {"source": path, "page": page, "status": "SUCCESS"}
    return {
        "path": path, "place": path, "hash": "0", "page": page, "starved": 0.0,
        "told": json.dumps(told), "line": json.dumps(line),
    }  # fmt: skip


def test_a_page_that_comes_again_is_counted_once(tmp_path: Path) -> None:
    job = opened_job(tmp_path)
    for _ in range(2):
        job._took(row("a.png", 1, {"document": 0}))
    assert (job.counts.done, job.counts.total) == (1, 2)


@pytest.mark.parametrize("is_done", [False, True])
def test_pages_of_a_document_that_has_ended_are_not_counted(tmp_path: Path, is_done: bool) -> None:
    """Whether its files are being written, or are."""
    job = opened_job(tmp_path)
    del job._open[0]
    job._is_done[0] = is_done
    job._finishing = {} if is_done else {"a task": 0}
    job._took(row("a.png", 1, {"document": 0}))
    assert (job.counts.done, job.counts.total) == (0, 2)
    assert not job._open
