"""Benches that are told to end."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import pytest

from sooner_lab.cli.bench_parts import measured


def test_sigterm_ends_what_a_bench_started() -> None:
    """`timeout` sends it: without a handler servers of a bench lived on."""
    ended = []

    def run(settings: Any, progress: Any) -> dict[str, Any]:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5)
        finally:
            ended.append(settings)
        return {}

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        measured(run, "settings", False)
    assert ended == ["settings"]
    assert signal.getsignal(signal.SIGTERM) is before
