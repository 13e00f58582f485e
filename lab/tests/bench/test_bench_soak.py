"""`sooner bench soak`: servers that lose, lie or leak are caught; slopes are what they seem."""

from __future__ import annotations

import io
import json
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import av
import numpy as np
import psutil
import pytest
from PIL import Image

from sooner import miniatures
from sooner_lab.bench.report import markdown
from sooner_lab.bench.soak.clients import ACTS, BROKEN, SoakClient
from sooner_lab.bench.soak.requests import (
    SoakRequest,
    contents,
    read_answer,
    read_stream,
    requests,
    url_of,
)
from sooner_lab.bench.soak.run import growth, judge, resident
from sooner_lab.bench.soak.settings import MIX

RESULTS = Path(__file__).parents[3] / "docs" / "results"
WORDS = "the red circle"
REQUEST = SoakRequest("chat", {"text": "what", "max_tokens": 4})
ANSWER = ((WORDS, "stop"),)


def whole(text: str = WORDS) -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    return {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}


def streamed(*pieces: str, end: bytes = b"data: [DONE]\n\n") -> bytes:
    deltas: list[dict[str, Any]] = [{"role": "assistant"}, *({"content": item} for item in pieces)]
    frames = [{"choices": [{"index": 0, "delta": item}]} for item in deltas]
    frames.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    content = b": ping\n\n" + b"".join(
        b"data: " + json.dumps(item).encode() + b"\n\n" for item in frames
    )
    return content + end


