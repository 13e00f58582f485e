"""Questions about videos: each set's layout, its answers, and how replies are scored."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from data_sets.files import parquet, put, zipped
from sooner.errors import SoonerError
from sooner_lab.datasets import (
    QUESTION_SETS,
    Question,
    load_questions,
)
from sooner_lab.datasets.scoring import choice_prompt, exact_match, letter_of
from sooner_lab.datasets.subtitles import plain


def ask(name: str, root: Path, **options: Any) -> list[Question]:
    found = list(load_questions(name, root, cache=root.parent / "cache", **options))
    return sorted(found, key=lambda question: question.id)


def test_activity_net_qa(tmp_path: Path, clips: dict[int, bytes], real: bool) -> None:
    """Open answers; the files' names begin with a `v_` that the table leaves out."""
    root = tmp_path / "actnet"
    rows = [
        {"video_name": "1QIUV7WYKXg", "question": text, "question_id": f"v_1QIUV7WYKXg_{number}",
         "answer": answer, "type": kind}
        for number, (text, answer, kind) in enumerate(
            [("is the athlete wearing trousers", "yes", "3"), ("how many people", "two", "8")]
        )
    ]  # fmt: skip
    parquet(root / "data" / "test-00000-of-00001.parquet", rows, real)
    zipped(root / "all_test.zip", {"all_test/v_1QIUV7WYKXg.mp4": clips[2]})
    first, second = ask("ActivityNet-QA", root)
    assert (first.form, first.answer, first.options, first.kind) == ("open", "yes", (), "3")
    assert first.prompt.startswith("is the athlete wearing trousers\n")
    assert round(first.seconds) == 2
    assert [second.score(reply) for reply in ("Two.", "2", "three", "two people")] == [
        True, True, False, False,
    ]  # fmt: skip


def test_activity_net_qas_own_files(tmp_path: Path, clips: dict[int, bytes]) -> None:
    """Questions and answers in two files; videos without the `v_`."""
    root = tmp_path / "actnet"
    put(root / "test_q.json", [{"video_name": "abc", "question": "what", "question_id": "abc_1"}])
    put(root / "test_a.json", [{"answer": "a dog", "type": 5, "question_id": "abc_1"}])
    put(root / "videos" / "abc.mp4", clips[1])
    (question,) = ask("activitynetqa", root)
    assert question.score("Dog")
    assert question.kind == "5"


def test_ego_schema(tmp_path: Path, clips: dict[int, bytes], real: bool) -> None:
    """Letters stand in front of the options, and the answer is an index as text."""
    root = tmp_path / "ego"
    options = [f"{letter}. C does {thing}." for letter, thing in zip("ABCDE", "vwxyz", strict=True)]
    row = {"question_idx": "0", "question": "What does c do?", "video_idx": "0074f737-11cb"}
    parquet(
        root / "Subset" / "test-00000-of-00001.parquet",
        [{**row, "option": options, "answer": "3"}], real,
    )  # fmt: skip
    parquet(
        root / "MC" / "test-00000-of-00001.parquet",
        [{**row, "option": options, "answer": None}], real,
    )  # fmt: skip
    zipped(root / "videos_chunked_01.zip", {"videos/0074f737-11cb.mp4": clips[3]})
    (question,) = ask("EgoSchema", root)
    assert question.options[3] == "C does y."
    assert question.answer == "D"
    assert question.score("The answer is D.")
    assert not question.score("B")


def test_a_question_without_a_published_answer_is_not_scored(
    tmp_path: Path, clips: dict[int, bytes], real: bool
) -> None:
    root = tmp_path / "ego"
    row = {"question_idx": "0", "question": "?", "video_idx": "x", "option": ["A. a", "B. b"]}
    parquet(root / "MC" / "test-00000-of-00001.parquet", [{**row, "answer": None}], real)
    put(root / "x.mp4", clips[1])
    (question,) = ask("EgoSchema", root)
    assert question.answer is None
    with pytest.raises(SoonerError, match="no published answer"):
        question.score("A")


