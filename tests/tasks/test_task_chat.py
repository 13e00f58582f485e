"""A chat with a model: an answer is what `generate` says, in a conversation, and is verified so."""

from __future__ import annotations

from pathlib import Path

import pytest

from sooner.errors import SoonerError
from sooner.parity import reference_run
from sooner.tasks.caption import CaptionCallbacks
from sooner.tasks.chat import chat, prepare, verify
from sooner.tasks.loading import ModelPair, load_pair
from sooner.tasks.settings import CaptionSettings
from tasks.fixtures import POSITIONS

SHORT = CaptionSettings(max_new_tokens=12)
QUESTION = [{"role": "user", "content": "what is there"}]


@pytest.fixture(scope="module")
def pair(target_folder: Path) -> ModelPair:
    return load_pair(str(target_folder))


def test_an_answer_is_that_of_generate_and_streams(pair: ModelPair) -> None:
    pieces: list[str] = []
    callbacks = CaptionCallbacks(on_text=lambda piece, drafted: pieces.append(piece))
    record = chat(QUESTION, pair, SHORT, callbacks)
    prompt = prepare(QUESTION, pair, SHORT)
    [ids], _ = reference_run(pair.target.model, prompt.inputs, max_new_tokens=12)
    text = pair.target.tokenizer.decode(ids, skip_special_tokens=True).strip()
    assert record["text"] == "".join(pieces) == text
    assert (record["tokens"], record["mode"]) == (len(ids), "exact")
    assert record["prompt_tokens"] == prompt.inputs["input_ids"].shape[1]
    assert record["method"] == "prompt-lookup"  # without a draft


def test_an_end_at_the_limit_is_a_stop(pair: ModelPair, monkeypatch: pytest.MonkeyPatch) -> None:
    prompt = prepare(QUESTION, pair, SHORT)
    [ids], _ = reference_run(pair.target.model, prompt.inputs, max_new_tokens=12)
    end = next(place for place in range(3, 12) if ids[place] not in ids[:place])
    monkeypatch.setattr(pair.target.model.generation_config, "eos_token_id", ids[end])
    finishes = {
        room: chat(QUESTION, pair, CaptionSettings(max_new_tokens=room))["finish"]
        for room in (end, end + 1, end + 2)
    }
    assert finishes == {end: "length", end + 1: "stop", end + 2: "stop"}


def test_a_conversation_is_written_by_the_template(pair: ModelPair) -> None:
    answered = [*QUESTION, {"role": "assistant", "content": "a dog"}, *QUESTION]
    first, second = (
        prepare(each, pair, SHORT).inputs["input_ids"] for each in (QUESTION, answered)
    )
    assert second.shape[1] > 2 * first.shape[1] - 2
    decoded = pair.target.tokenizer.decode(second[0])
    assert decoded.count("what is there") == 2
    assert "dog" in decoded


def test_a_comparison_has_speed_and_parity(pair: ModelPair) -> None:
    record = chat(QUESTION, pair, CaptionSettings(max_new_tokens=12, compare=True))
    assert record["parity"]["verdict"] == "identical"
    assert record["decode_speedup"] > 0
    assert record["e2e_speedup"] > 0


def test_a_chat_that_leaves_no_room_is_refused_with_the_numbers(pair: ModelPair) -> None:
    long = [{"role": "user", "content": "dog " * POSITIONS}]
    with pytest.raises(SoonerError, match=rf"of \d+ tokens, but .* has {POSITIONS} positions"):
        chat(long, pair, SHORT)
    nearly = [{"role": "user", "content": "dog " * (POSITIONS // 3 - 20)}]
    prompt = prepare(nearly, pair, CaptionSettings(max_new_tokens=200))
    assert prompt.max_new_tokens == POSITIONS - prompt.inputs["input_ids"].shape[1] < 200
    assert "leave room for" in prompt.notes[0]


def test_each_line_of_a_file_is_verified(pair: ModelPair, tmp_path: Path) -> None:
    file = tmp_path / "questions.txt"
    file.write_text("what is\u2028there\n\nwho is it\r\n", newline="")
    reports = list(verify(file, pair, SHORT))
    assert [report["file"] for report in reports] == [f"{file}:1", f"{file}:3"]
    assert all(report["verdict"] == "identical" for report in reports)
    assert all(report["candidate_ids"] == report["reference_ids"] for report in reports)
    with pytest.raises(SoonerError, match="temperature is 1"):
        list(verify(file, pair, CaptionSettings(temperature=1.0)))
    file.write_text("\n")
    with pytest.raises(SoonerError, match="no question"):
        list(verify(file, pair, SHORT))
