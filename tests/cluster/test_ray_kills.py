"""Runs on two nodes whose processes are killed: results are as if nobody had disturbed them."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

pytest.importorskip("ray.data")

from ray_nodes import RayNodes

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("documents")
    for number in range(12):
        pages = [Image.new("RGB", (40, 50), (255, number, blue)) for blue in range(1 + number % 3)]
        pages[0].save(folder / f"d{number}.tiff", save_all=True, append_images=pages[1:])
    return folder


@pytest.fixture
def nodes() -> Iterator[RayNodes]:
    cluster = RayNodes()
    try:
        cluster.add()
        cluster.wait(2)
        yield cluster
    finally:
        cluster.close()


def start(
    documents: Path, out: Path, address: str, seconds: float, *more: str, **environment: str
) -> subprocess.Popen:
    out.mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, str(HERE / "stub_run.py"), str(documents), str(out), address,
         str(seconds), *more],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, **environment},
    )  # fmt: skip


def ended(run: subprocess.Popen, seconds: float = 240.0) -> None:
    output, _ = run.communicate(timeout=seconds)
    assert run.returncode == 0, output.decode()[-3000:]


def done(out: Path) -> int:
    return len(list((out / ".sooner" / "pages").rglob("*.json")))


def until(out: Path, pages: int, run: subprocess.Popen, seconds: float = 120.0) -> None:
    """Wait until a run has done so many pages."""
    end = time.monotonic() + seconds
    while done(out) < pages:
        assert run.poll() is None, run.communicate()[0].decode()[-3000:]
        assert time.monotonic() < end, f"{done(out)} of {pages} pages"
        time.sleep(0.05)


def results(out: Path) -> dict[str, bytes]:
    """Files of pages and documents."""
    files = [path for path in out.rglob("*") if path.suffix in (".md", ".json", ".html")]
    chosen = [path for path in files if ".sooner" not in path.parts and path.name != "counts.json"]
    return {str(path.relative_to(out)): path.read_bytes() for path in chosen}


@pytest.fixture(scope="module")
def undisturbed(documents: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What one process writes, without Ray."""
    import asyncio

    from stub_run import SETTINGS, Waiting

    from sooner.documents import Page, PageDraft, find_documents
    from sooner.tasks.parse import Delivery, ParseJob, ParseOutput
    from sooner.tasks.parse.result import ParsedPage

    class Alone:
        def __init__(self) -> None:
            self.parser = Waiting(0.0, "")

        def __call__(self, page: Page, draft: PageDraft | None = None) -> ParsedPage:
            return asyncio.run(self.parser.parse(page))

    out = tmp_path_factory.mktemp("undisturbed")
    output = ParseOutput(Delivery(out, ("md", "json", "html")), SETTINGS)
    ParseJob(documents=find_documents([documents]), output=output).run(Alone)  # type: ignore[arg-type]
    return results(out)


@pytest.mark.slow
def test_an_actor_and_a_node_are_killed(
    nodes: RayNodes, documents: Path, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    run = start(documents, tmp_path / "out", nodes.address, 0.5, **nodes.environment)
    try:
        until(tmp_path / "out", 3, run)
        random.choice(nodes.actors("Parser")).kill()
        until(tmp_path / "out", 9, run)
        nodes.raylets()[1].kill()
        ended(run)
    finally:
        run.kill()
    assert results(tmp_path / "out") == undisturbed
    counts = json.loads((tmp_path / "out" / "counts.json").read_text())
    assert counts["done"] == counts["total"] == done(tmp_path / "out") == 24
    assert counts["failed"] == 0


@pytest.mark.slow
def test_the_driver_is_killed_and_a_page_kills_its_process(
    documents: Path, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    """On a cluster of this machine alone, which ends with its driver."""
    out = tmp_path / "out"
    run = start(documents, out, "local", 0.3)
    until(out, 4, run)
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    before = done(out)
    assert before < 24
    again = start(documents, out, "local", 0.05, "d5.tiff")
    ended(again)
    counts = json.loads((out / "counts.json").read_text())
    actual = results(out)
    if counts["failed"]:  # the killer was not done before
        lines = [json.loads(item) for item in (out / "manifest.jsonl").read_text().splitlines()]
        bad = [item for item in lines if item["status"] == "FAILED"]
        assert {item["document"] for item in bad} == {"d5.tiff"}
        assert all("processes died" in item["reason"] and item["set_aside"] for item in bad)
        undisturbed = {name: item for name, item in undisturbed.items() if "d5.tiff" not in name}
        actual = {name: item for name, item in actual.items() if "d5.tiff" not in name}
    assert actual == undisturbed
