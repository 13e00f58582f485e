from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sooner.storage import Store, open_store
from storage.s3_server import S3Server


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """One server a session; each test takes a bucket of its own."""
    server = S3Server()
    yield server
    server.stop()


@pytest.fixture
def bucket(s3_server: S3Server) -> str:
    """The URL of a new bucket."""
    from sooner.storage.urls import file_system

    name = f"bucket-{uuid.uuid4().hex[:12]}"
    file_system(f"s3://{name}", **s3_server.options)[0].call_s3("create_bucket", Bucket=name)
    return f"s3://{name}"


@pytest.fixture
def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """A store of the kind that the test is parametrized with."""
    made: dict[str, Callable[[], Store]] = {
        "local": lambda: open_store(tmp_path / "of objects"),
        "memory": lambda: open_store(f"memory://{uuid.uuid4().hex}"),
        "s3": lambda: open_store(
            request.getfixturevalue("bucket") + "/some/folder",
            **request.getfixturevalue("s3_server").options,
        ),
    }
    return made[request.param]()
