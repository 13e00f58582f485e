"""`sooner serve miniature` as a newcomer starts it: a process, a port, curl, the openai package."""

from __future__ import annotations

import base64
import json
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from serve.robots import WAIT
from sooner import miniatures

openai = pytest.importorskip("openai")
pytestmark = [pytest.mark.lab, pytest.mark.slow]


@dataclass
class Started:
    """A process of `sooner serve`."""

    process: subprocess.Popen[str]
    address: str
    output: list[str]

    @property
    def client(self) -> Any:
        return openai.OpenAI(base_url=f"{self.address}/v1", api_key="none", max_retries=0)

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(WAIT)


def start(folder: Path, *arguments: str) -> Started:
    command = [sys.executable, "-m", "sooner.cli", "serve", *arguments, "--port", "0"]
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line)
        if match := re.search(r"http://\S+(?=/v1)", line):
            drain = threading.Thread(target=lambda: lines.extend(process.stdout or ()), daemon=True)
            drain.start()
            return Started(process, match[0], lines)
    raise AssertionError(f"it ended with {process.wait()}: {''.join(lines)}")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("served")
    for name in ("video", "document"):
        sample = miniatures.find(name).sample
        assert sample is not None
        shutil.copy(sample, made / sample.name)
    return made


@pytest.fixture(scope="module")
def video(folder: Path) -> Iterator[Started]:
    started = start(folder, "miniature", "--media-root", ".")
    yield started
    started.process.kill()
    started.process.wait()


def about(
    kind: str, url: str, text: str = "describe the scenes in order ."
) -> list[dict[str, Any]]:
    parts = [{"type": kind, kind: {"url": url}}, {"type": "text", "text": text}]
    return [{"role": "user", "content": parts}]


def data_uri(path: Path) -> str:
    return f"data:application/octet-stream;base64,{base64.b64encode(path.read_bytes()).decode()}"


def test_the_openai_client_streams_the_text_of_sooner_caption(video: Started, folder: Path) -> None:
    done = sooner("caption", "--sample", "-o", "told.jsonl", "-q", folder=folder)
    assert done.returncode == 0, done.stderr
    expected = json.loads((folder / "told.jsonl").read_text())["text"]
    stream = video.client.chat.completions.create(
        model="miniature", messages=about("video_url", data_uri(folder / "sample.mp4")), stream=True
    )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
    assert text.strip() == expected
    below = video.client.chat.completions.create(
        model="miniature", messages=about("video_url", "sample.mp4")
    )
    assert below.choices[0].message.content == text
    drafts = below.model_extra["metrics"]["speculative_decoding"]
    assert drafts["mode"] == "exact"
    assert drafts["num_accepted_draft_tokens"] > drafts["num_spec_steps"]


def test_a_page_is_read_and_a_server_that_is_stopped_ends_with_0(folder: Path) -> None:
    started = start(folder, "miniature:document", "--media-root", str(folder), "--method", "hsd")
    try:
        messages = about("image_url", f"file://{folder}/sample.png", "read the page")
        options = {"model": "miniature:document", "messages": messages}
        answer = started.client.chat.completions.create(**options)
        text = answer.choices[0].message.content
        assert len(text.split()) > 50
        guess = {"type": "content", "content": text}
        again = started.client.chat.completions.create(**options, prediction=guess)
        assert again.choices[0].message.content == text
        usage = again.usage.completion_tokens_details
        assert usage.accepted_prediction_tokens > 0.8 * again.usage.completion_tokens
        stream = started.client.chat.completions.create(**options, stream=True)
        pieces = [next(iter(stream))]
        started.process.send_signal(signal.SIGTERM)
        pieces += stream
        streamed = "".join(
            piece.choices[0].delta.content or "" for piece in pieces if piece.choices
        )
        assert streamed == text
        assert started.process.wait(WAIT) == 0
    finally:
        started.process.kill()
        started.process.wait()


def sooner(*arguments: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sooner.cli", *arguments],
        cwd=folder, check=False, capture_output=True, text=True, timeout=WAIT,
    )  # fmt: skip


def test_a_second_ctrl_c_refuses_what_is_under_way(folder: Path) -> None:
    started = start(folder, "miniature", "--grace-seconds", "1000")
    try:
        stream = started.client.chat.completions.create(
            model="miniature", messages=[{"role": "user", "content": "hi"}], stream=True,
            max_tokens=1000, extra_body={"ignore_eos": True},
        )  # fmt: skip
        next(iter(stream))
        started.process.send_signal(signal.SIGINT)
        deadline = time.monotonic() + WAIT
        while not any("stopping; requests under way: 1" in line for line in started.output):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert httpx.get(f"{started.address}/ready").json()["status"] == "draining"
        started.process.send_signal(signal.SIGINT)
        with pytest.raises(openai.APIError, match="the server is stopping"):
            list(stream)
        assert started.process.wait(WAIT) == 130
        assert "Traceback" not in "".join(started.output)
    finally:
        started.process.kill()
        started.process.wait()
