"""The parts of `sooner bench serve`: orders, traces, intervals, gate, goals, page, load."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sooner.errors import SoonerError
from sooner_lab.bench.serve.direct import together
from sooner_lab.bench.serve.load import (
    HttpAnswer,
    HttpRequest,
    LoadProcess,
    LoadResult,
    mixed_order,
)
from sooner_lab.bench.serve.parity import Gate
from sooner_lab.bench.serve.requests import Copies, ServeQuestion, questions
from sooner_lab.bench.serve.servers import arguments
from sooner_lab.bench.serve.settings import ServeBenchSettings
from sooner_lab.bench.serve.traces import BLOCKS, AnswerTrace, LoadTraces, figures, over, trace_of
from sooner_lab.worlds.video.film import read_video

SEED = 7


def chunk(text: str | None = None, reason: str | None = None, ids: Any = None) -> bytes:
    choice: dict[str, Any] = {"index": 0, "delta": {} if text is None else {"content": text}}
    choice["finish_reason"] = reason
    if ids is not None:
        choice["token_origins"] = [
            {"id": token_id, "token": "", "origin": "draft"} for token_id in ids
        ]
    return b"data: " + json.dumps({"choices": [choice], "usage": None}).encode()


def closing(tokens: int) -> bytes:
    event = {
        "choices": [],
        "usage": {
            "prompt_tokens": 30, "completion_tokens": tokens,
            "prompt_tokens_details": {"cached_tokens": 10},
        },
        "metrics": {
            "speculative_decoding": {
                "num_spec_steps": 4, "num_draft_tokens": 10, "num_accepted_draft_tokens": 6,
            }
        },
    }  # fmt: skip
    return b"data: " + json.dumps(event).encode()


def answer(events: list[tuple[float, bytes]], status: int = 200) -> HttpAnswer:
    return HttpAnswer(3, 1.0, status, events, events[-1][0] if events else 1.5)


def trace(first: float, last: float, tokens: int, **more: Any) -> AnswerTrace:
    known: dict[str, Any] = {
        "number": 0, "due": 0.0, "first": first, "last": last, "ended": last, "tokens": tokens,
        "text": "a", "ids": (), "prompt": 30, "cached": 10, "steps": 4, "drafted": 10,
        "accepted": 6,
    }  # fmt: skip
    return AnswerTrace(**{**known, **more})


# Orders.


def test_orders_ask_all_equally_often_and_belong_to_their_seed() -> None:
    order = mixed_order(9, 5, SEED)
    assert sorted(order) == sorted(5 * list(range(9)))
    assert order == mixed_order(9, 5, SEED)
    assert order != mixed_order(9, 5, SEED + 1)
    assert sorted(order[9:18]) == list(range(9))


# Traces.


def test_a_trace_has_the_times_of_its_tokens() -> None:
    events = [
        (2.0, chunk("")), (2.5, chunk("a b", ids=[4, 5])), (3.0, b": ping"),
        (4.5, chunk(" c", "stop", ids=[6])), (4.6, closing(5)), (4.7, b"data: [DONE]"),
    ]  # fmt: skip
    trace = trace_of(answer(events))
    assert trace is not None
    assert (trace.text, trace.ids, trace.tokens) == ("a b c", (4, 5, 6), 5)
    assert trace.first_token == 1.5
    assert trace.per_token == pytest.approx(2.0 / 4)
    assert trace.seconds == pytest.approx(3.7)
    assert (trace.prompt, trace.cached, trace.accepted, trace.drafted) == (30, 10, 6, 10)


@pytest.mark.parametrize(
    ("events", "status"),
    [
        ([], 0),
        ([(2.0, b'{"error": {}}')], 429),
        ([(2.0, chunk("a")), (2.5, closing(2))], 200),  # broken off
        ([(2.0, b'data: {"error": {"message": "x"}}'), (2.1, b"data: [DONE]")], 200),
    ],
)
def test_what_was_not_answered_well_is_lost(events: list[tuple[float, bytes]], status: int) -> None:
    assert trace_of(answer(events, status)) is None
    load = LoadTraces.of(LoadResult([answer(events, status)], 2.0))
    assert load.lost == 1
    assert figures([load]) == {"requests": 0, "lost": 1}


def test_figures_are_over_all_loads() -> None:
    loads = [
        LoadTraces([trace(0.1, 1.1, 11), trace(0.2, 2.2, 21)], 0, 4.0),
        LoadTraces([trace(0.3, 3.3, 31, drafted=0, accepted=0)], 1, 6.0),
    ]
    result_row = figures(loads)
    assert (result_row["requests"], result_row["lost"]) == (3, 1)
    assert result_row["requests_per_second"] == pytest.approx(0.3)
    assert result_row["tokens_per_second"] == pytest.approx(6.3)
    assert result_row["first_token_ms"]["p50"] == pytest.approx(200)
    assert result_row["per_token_ms"]["p50"] == pytest.approx(100)
    assert result_row["acceptance_rate"] == pytest.approx(12 / 20)
    assert result_row["mean_acceptance_length"] == pytest.approx(1 + 12 / 12)
    assert result_row["cached_tokens"] == 10


def test_blocks_are_slices_whose_sums_are_the_loads() -> None:
    load = LoadTraces([trace(1.0, 3.0, 20), trace(2.0, 8.0, 60)], 0, 8.0)
    blocks = load.blocks()
    assert len(blocks) == BLOCKS
    assert sum(block[0] for block in blocks) == pytest.approx(80)
    assert sum(block[1] for block in blocks) == pytest.approx(8)
    assert blocks[0][0] == 0  # nobody had a token yet
    assert blocks[1][0] == pytest.approx(10)
    assert blocks[-1][0] == pytest.approx(10)


def test_speed_over_another_arm_has_an_interval_where_there_is_enough_to_draw_from() -> None:
    rng = np.random.default_rng(0)
    slow = [(100 + float(rng.normal(0, 5)), 1.0) for _ in range(16)]
    fast = [(2 * tokens, seconds) for tokens, seconds in slow]
    ratio = over(fast, slow, SEED)
    assert ratio["value"] == pytest.approx(2)
    assert ratio["interval"] == pytest.approx([2, 2])  # paired
    unpaired = over(fast[:5], slow, SEED)
    assert unpaired["value"] == pytest.approx(2, rel=0.1)
    assert unpaired["interval"] is None
    assert over([], slow, SEED)["value"] is None


# The gate.


def test_the_gate_goes_red_on_an_id_and_on_a_text_that_nobody_compared() -> None:
    scores = [torch.tensor([0.0, 5.0, 1.0]) for _ in range(2)]
    gate = Gate([([1, 1], scores)], is_exact=True)
    assert gate.is_red  # nothing was compared yet
    gate.load(LoadTraces([trace(0, 1, 2, ids=(1, 1), text="x x")], 0, 1.0))
    gate.load(LoadTraces([trace(0, 1, 2, text="x x")], 0, 1.0))
    assert not gate.is_red
    assert gate.report()["parity"] == "identical"
    gate.load(LoadTraces([trace(0, 1, 2, text="x y")], 0, 1.0))
    assert gate.is_red
    assert gate.report()["differing"] == 1
    other = Gate([([1, 1], scores)], is_exact=True)
    other.tokens(0, [1, 2])
    assert other.is_red
    assert other.report()["divergences"][0]["candidate"] == 2
    tied = Gate([([1, 1], [torch.tensor([0.0, 5.0, 5.0])] * 2)], is_exact=False)
    tied.tokens(0, [1, 2], "x y")
    tied.load(LoadTraces([trace(0, 1, 2, text="x z")], 0, 1.0))
    assert tied.verdict == "tie"


# Requests and settings.


def test_requests_have_different_bytes_and_the_same_pixels(tmp_path: Path) -> None:
    settings = ServeBenchSettings(clips=1, texts=1)
    clip, text = questions(settings, tmp_path)
    sent = Copies().http([clip, text], [0, 1, 0])
    assert [request.number for request in sent] == [0, 1, 0]
    first, third = (json.loads(sent[place].body) for place in (0, 2))
    assert first.keys() == third.keys()
    assert first["messages"] != third["messages"]
    copy = tmp_path / "copy.mp4"
    from sooner_lab.bench.serve.requests import free_box

    copy.write_bytes(clip.content + free_box(5))
    assert clip.clip is not None
    assert np.array_equal(read_video(copy), read_video(clip.clip))


def test_servers_of_arms_differ_in_method_and_rows_alone() -> None:
    settings = ServeBenchSettings(max_rows=12)
    plain, alone, drafts = (
        arguments(settings, arm) for arm in ("plain", "one-by-one", "speculative")
    )
    assert plain[plain.index("--max-rows") + 1] == "12"
    assert alone[alone.index("--max-rows") + 1] == "1"
    assert [argument if argument != "speculative" else "plain" for argument in drafts] == plain
    assert settings.served == ("plain", "one-by-one", "speculative", "prompt-lookup")


def test_an_arm_without_its_head_is_refused() -> None:
    with pytest.raises(SoonerError, match="needs --head"):
        ServeBenchSettings(arms=("plain", "eagle"))


def test_rows_of_clips_and_text_make_a_batch() -> None:
    ids = [torch.arange(1, 6)[None], torch.arange(1, 4)[None]]
    rows = [{"input_ids": row_ids, "attention_mask": torch.ones_like(row_ids)} for row_ids in ids]
    rows[0]["pixel_values_videos"] = torch.zeros(1, 2, 3)
    batch = together(rows)
    assert batch["input_ids"].tolist()[1] == [0, 0, 1, 2, 3]
    assert batch["attention_mask"].tolist()[1] == [0, 0, 1, 1, 1]
    assert batch["pixel_values_videos"].shape == (1, 2, 3)


# The load generator, against a server of this test's.


class Slow:
    """Answers every request with a stream of three chunks, and notes how many it had at once."""

    def __init__(self) -> None:
        self.now = self.maximum = 0
        self.ready = threading.Event()
        self.port = 0
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._thread.start()
        assert self.ready.wait(10)

    async def _run(self) -> None:
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self.ready.set()
        async with server:
            await server.serve_forever()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while not reader.at_eof():
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError:
                return  # the client has left
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            body = json.loads(await reader.readexactly(length))
            if body.get("refuse"):
                writer.write(b"HTTP/1.1 429 Full\r\nContent-Length: 2\r\n\r\n{}")
                continue
            self.now += 1
            self.maximum = max(self.maximum, self.now)
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            for event in (chunk("a"), chunk("b", "stop"), closing(2), b"data: [DONE]"):
                await asyncio.sleep(0.02)
                half = len(event) // 2  # an event may come in two pieces
                for piece in (event[:half], event[half:] + b"\n\n"):
                    writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
                    await writer.drain()
            self.now -= 1
            writer.write(b"0\r\n\r\n")


def test_loads_are_closed_loops_and_note_when_bytes_came() -> None:
    server = Slow()
    requests = [HttpRequest(number, "/v1/x", b"{}") for number in range(6)]
    with LoadProcess(None) as asking:
        closed = asking.closed(server.port, requests, 3)
        assert server.maximum == 3
        refused = asking.closed(server.port, [HttpRequest(0, "/v1/x", b'{"refuse": 1}')], 1)
    assert sorted(item.number for item in closed.answers) == list(range(6))
    load = LoadTraces.of(closed)
    assert load.lost == 0
    assert all(item.text == "ab" and item.tokens == 2 for item in load.traces)
    # A reader that comes late finds two events at once.
    assert all(0 < item.per_token < 1 for item in load.traces if item.per_token)
    assert max(item.per_token for item in load.traces if item.per_token) >= 0.01
    assert closed.seconds >= 0.16  # two rounds of three
    assert [item.status for item in refused.answers] == [429]


def test_a_question_without_a_clip_is_text() -> None:
    body = json.loads(ServeQuestion("hi", 4).http(0, 0).body)
    assert body["messages"] == [{"role": "user", "content": "hi"}]
    assert body["max_tokens"] == 4