@pytest.mark.parametrize("layout", ["parquet", "csv"])
def test_next_qa(tmp_path: Path, clips: dict[int, bytes], real: bool, layout: str) -> None:
    """One column an option, numbers for videos and answers, ids that begin anew in each video."""
    root = tmp_path / "next"
    row = {
        "video": 4010069381, "frame_count": 369, "width": 640, "height": 480,
        "question": "how do the two man play the instrument", "answer": 0, "qid": 6, "type": "CH",
        "a0": "roll the handle", "a1": "tap their feet", "a2": "strum the string",
        "a3": "hit with sticks", "a4": "pat with hand",
    }  # fmt: skip
    rows = [row, {**row, "video": 3238737531, "answer": 4}]
    if layout == "csv":
        lines = [",".join(map(str, values)) for values in (row, *(one.values() for one in rows))]
        put(root / "mc" / "test.csv", "\n".join(lines).encode())
    else:
        parquet(root / "MC" / "test-00000-of-00001.parquet", rows, real)
    for video, folder in ((4010069381, "1164"), (3238737531, "1102")):
        put(root / "NExTVideo" / folder / f"{video}.mp4", clips[1])
    second, first = ask("NExT-QA", root)
    assert first.id == "NExT-QA/4010069381/6"
    assert (first.answer, second.answer) == ("A", "E")
    assert first.options == (row["a0"], row["a1"], row["a2"], row["a3"], row["a4"])
    assert first.kind == "CH"


def test_perception_test(tmp_path: Path, clips: dict[int, bytes], real: bool) -> None:
    root = tmp_path / "pt"
    row = {
        "video_name": "video_8241", "question_id": "31", "question": "Is the camera moving?",
        "options": ["Yes", "No", "I don't know"], "answer_id": "1", "area": "physics",
        "reasoning": "descriptive", "tag": ["motion"],
    }  # fmt: skip
    parquet(root / "mc_question_val" / "validation-00000-of-00001.parquet", [row], real)
    zipped(root / "videos_chunked_01.zip", {"videos/video_8241.mp4": clips[2]})
    (question,) = ask("PerceptionTest", root)
    assert (question.answer, question.kind) == ("B", "physics")
    assert question.score("(B) No")


def test_perception_tests_own_file(tmp_path: Path, clips: dict[int, bytes]) -> None:
    root = tmp_path / "pt"
    asked = [{"id": 2, "question": "?", "options": ["x", "y", "z"], "answer_id": 2}]
    told = {"video_7": {"metadata": {"split": "valid"}, "mc_question": asked}}
    put(root / "mc_question_valid.json", told)
    put(root / "valid" / "video_7.mp4", clips[1])
    (question,) = ask("perception-test", root)
    assert (question.id, question.answer) == ("PerceptionTest/video_7/2", "C")


SRT = """1
00:00:01,000 --> 00:00:02,500
<font color="white">Hello there.</font>

2
00:00:02,500 --> 00:00:04,000
Hello there.
42
"""


def test_video_mme_with_and_without_subtitles(
    tmp_path: Path, clips: dict[int, bytes], real: bool
) -> None:
    root = tmp_path / "mme"
    row = {
        "video_id": "001", "videoID": "fFjv93ACGo8", "duration": "short",
        "domain": "Knowledge", "sub_category": "Humanity", "url": "https://example.org",
        "question_id": "001-1", "task_type": "Counting Problem", "question": "How many?",
        "options": ["A. Apples.", "B. Candles.", "C. Berries.", "D. All kinds."], "answer": "C",
    }  # fmt: skip
    rows = [row, {**row, "videoID": "mute", "question_id": "002-1"}]
    parquet(root / "videomme" / "test-00000-of-00001.parquet", rows, real)
    members = {"data/fFjv93ACGo8.mp4": clips[2], "data/mute.mp4": clips[1]}
    zipped(root / "videos_chunked_01.zip", members)
    zipped(root / "subtitle.zip", {"subtitle/fFjv93ACGo8.srt": SRT.encode()})
    question, _ = ask("VideoMME", root)
    assert question.options == ("Apples.", "Candles.", "Berries.", "All kinds.")
    assert question.prompt == choice_prompt("How many?", question.options)
    assert question.subtitles is None
    with_text, mute = ask("VideoMME", root, subtitles=True)
    assert with_text.subtitles == "Hello there.\n42"
    assert with_text.prompt.endswith(question.prompt)
    assert "Hello there." in with_text.prompt
    assert mute.subtitles is None


def test_video_dc_is_a_description(tmp_path: Path, clips: dict[int, bytes], real: bool) -> None:
    root = tmp_path / "vdc"
    row = {"video_name": "v_a", "question": "Describe it.", "answer": "Long text."}
    parquet(root / "data" / "test-00000-of-00001.parquet", [row], real)
    put(root / "v_a.mp4", clips[1])
    (question,) = ask("VideoDC", root)
    assert (question.form, question.prompt) == ("description", "Describe it.")
    with pytest.raises(SoonerError, match="judged by a model"):
        question.score("Long text.")


