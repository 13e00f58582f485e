"""What a page asks of an object store: it decides how many pages a second a bucket takes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("moto")

from sooner.tasks.parse import Delivery
from storage.s3_server import S3Server
from tasks.drafting import EchoParser, SayNumber, pdf
from tasks.parse_jobs import job

WRITES = ("PUT", "POST", "DELETE")


def asked_for(server: S3Server, folder: Path, documents: int, pages: int) -> Counter[str]:
    """Requests of a run, by whether they write."""
    source = folder / f"{documents}-{pages}"
    source.mkdir()
    for number in range(documents):
        made = pdf(source / f"{number}.pdf", pages)
        made.write_bytes(made.read_bytes() + b"%d" % number)  # documents differ
    server.requests.clear()
    delivery = Delivery(f"s3://requests/{source.name}", ("md", "json"))
    job(source, Path("unused"), SayNumber(), delivery=delivery).run(EchoParser)
    return Counter("write" if one.method in WRITES else "read" for one in server.requests)


@pytest.mark.slow
def test_requests_of_a_page_and_of_a_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/scale.md says so many."""
    from sooner.storage.urls import file_system

    server = S3Server()
    server.into_environment(monkeypatch)
    try:
        file_system("s3://requests")[0].call_s3("create_bucket", Bucket="requests")
        one, longer, more = (
            asked_for(server, tmp_path, *size) for size in ((1, 2), (1, 10), (5, 2))
        )
    finally:
        server.stop()
    page = {kind: (longer[kind] - one[kind]) / 8 for kind in ("write", "read")}
    document = {kind: (more[kind] - one[kind]) / 4 - 2 * page[kind] for kind in page}
    assert page == {"write": 5, "read": 3}
    assert document["write"] <= 12
    assert document["read"] <= 12