def refusal(message: str = "no", code: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": "t", "param": None, "code": code}}


Answer = Callable[[dict[str, Any]], tuple[int, bytes, dict[str, str]]]


def right(request: dict[str, Any]) -> tuple[int, bytes, dict[str, str]]:
    if request.get("stream"):
        return 200, streamed("the red", " circle"), {}
    return 200, json.dumps(whole()).encode(), {}


@contextmanager
def served(answer: Answer) -> Iterator[SoakClient]:
    """A client of a server that answers so."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status, content, headers = answer(json.loads(body))
            if not status:  # it hangs up
                self.close_connection = True
                return
            self.send_response(status)
            for name, value in {"Content-Length": str(len(content)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)
            self.close_connection = True

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        address = f"http://127.0.0.1:{server.server_port}"
        client = SoakClient(address, [REQUEST], [ANSWER], {}, 3, random.Random(0))
        with client.http:
            yield client
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def ends(answer: Answer, kind: str = "ask", times: int = 6) -> tuple[dict[str, int], list[str]]:
    """How so many acts end with a server that answers so, and what is said of broken laws."""
    with served(answer) as client:
        for _ in range(times):
            client.act(kind)
    return {end: count for (_, end), count in client.counts.items()}, client.broken


def test_right_answers_are_answers_however_they_are_read() -> None:
    assert ends(right) == ({"answered": 6}, [])
    assert ends(right, "burst", 1) == ({"answered": 3}, [])
    assert ends(right, "hang-up", 2) == ({"left": 2}, [])


def test_documented_refusals_are_counted_by_their_status() -> None:
    full = json.dumps(refusal()).encode()
    assert ends(lambda request: (503, full, {})) == ({"503": 6}, [])
    assert ends(lambda request: (429, full, {"Retry-After": "1"}), times=1)[0] == {"429": 1}


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((0, b"", {}), "RemoteProtocolError"),
        ((500, json.dumps(refusal()).encode(), {}), "status 500"),
        ((499, json.dumps(refusal()).encode(), {}), "status 499"),
        ((503, b'{"detail": "no"}', {}), "KeyError"),
        ((503, json.dumps(refusal(code="engine_error")).encode(), {}), "status 503"),
        ((429, json.dumps(refusal()).encode(), {}), "when to come back"),
        ((200, json.dumps(whole("the blue circle")).encode(), {}), "the blue circle"),
        ((200, json.dumps(whole()).encode(), {"Content-Length": "9999"}), "RemoteProtocolError"),
        ((200, streamed("the red", " circle", end=b""), {}), "Error"),
        ((200, streamed("the red", " circle", "s"), {}), "Error"),
        ((200, streamed(WORDS, end=b'data: {"error": 1}\n\ndata: [DONE]\n\n'), {}), "Error"),
    ],
)
def test_what_no_documented_server_does_is_broken(answer: Any, message: str) -> None:
    counts, broken = ends(lambda request: answer)
    if answer[0] == 200 and counts != {BROKEN: 6}:  # half of them are asked for as a stream
        counts.pop("answered", None)
    assert set(counts) == {BROKEN}
    assert all(line.startswith("ask: ") for line in broken)
    assert message in " ".join(broken)


def test_a_stream_matches_the_answer() -> None:
    assert read_stream(streamed("the red", " circle")) == read_answer(whole()) == ANSWER


def test_clients_run_until_their_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sooner_lab.bench.soak.clients.MIX", {"ask": 1.0})
    with served(right) as client:
        client.run(0.3, clients=2, seed=5)
    assert set(client.counts) == {("ask", "answered")}
    assert client.broken == []


def test_every_act_of_the_mix_is_known_and_requests_are_well_formed() -> None:
    assert set(MIX) == set(ACTS)
    names = {name for request in requests() for name in request.media}
    for request in requests():
        body = json.loads(request.encoded(dict.fromkeys(names, "data:x"), stream=True))
        assert body["stream"]
        assert "messages" in body
        assert "text" not in body
        assert "seed" in body or "temperature" not in body


def test_new_bytes_are_the_same_pixels(tmp_path: Path) -> None:
    sample = miniatures.find("video").sample
    assert sample is not None
    files = contents(sample, 3)
    for name in ("picture-0", "clip-1"):
        encoded = [url_of(name, files[name], variant).partition(",")[2] for variant in range(3)]
        assert len(set(encoded)) == 3
        assert np.array_equal(pixels(name, encoded[0]), pixels(name, encoded[2]))


def pixels(name: str, encoded: str) -> np.ndarray:
    import base64

    file = io.BytesIO(base64.b64decode(encoded))
    if name.startswith("picture"):
        return np.array(Image.open(file))
    with av.open(file) as container:
        return np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)])


def look(seconds: float, rss: float, *counts: int) -> dict[str, float]:
    names = ("children_rss", "descriptors", "threads", "children")
    return {"seconds": seconds, "rss": rss, **dict(zip(names, counts, strict=True))}


def looks(rate: float) -> list[dict[str, float]]:
    """Half an hour in which memory grows by so many MiB a minute, and jumps."""
    draw = random.Random(1)
    return [
        look(2.0 * n, 900 + rate * n / 30 + draw.choice([0, 0, 40]), 120, 20, 15, 2)
        for n in range(900)
    ]


AFTER = look(1800, 900, 60, 10, 13, 1)
HEALTHY: dict[str, Any] = {
    "counts": [("ask", "answered", 90), ("ask", "429", 3), ("malformed", "400", 1)],
    "broken": [], "looks": looks(0.0), "before": look(0, 900, 120, 10, 12, 2), "after": AFTER,
    "busy": 0.4, "ends": ["answered"] * 6, "exit_code": 0, "left": [], "faults": [],
}  # fmt: skip


def test_a_healthy_server_keeps_every_law() -> None:
    assert all(law["holds"] for law in judge(HEALTHY))


@pytest.mark.parametrize(
    ("number", "change"),
    [
        (0, {"counts": [("ask", "answered", 9), ("burst", BROKEN, 1)]}),
        (0, {"counts": [("ask", "429", 9)]}),
        (1, {"busy": None}),
        (2, {"after": {**AFTER, "descriptors": 15}}),
        (2, {"after": {**AFTER, "threads": 17}}),
        (2, {"after": {**AFTER, "children": 3}}),
        (3, {"looks": looks(1.3)}),
        (4, {"exit_code": None}),
        (4, {"ends": ["answered", "503"]}),
        (4, {"left": [17]}),
        (5, {"faults": ["Traceback (most recent call last):"]}),
    ],
)
def test_each_fault_breaks_its_law_alone(number: int, change: dict[str, Any]) -> None:
    laws = judge({**HEALTHY, **change})
    assert [n for n, law in enumerate(laws) if not law["holds"]] == [number]


def test_growth_is_that_of_the_majority_of_points_and_has_its_interval() -> None:
    grown = growth(looks(0.6))
    assert 0.55 < grown["low"] <= grown["slope"] <= grown["high"] < 0.65
    assert growth(looks(0.6), of_children=True)["slope"] == 0
    assert growth(looks(0.6)[:2])["high"] == float("inf")


def test_the_page_tells_laws_acts_and_memory() -> None:
    result = json.loads((RESULTS / "soak.json").read_text())
    grown = {"growth": growth(HEALTHY["looks"]), "laws": judge({**HEALTHY, "exit_code": 1})}
    looks = [list(each.values()) for each in HEALTHY["looks"]]
    result |= {**HEALTHY, **grown, "looks": looks, "broken": ["ask: lost"]}
    page = markdown(result, "soak.json")
    assert page.count("| kept |") == 5
    assert page.count("| **broken** |") == 1
    assert "exit code 1" in page
    assert "| ask | 93 | 90 × answered, 3 × 429 |" in page
    assert "- `ask: lost`" in page


def test_a_process_is_seen_from_outside() -> None:
    assert resident(psutil.Process()) > 10
