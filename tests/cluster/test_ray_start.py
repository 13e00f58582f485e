"""Starts of a local cluster that fail, by a stand-in for `ray`."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sooner.errors import SoonerError
from sooner.ray import cluster

LATE = "The current node timed out during startup.\nThis could happen."


class FailingRay:
    """`ray` whose `init` fails so many times.

    Attributes:
        folders: that it was told to start in.
        ends: calls of `shutdown`.
        told: mode and token, as they were when the environment was read last.
    """

    def __init__(self, fails: int, error: type[BaseException] = RuntimeError) -> None:
        self.fails, self.error = fails, error
        self.folders: list[Path] = []
        self.ends, self.report = 0, ("", "")
        self._raylet = SimpleNamespace(
            Config=SimpleNamespace(initialize=self._read),
            AuthenticationTokenLoader=SimpleNamespace(instance=self._loader),
        )

    def _read(self, settings: str) -> None:
        self.report = os.environ.get("RAY_AUTH_MODE", ""), os.environ.get("RAY_AUTH_TOKEN", "")

    def _loader(self) -> Any:
        return SimpleNamespace(reset_cache=lambda: None)

    def is_initialized(self) -> bool:
        return False

    def init(self, **options: Any) -> None:
        folder = Path(options.get("_temp_dir", "/none"))
        self.folders.append(folder)
        if len(self.folders) <= self.fails:
            raise self.error(LATE)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # Ray's own goes before Python's

    def shutdown(self) -> None:
        self.ends += 1

    def nodes(self) -> list[Any]:
        return []


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    """Restores the handler of SIGTERM."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def failing(monkeypatch: pytest.MonkeyPatch, *args: Any) -> FailingRay:
    ray = FailingRay(*args)
    monkeypatch.setattr(cluster, "import_ray", lambda debug=False: ray)
    return ray


def test_a_start_that_fails_is_reported_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = failing(monkeypatch, 1)
    pattern = (
        r"^ray could not be started on this machine: The current .*happen; --debug shows more$"
    )
    with pytest.raises(SoonerError, match=pattern), cluster.connected():
        raise AssertionError("connected")
    assert not any(folder.exists() for folder in ray.folders)


@pytest.fixture
def no_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is said of tokens, and no file has one."""
    monkeypatch.setattr(cluster, "TOKEN", tmp_path / "token")
    monkeypatch.setattr(cluster, "_check_reachable", lambda address: None)
    for name in (cluster.MODE, *cluster.TOKENS):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("no_tokens")
def test_a_local_cluster_has_a_new_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray reads it, though it may have been imported long before, and forgets it."""
    ray, tokens = failing(monkeypatch, 0), set()
    for _ in range(2):
        with cluster.connected():
            mode, token = ray.report
            assert mode == "token"
            tokens.add(token)
        assert ray.report == ("", "")
    assert len(tokens) == 2
    assert all(len(secret) == 64 for secret in tokens)


@pytest.mark.usefixtures("no_tokens")
@pytest.mark.parametrize(
    ("address", "given", "expected"),
    [
        ("local", {"RAY_AUTH_MODE": "disabled"}, ("disabled", "")),
        ("local", {"RAY_AUTH_TOKEN": "mine"}, ("token", "mine")),
        ("head:1", {"RAY_AUTH_TOKEN": "mine"}, ("token", "mine")),
        ("head:1", {"RAY_AUTH_MODE": "disabled", "RAY_AUTH_TOKEN": "mine"}, ("disabled", "mine")),
    ],
)
def test_what_the_environment_says_of_tokens_counts(
    address: str, given: dict[str, str], expected: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ray = failing(monkeypatch, 0)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    with cluster.connected(address):
        assert ray.report == expected
    assert {name: os.environ.get(name) for name in given} == given


@pytest.mark.usefixtures("no_tokens")
def test_a_cluster_is_told_the_users_token(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = failing(monkeypatch, 0)
    with cluster.connected("head:1"):
        assert ray.report == ("", "")
    cluster.TOKEN.write_text("secret")
    with cluster.connected("head:1"):
        assert ray.report == ("token", "")
    assert ray.report == ("", "")
