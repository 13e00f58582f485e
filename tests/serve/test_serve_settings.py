"""What a server refuses before it starts."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from sooner.errors import SoonerError
from sooner.serve.settings import ChatSettings, ServeSettings, is_loopback, parse_bytes


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_a_loopback_needs_no_token(host: str) -> None:
    assert is_loopback(host)
    ServeSettings(host=host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "robot.example", ""])
def test_an_open_address_needs_a_token(host: str) -> None:
    with pytest.raises(SoonerError, match=r"can be reached.*--token"):
        ServeSettings(host=host)
    ServeSettings(host=host, token="secret")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"port": 70_000}, "port is 70000"),
        ({"port": -1}, "port is -1"),
        ({"max_batch": 0}, "max_batch is 0"),
        ({"max_queue": 1.5}, "max_queue is 1.5"),
        ({"max_body": True}, "max_body is True"),
        ({"window_ms": -1}, "window_ms is -1"),
        ({"deadline_ms": 0}, "deadline_ms is 0; it must be above 0"),
        ({"deadline_ms": float("nan")}, "deadline_ms is nan"),
        ({"token": " "}, "token is empty"),
        ({"token": "schlüssel"}, "no HTTP header"),
    ],
)
def test_other_values_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SoonerError, match=message):
        ServeSettings(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"media_root": "/nothing/there"}, "is no folder"),
        ({"served_model_name": " "}, "is empty"),
        ({"method": "specultive"}, "did you mean 'speculative'"),
        ({"num_draft_tokens": 0}, "num_draft_tokens is 0"),
    ],
)
def test_settings_of_a_chat_server_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SoonerError, match=message):
        ChatSettings(**options)


def test_neither_the_package_nor_its_parts_import_a_web_framework() -> None:
    code = (
        "import sys, sooner, sooner.serve, sooner.cli.main\n"
        "from sooner.serve.settings import ServeSettings\n"
        "found = {'fastapi', 'uvicorn', 'prometheus_client', 'torch'} & set(sys.modules)\n"
        "assert not found, found\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("text", "value"),
    [("17", 17), ("8GiB", 8 << 30), ("8g", 8 * 10**9), ("1.5 MiB", 3 << 19), ("2kB", 2000)],
)
def test_bytes_from_the_command_line(text: str, value: int) -> None:
    assert parse_bytes(text) == value


@pytest.mark.parametrize("text", ["", "GiB", "-1", "8 apples", "1e9", "8GiBs"])
def test_what_is_no_number_of_bytes_is_refused(text: str) -> None:
    with pytest.raises(SoonerError, match="is no number of bytes; write it as 8GiB"):
        parse_bytes(text)
