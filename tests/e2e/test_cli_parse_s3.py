"""`sooner parse` from and to a bucket, found by the environment alone, as by other clients."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sooner.storage import open_store
from sooner.storage.urls import file_system
from storage.s3_server import S3Server
from tasks.drafting import pdf

pytestmark = pytest.mark.slow


def parse(server: S3Server, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sooner.cli", "parse", *arguments, "--drafter", "text-layer"],
        env={**os.environ, **server.environment},
        capture_output=True,
        text=True,
    )


def test_documents_of_a_bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = S3Server()
    try:
        server.into_environment(monkeypatch)
        file_system("s3://papers")[0].call_s3("create_bucket", Bucket="papers")
        store = open_store("s3://papers")
        for place, pages in {"docs/one #1.pdf": 2, "docs/sub/two.pdf": 1}.items():
            store.write(place, pdf(tmp_path / "made.pdf", pages).read_bytes())
        # Pictures of pages lie within the inputs, and are none of them.
        done = parse(server, "s3://papers/docs/", "-o", "s3://papers/docs/out")
        assert done.returncode == 0, done.stderr
        assert "3 of 3 pages parsed" in done.stderr
        assert store.read("docs/out/one #1.pdf.md") == b"page 1 says so\n\npage 2 says so\n"
        assert not any(request.copy_source for request in server.requests)
        wrong = parse(server, "s3://papers/docs/", "-o", "s3://of-nobody/out")
        assert wrong.returncode == 2
        assert "store 's3://of-nobody/out' can't be written: " in wrong.stderr
        assert wrong.stderr.count("\n") <= 2
    finally:
        server.stop()
