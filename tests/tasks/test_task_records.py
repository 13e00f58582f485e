"""Records survive crashes, reruns and overwriting; settings are checked and hashed."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

import pytest

from sooner.errors import SoonerError
from sooner.tasks import identity
from sooner.tasks.identity import Records
from sooner.tasks.settings import CaptionSettings


def record(name: str, settings: str = "s", text: str = "x") -> dict:
    return {"file": name, "input_hash": name, "settings_hash": settings, "text": text}


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_done_is_known_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    Records(path).add(record("a"))
    again = Records(path)
    assert again.done("a", "s") == record("a")
    assert again.done("a", "other") is None
    assert again.done("b", "s") is None
    again.add(record("b", text="grün\nzwei"))
    assert lines(path) == [record("a"), record("b", text="grün\nzwei")]


def test_overwrite_replaces(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    first = Records(path)
    for name in "ab":
        first.add(record(name))
    second = Records(path, overwrite=True)
    assert second.done("a", "s") is None
    second.add(record("a", text="new"))
    second.add(record("c"))
    assert lines(path) == [record("b"), record("a", text="new"), record("c")]
    assert [entry.name for entry in tmp_path.iterdir()] == ["out.jsonl"]


def test_lines_survive_a_crash(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    Records(path).add(record("a", text="grün\nzwei"))
    with open(path, "ab") as file:
        file.write(b'[3]\n{"input_hash": "b", "te')
    again = Records(path)
    assert again.done("a", "s") == record("a", text="grün\nzwei")
    again.add(record("c"))
    again.add(record("d"))
    assert len(path.read_bytes().splitlines()) == 5
    whole = Records(path, overwrite=True)
    whole.add(record("a"))
    assert [Records(path).done(name, "s") for name in "abcd"] == [
        record("a"), None, record("c"), record("d"),
    ]  # fmt: skip
    assert path.read_bytes().endswith(b"}\n")


def test_a_line_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = Records(tmp_path / "out.jsonl")
    records.add(record("a"))

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            records.add(record("b"))
    assert lines(records.path) == [record("a")]


def test_output_that_can_not_be_written(tmp_path: Path) -> None:
    for path in (tmp_path / "no" / "out.jsonl", tmp_path):
        with pytest.raises(SoonerError, match="can't be written"):
            Records(path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "specultive"}, "did you mean 'speculative'"),
        ({"num_draft_tokens": 0}, "num_draft_tokens is 0"),
        ({"num_draft_tokens": -3}, "num_draft_tokens is -3"),
        ({"frames": 0}, "frames is 0"),
        ({"max_new_tokens": 0}, "max_new_tokens is 0"),
        ({"frames": 3, "fps": 2.0}, "contradict"),
        ({"fps": 0.0}, "fps is 0"),
        ({"fps": float("nan")}, "fps is nan"),
        ({"temperature": -1.0}, "temperature is -1"),
        ({"temperature": 1.0, "top_p": 0.0}, "top_p is 0"),
        ({"top_p": 0.5}, "temperature 0 is greedy"),
        ({"method": "eagle"}, "needs a draft head"),
        ({"method": "speculative", "head": "h"}, "'h' is for a method that takes one"),
    ],
)
def test_wrong_settings_are_named(options: dict, message: str) -> None:
    with pytest.raises(SoonerError) as caught:
        CaptionSettings(**options)
    assert message in str(caught.value)


def test_every_setting_counts_in_the_hash() -> None:
    changed = {
        "method": "plain", "num_draft_tokens": 3, "frames": 4, "fps": 2.0, "prompt": "what?",
        "max_new_tokens": 5, "temperature": 0.5, "top_p": 0.9, "seed": 3, "compare": True,
            "prune": 0.5, "placement": "thread", "prefill": "fastv", "prefill_chunk": 64,
        "head": "folder", "prefill_recall": True,
    }  # fmt: skip
    fields = {field.name for field in dataclasses.fields(CaptionSettings)}
    assert set(changed) == fields - {"verify_every", "kv_offload"}  # which decide nothing
    warm = CaptionSettings(temperature=1.0)
    hashes = {identity.settings_hash(dataclasses.replace(warm, **{name: value}), "m")
              for name, value in changed.items()}  # fmt: skip
    hashes |= {identity.settings_hash(warm, *models) for models in (("m",), ("n",), ("m", "d"))}
    hashes.add(identity.settings_hash(warm, "m", dtype="float16"))
    assert len(hashes) == len(changed) + 4
    assert identity.settings_hash(warm, "m") == identity.settings_hash(warm, "m")
    checked = dataclasses.replace(warm, verify_every=9, kv_offload=True)
    assert identity.settings_hash(checked, "m") == identity.settings_hash(warm, "m")