def next_qa_of(root: Path, clips: dict[int, bytes], count: int) -> Path:
    lines = ["video,question,answer,qid,type,a0,a1"]
    for number in range(count):
        lines.append(f"{number},why,0,{number},CW,x,y")
        put(root / f"{number}.mp4", clips[1])
    put(root / "test.csv", "\n".join(lines).encode())
    return root


def test_a_seed_decides_which_questions(tmp_path: Path, clips: dict[int, bytes]) -> None:
    root = next_qa_of(tmp_path / "next", clips, 8)
    first = [one.id for one in load_questions("NExT-QA", root, count=3)]
    assert [one.id for one in load_questions("NExT-QA", root)][:3] == first
    assert [one.id for one in load_questions("NExT-QA", root, count=3, seed=1)] != first


def test_questions_of_missing_videos_are_left_out(
    tmp_path: Path, clips: dict[int, bytes], caplog: pytest.LogCaptureFixture
) -> None:
    root = next_qa_of(tmp_path / "next", clips, 3)
    (root / "1.mp4").unlink()
    with caplog.at_level(logging.WARNING, "sooner"):
        assert len(ask("NExT-QA", root)) == 2
    assert "1 videos are not under" in caplog.text
    for number in (0, 2):
        (root / f"{number}.mp4").unlink()
    with pytest.raises(SoonerError, match="none of the 3 videos"):
        ask("NExT-QA", root)


def test_question_errors_are_one_line(tmp_path: Path, clips: dict[int, bytes]) -> None:
    with pytest.raises(SoonerError, match="did you mean 'EgoSchema'"):
        load_questions("egoschemas", tmp_path)
    with pytest.raises(SoonerError, match="unknown question set 'MLVU'; known: ActivityNet-QA"):
        load_questions("MLVU", tmp_path)
    root = next_qa_of(tmp_path / "next", clips, 1)
    with pytest.raises(SoonerError, match="NExT-QA has no subtitles; only VideoMME has"):
        load_questions("NExT-QA", root, subtitles=True)
    with pytest.raises(SoonerError, match="count is 0"):
        load_questions("NExT-QA", root, count=0)
    put(root / "test.csv", b"video,question,answer,qid,a0,a1\n0,why,7,1,x,y")
    with pytest.raises(SoonerError, match="has 2 options, but its answer is '7'"):
        load_questions("NExT-QA", root)
    put(root / "test.csv", b"video,caption\n0,why")
    with pytest.raises(SoonerError, match="a question stands in question"):
        load_questions("NExT-QA", root)


def test_all_question_sets_of_the_paper_are_there() -> None:
    wanted = {
        "ActivityNet-QA", "EgoSchema", "NExT-QA",
        "PerceptionTest", "VideoDetailCaption", "VideoMME",
    }  # fmt: skip
    assert set(QUESTION_SETS) == wanted


COLOURS = ("red", "dark red", "blue")


@pytest.mark.parametrize(
    ("reply", "index"),
    [
        ("B", 1), ("b.", 1), ("C) blue", 2), ("(A)", 0), ("**B**", 1), ("A: red", 0),
        ("The answer is (C).", 2), ("Answer: b", 1), ("I choose option B because", 1),
        ("At first A seems right, but the answer is C", 2), ("It must be [C].", 2),
        ("The shape is blue.", 2), ("It is dark red.", 1), ("red", 0),
        ("A man walks in.", None), ("Red or blue.", None), ("D", None), ("", None),
        ("either (A) or (B)", None), ("no idea", None), ("The answer is a blue one", 2),
    ],
)  # fmt: skip
def test_letters_are_found_in_replies(reply: str, index: int | None) -> None:
    assert letter_of(reply, COLOURS) == index


@pytest.mark.parametrize(
    ("reply", "answer", "right"),
    [
        ("The dog.", "dog", True), ("TWO", "2", True), ("playing  guitar", "Playing guitar", True),
        ("dont know", "don't know", True), ("dogs", "dog", False), ("a", "a", True),
        ("", "x", False),
    ],
)  # fmt: skip
def test_open_answers_are_compared_word_by_word(reply: str, answer: str, right: bool) -> None:
    assert exact_match(reply, [answer]) is right


def test_numbers_that_are_spoken_stay_in_subtitles() -> None:
    assert plain("\ufeff1\r\n00:00:01,0 --> 00:00:02,0\r\n7\r\n".lstrip("\ufeff")) == "7"
