"""Documents behind URLs: found like files, fetched for their turn, and gone behind it."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from sooner.documents import Document, fetched, find_documents
from sooner.errors import SoonerError
from sooner.storage import StorageError, open_store
from storage.s3_server import S3Server


@pytest.fixture
def memory() -> str:
    url = f"memory://{uuid.uuid4().hex}"
    store = open_store(url)
    for name in ("b/p10.png", "b/p2.PNG", "a #1?.pdf", "notes.txt", ".cache/c.pdf", "ä/x.pdf"):
        store.write(f"in/{name}", name.encode())
    return url


def places(documents: list[Document]) -> list[str]:
    return [document.place.as_posix() for document in documents]


def test_a_folder_is_searched_as_on_this_machine(memory: str) -> None:
    for end in ("", "/"):
        documents = find_documents([f"{memory}/in{end}"])
        assert places(documents) == ["a #1?.pdf", "b/p2.PNG", "b/p10.png", "ä/x.pdf"]
    assert places(find_documents([f"{memory}/in/**/*.png"])) == ["b/p10.png"]
    assert places(find_documents([f"{memory}/in/b/*.png", f"{memory}/in/b/p10.png"])) == ["p10.png"]


def test_results_of_earlier_runs_are_no_documents(memory: str) -> None:
    store = open_store(memory)
    for name in ("out/.sooner/pages/1.json", "out/a.pdf/page-0001.png", "outer/e.png"):
        store.write(f"in/{name}", b"1")
    paths = places(find_documents([f"{memory}/in"]))
    assert paths == ["a #1?.pdf", "b/p2.PNG", "b/p10.png", "outer/e.png", "ä/x.pdf"]
    assert places(find_documents([f"{memory}/in/out/"])) == ["a.pdf/page-0001.png"]


def test_a_document_is_here_only_for_its_turn(memory: str) -> None:
    (document,) = find_documents([f"{memory}/in/a #1?.pdf"])
    assert document.source == document.url
    assert document.source.endswith("/in/a #1?.pdf")
    with fetched(document) as local:
        assert local.path.read_bytes() == b"a #1?.pdf"
        assert (local.path.name, local.problem) == ("a #1?.pdf", "")
        assert (local.url, local.place) == (document.url, document.place)
    assert not local.path.exists()
    assert not local.path.parent.exists()


def test_what_was_removed_meanwhile_is_a_problem_of_that_document(memory: str) -> None:
    (document,) = find_documents([f"{memory}/in/ä/x.pdf"])
    open_store(memory).remove("in/ä/x.pdf")
    with fetched(document) as local:
        assert local.problem == f"'{document.url}' does not exist"
        assert not local.path.exists()


def test_the_same_place_in_two_stores_is_distinguished(memory: str, tmp_path: Path) -> None:
    (tmp_path / "p10.png").write_bytes(b"1")
    documents = find_documents(
        [f"{memory}/in/b/p10.png", str(tmp_path / "p10.png"), f"{memory}/in/b/"]
    )
    assert len({document.place for document in documents}) == len(documents) == 3
    assert all(".." not in document.place.parts for document in documents)


def test_what_is_not_there_is_refused_in_a_line(memory: str) -> None:
    for name, message in {
        "nothing": "' does not exist",
        "in/notes.txt": r"' is no document by its name.*; known are \.pdf",
        "in/*.tif": "' has no documents; known are",
    }.items():
        with pytest.raises(SoonerError, match=message):
            find_documents([f"{memory}/{name}"])
    with pytest.raises(StorageError, match="unknown scheme 'nowhere'; known are s3, http"):
        find_documents(["nowhere://a/b.pdf"])


@pytest.mark.parametrize("key", ["docs/../../up.pdf", "docs//twice.pdf"])
def test_names_that_lead_elsewhere_are_refused(
    key: str, bucket: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3_server.into_environment(monkeypatch)
    system = open_store(bucket).system  # type: ignore[attr-defined]
    system.call_s3("put_object", Bucket=bucket.removeprefix("s3://"), Key=key, Body=b"1")
    with pytest.raises(StorageError, match="has a name that is no path"):
        find_documents([f"{bucket}/docs"])
