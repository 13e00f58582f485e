"""The examples of `docs/serve.md`, pasted into a shell and an interpreter, against its servers."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from serve.robots import WAIT
from serve.test_chat_process import Started, start

pytest.importorskip("openai")

PAGE = Path(__file__).parents[2] / "docs" / "serve.md"
BLOCK = re.compile(r"^```(python|)\n(.*?)^```", re.MULTILINE | re.DOTALL)
ADDRESS = "http://127.0.0.1:8000"
ELSEWHERE = ("Qwen/", "docling", "prometheus", "sooner bench")
"""Blocks with these need a download, or are tried elsewhere."""


@pytest.mark.lab
@pytest.mark.slow
def test_the_examples_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    started: Started | None = None
    names: dict[str, Any] = {}
    servers, requests = 0, 0
    try:
        for language, text in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
            if any(word in text for word in ELSEWHERE):
                continue
            if match := re.search(r"^sooner serve (.*)$", text, re.MULTILINE):
                if started is not None:
                    assert started.stop() == 0
                started = start(tmp_path, *match[1].split())
                servers += 1
                if "client" in names:
                    names["client"] = started.client
                continue
            assert started is not None
            here = text.replace(ADDRESS, started.address)
            requests += 1
            if language == "python":
                exec(compile(here, str(PAGE), "exec"), names)
                assert capsys.readouterr().out.strip()
            else:
                done = subprocess.run(
                    ["bash", "-c", here], capture_output=True, text=True, check=True, timeout=WAIT
                )
                assert "data: [DONE]" in done.stdout
    finally:
        if started is not None:
            started.process.kill()
            started.process.wait()
    assert (servers, requests) == (2, 4)
    details = names["answer"].usage.completion_tokens_details
    assert details.accepted_prediction_tokens > 5
    assert details.rejected_prediction_tokens > 0
