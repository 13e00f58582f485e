"""moto's S3 on loopback, which writes down what is asked of it and fails where it is told to."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from moto.s3.models import FakeKey
from moto.server import MotoRequestHandler
from s3fs import S3FileSystem
from werkzeug.serving import make_server

ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


class _NoList(list):
    """moto lists every object that it ever made, with its body; nobody here asks for those that are
    no more."""

    def append(self, made: object) -> None:
        pass


FakeKey.instances_tracked = _NoList()


@dataclass(frozen=True)
class S3Request:
    """A request: its method, path, query and the header that matters here."""

    method: str
    path: str
    query: str
    copy_source: str | None


@dataclass
class S3Server:
    """A server of its own port, for tests.

    Attributes:
        requests: so far, the last ones.
        failing: statuses for the next requests that `fails` picks, such as 500 or 503; a negative
            one answers so after the request was carried out.
        fails: which requests.
    """

    requests: deque[S3Request] = field(default_factory=lambda: deque(maxlen=100_000))
    failing: deque[int] = field(default_factory=deque)
    fails: Callable[[S3Request], bool] = lambda request: True

    def __post_init__(self) -> None:
        self._app = DomainDispatcherApplication(create_backend_app)
        self._server = make_server(
            "127.0.0.1", 0, self, threaded=True, request_handler=MotoRequestHandler
        )
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def options(self) -> dict[str, Any]:
        """What `open_store` is given for it."""
        return {
            "endpoint_url": self.url,
            "key": "testing",
            "secret": "testing",
            "client_kwargs": {"region_name": "us-east-1"},
        }

    @property
    def environment(self) -> dict[str, str]:
        return {**ENVIRONMENT, "AWS_ENDPOINT_URL": self.url}

    def into_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let clients of this process find it by the environment alone."""
        for name, value in self.environment.items():
            monkeypatch.setenv(name, value)
        S3FileSystem.clear_instance_cache()  # clients of the server before it

    @contextmanager
    def failure(
        self, *statuses: int, of: Callable[[S3Request], bool] = lambda request: True
    ) -> Any:
        """Let the next requests that `of` picks fail."""
        self.fails = of
        self.failing.extend(statuses)
        try:
            yield
        finally:
            self.failing.clear()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        request = S3Request(
            environ["REQUEST_METHOD"],
            environ["PATH_INFO"],
            environ.get("QUERY_STRING", ""),
            environ.get("HTTP_X_AMZ_COPY_SOURCE"),
        )
        self.requests.append(request)
        status = self.failing.popleft() if self.failing and self.fails(request) else 0
        if status > 0:
            return _error(status, environ, start_response)
        if request.method in ("PUT", "POST"):
            body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            if len(body) < int(environ.get("CONTENT_LENGTH") or 0):
                return _error(400, environ, start_response)  # S3 drops a body that was cut off
            environ["wsgi.input"] = _Body(body)
            answer = list(self._app(environ, start_response if status == 0 else _nowhere))
            return answer if status == 0 else _error(-status, environ, start_response)
        return self._app(environ, start_response)


class _Body:
    """A body that was read already."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def read(self, size: int = -1) -> bytes:
        end = len(self.data) if size is None or size < 0 else self.at + size
        piece, self.at = self.data[self.at : end], min(end, len(self.data))
        return piece

    def readline(self, size: int = -1) -> bytes:
        end = self.data.find(b"\n", self.at) + 1 or len(self.data)
        return self.read(end - self.at)

    def __iter__(self) -> Iterator[bytes]:
        return iter([self.read()])


def _nowhere(status: str, headers: list[tuple[str, str]], *more: Any) -> Callable[[bytes], None]:
    return lambda data: None


def _error(status: int, environ: dict[str, Any], start_response: Any) -> list[bytes]:
    code = {500: "InternalError", 503: "SlowDown"}.get(status, "Other")
    body = f"<Error><Code>{code}</Code><Message>as a test asks</Message></Error>".encode()
    start_response(f"{status} {code}", [("Content-Type", "application/xml")])
    return [body]
