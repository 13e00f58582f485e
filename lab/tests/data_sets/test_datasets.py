"""Benchmarks in the layout of their hub repositories, with tiny encoded videos of known length."""

from __future__ import annotations

import io
import json
import logging
import os
import sys
import tarfile
import types
import zipfile
from pathlib import Path
from typing import Any

import pytest

from sooner.errors import SoonerError
from sooner.tasks.video import probe
from sooner_lab.datasets import (
    DETAILED_PROMPT,
    QUESTION_SETS,
    SCHEMAS,
    Item,
    Question,
    load,
    load_questions,
)
from sooner_lab.datasets import loading as loading_module
from sooner_lab.datasets.scoring import choice_prompt, exact_match, letter_of
from sooner_lab.datasets.subtitles import plain
from sooner_lab.datasets.videos import VideoStore
from tasks import videos


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> dict[int, bytes]:
    """Videos of 1 to 4 seconds, encoded once."""
    folder = tmp_path_factory.mktemp("clips")
    return {
        seconds: videos.write(
            folder / f"{seconds}.mp4", frames=4 * seconds, rate=4, size=(32, 32)
        ).read_bytes()
        for seconds in (1, 2, 3, 4)
    }


def put(path: Path, content: bytes | Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


def zipped(path: Path, members: dict[str, bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as file:
        for name, content in members.items():
            file.writestr(name, content)
    return path


def fake_datasets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stands in for the package where it is not installed: parquet files hold JSON."""

    class Dataset(list):
        @classmethod
        def from_parquet(cls, path: str) -> Dataset:
            return cls(json.loads(Path(path).read_text()))

        def to_list(self) -> list:
            return list(self)

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(Dataset=Dataset))


def parquet(path: Path, rows: list[dict[str, Any]], real: bool) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not real:
        return put(path, rows)
    arrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    pyarrow.parquet.write_table(arrow.Table.from_pylist(rows), path)
    return path


@pytest.fixture(params=["real", "stand-in"])
def real(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Once with the package itself, where it is installed, and once with a stand-in."""
    if request.param == "stand-in":
        fake_datasets(monkeypatch)
    else:
        pytest.importorskip("datasets")
    return request.param == "real"


def take(name: str, root: Path, **options: Any) -> list[Item]:
    options = {"min_seconds": 1.5, "cache": root.parent / "cache", **options}
    return list(load(name, root, **options))


def names(items: list[Item]) -> set[str]:
    return {item.id.partition("/")[2] for item in items}


def test_video_detail_caption(tmp_path: Path, clips: dict[int, bytes], real: bool) -> None:
    """Parquet, names without ending, one zip with a folder inside."""
    root = tmp_path / "vdc"
    rows = [
        {"video_name": name, "question": "What?", "answer": "That."}
        for name in ("v_long", "v_short", "v_upper.1")
    ]
    parquet(root / "data" / "test-00000-of-00001.parquet", rows, real)
    zipped(
        root / "videos.zip",
        {
            "Test_Videos/v_long.mp4": clips[2],
            "Test_Videos/v_short.mp4": clips[1],
            "Test_Videos/v_upper.1.MP4": clips[3],
            "__MACOSX/Test_Videos/._v_long.mp4": b"resource fork",
        },
    )
    items = take("VideoDetailCaption", root)
    assert names(items) == {"v_long", "v_upper.1"}
    assert all(item.prompt == DETAILED_PROMPT for item in items)
    assert {round(item.seconds) for item in items} == {2, 3}
    assert all(probe(item.video).seconds == pytest.approx(item.seconds) for item in items)


def test_video_mme(tmp_path: Path, clips: dict[int, bytes], real: bool) -> None:
    """Three questions a video are one sample; several zips; `videoID` and not `video_id`."""
    root = tmp_path / "mme"
    rows = [
        {"video_id": "001", "videoID": video, "duration": length, "question": f"{i}?"}
        for video, length in (("fFjv93ACGo8", "short"), ("N1cdUjctpG8", "medium"))
        for i in range(3)
    ]
    parquet(root / "videomme" / "test-00000-of-00001.parquet", rows, real)
    zipped(root / "videos_chunked_01.zip", {"data/fFjv93ACGo8.mp4": clips[2]})
    zipped(root / "videos_chunked_02.zip", {"data/N1cdUjctpG8.mp4": clips[3]})
    zipped(root / "subtitle.zip", {"subtitle/fFjv93ACGo8.srt": b"1"})
    assert names(take("VideoMME", root)) == {"fFjv93ACGo8", "N1cdUjctpG8"}
    assert names(take("video-mme", root, min_seconds=2.5)) == {"N1cdUjctpG8"}


def test_mvbench(tmp_path: Path, clips: dict[int, bytes]) -> None:
    """Equal names in two tasks are two videos; frame folders are not videos."""
    root = tmp_path / "mvbench"
    record = {"question": "?", "candidates": ["a", "b"], "answer": "a"}
    put(root / "json" / "action_count.json", [{**record, "video": "video_1.mp4"}])
    put(
        root / "json" / "moving_count.json",
        [{**record, "video": "video_1.mp4", "start": 0.0, "end": 9.0}],
    )
    put(root / "json" / "episodic_reasoning.json", [{**record, "video": "castle_s01/"}])
    zipped(root / "video" / "perception.zip", {"perception/videos/video_1.mp4": clips[2]})
    zipped(root / "video" / "clevrer.zip", {"clevrer/video_validation/video_1.mp4": clips[4]})
    items = {item.id: round(item.seconds) for item in take("MVBench", root)}
    assert items == {
        "MVBench/perception/videos/video_1.mp4": 2,
        "MVBench/clevrer/video_validation/video_1.mp4": 4,
    }


def test_mlvu(tmp_path: Path, clips: dict[int, bytes]) -> None:
    """Videos in plain folders, lengths in the table; no file is opened that is too short."""
    root = tmp_path / "mlvu"
    rows = [
        {"video": "movie101_66.mp4", "duration": 3.0, "question": "?", "question_type": "plotQA"},
        {"video": "short.mp4", "duration": 0.5, "question": "?", "question_type": "plotQA"},
    ]
    put(root / "MLVU" / "json" / "1_plotQA.json", rows)
    film = put(root / "MLVU" / "video" / "1_plotQA" / "movie101_66.mp4", clips[3])
    put(root / "MLVU" / "video" / "1_plotQA" / "movie101_66.json", [{"subtitle": "not a table"}])
    put(root / "MLVU" / "video" / "1_plotQA" / "short.mp4", b"would be unreadable")
    for spelling in ("MLVU", "mlvu", "MVLU"):
        (item,) = take(spelling, root)
        assert item.video == film


def test_long_video_bench(tmp_path: Path, clips: dict[int, bytes]) -> None:
    """A tar cut into parts in the middle of a video, read without putting it together."""
    root = tmp_path / "lvb"
    rows = [
        {"video_id": name, "video_path": f"{name}.mp4", "duration": length, "id": f"{name}_0"}
        for name, length in (("86CxyhFV9MI", 2.0), ("@gone-7112", 3.0), ("brief", 1.0))
    ]
    put(root / "lvb_val.json", rows)
    put(root / "lvb_test_wo_gt.json", [{"video_path": "from-the-test-split.mp4"}])
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as file:
        for name in ("brief", "86CxyhFV9MI"):
            member = tarfile.TarInfo(f"videos/{name}.mp4")
            member.size = len(clips[2])
            file.addfile(member, io.BytesIO(clips[2]))
    whole = packed.getvalue()
    for part, begin in (("aa", 0), ("ab", 700), ("ac", len(clips[2]) + 1500)):
        end = {"aa": 700, "ab": len(clips[2]) + 1500, "ac": len(whole)}[part]
        put(root / f"videos.tar.part.{part}", whole[begin:end])
    (item,) = take("LongVideoBench", root)
    assert item.id == "LongVideoBench/86CxyhFV9MI.mp4"
    assert item.video.read_bytes() == clips[2]


def mlvu_of(root: Path, clips: dict[int, bytes], count: int) -> Path:
    rows = [{"video": f"{i}.mp4", "duration": 2.0, "question": "?"} for i in range(count)]
    put(root / "json" / "1_plotQA.json", rows)
    for row in rows:
        put(root / "video" / row["video"], clips[2])
    return root


def test_a_seed_decides_which_samples(tmp_path: Path, clips: dict[int, bytes]) -> None:
    root = mlvu_of(tmp_path / "mlvu", clips, 12)
    first = [item.id for item in take("MLVU", root, count=5)]
    assert len(first) == 5
    assert [item.id for item in take("MLVU", root, count=5)] == first
    assert [item.id for item in take("MLVU", root, count=5, seed=1)] != first
    assert [item.id for item in take("MLVU", root, count=3)] == first[:3]


def test_the_papers_filter_is_the_default(tmp_path: Path, clips: dict[int, bytes]) -> None:
    root = tmp_path / "mlvu"
    lengths = {**{f"{i}.mp4": 60.0 for i in range(60)}, "short.mp4": 59.9}
    put(root / "json" / "1.json", [{"video": v, "duration": s} for v, s in lengths.items()])
    long = videos.write(tmp_path / "minute.mp4", frames=61, rate=1, size=(32, 32))
    for name in lengths:
        target = root / "video" / name
        target.parent.mkdir(exist_ok=True)
        os.link(long, target)
    items = list(load("MLVU", root))
    assert len(items) == 50
    assert "MLVU/short.mp4" not in {item.id for item in items}


def test_missing_and_broken_videos_are_named_once(
    tmp_path: Path, clips: dict[int, bytes], caplog: pytest.LogCaptureFixture
) -> None:
    root = mlvu_of(tmp_path / "mlvu", clips, 3)
    (root / "video" / "0.mp4").unlink()
    (root / "video" / "1.mp4").write_bytes(b"not a video")
    with caplog.at_level(logging.WARNING, "sooner"):
        assert names(take("MLVU", root)) == {"2.mp4"}
    told = [record.message for record in caplog.records if "samples instead of" in record.message]
    assert len(told) == 1
    assert "2 are not under" in told[0]


def test_a_filter_that_leaves_nothing_says_so(tmp_path: Path, clips: dict[int, bytes]) -> None:
    root = mlvu_of(tmp_path / "mlvu", clips, 2)
    with pytest.raises(SoonerError, match=r"2 videos are shorter than 60 s.*lower min_seconds"):
        list(load("MLVU", root))


def test_an_unknown_name_gets_a_suggestion(tmp_path: Path) -> None:
    with pytest.raises(SoonerError, match="did you mean 'LongVideoBench'"):
        load("LongVideosBench", tmp_path)
    with pytest.raises(SoonerError, match="unknown dataset 'imagenet'; known: ActivityNet-QA, Ego"):
        load("imagenet", tmp_path)


def test_wrong_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(SoonerError, match="has no table"):
        load("MVBench", tmp_path)
    with pytest.raises(SoonerError, match=r"does not exist.*OpenGVLab/MVBench"):
        load("MVBench", tmp_path / "nowhere")
    with pytest.raises(SoonerError, match="does not exist"):
        load("MVBench", "./nowhere")
    put(tmp_path / "json" / "action_count.json", [{"clip": "a.mp4"}])
    with pytest.raises(SoonerError, match="columns clip, but a video is named by video"):
        load("MVBench", tmp_path)
    put(tmp_path / "json" / "action_count.json", b"{cut off")
    with pytest.raises(SoonerError, match="is not JSON"):
        load("MVBench", tmp_path)


def test_parquet_without_the_extra_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "videomme" / "test-00000-of-00001.parquet", b"PAR1")
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(SoonerError, match=r"install sooner-lab\[bench\]"):
        load("VideoMME", tmp_path)


def test_a_damaged_archive_is_named(tmp_path: Path, clips: dict[int, bytes]) -> None:
    root = mlvu_of(tmp_path / "mlvu", clips, 1)
    put(root / "video_part_1.zip", b"PK not really")
    with pytest.raises(SoonerError, match=r"video_part_1\.zip' is damaged"):
        load("MLVU", root)


def test_archives_can_not_write_outside_the_cache(tmp_path: Path, clips: dict[int, bytes]) -> None:
    root = tmp_path / "root"
    zipped(root / "evil.zip", {"../../../escaped.mp4": clips[1]})
    store = VideoStore(root, tmp_path / "cache")
    found = store.locate("escaped.mp4")
    assert found is not None
    assert tmp_path / "cache" in found.parents


def test_a_hub_id_is_fetched_with_the_schemas_files(
    tmp_path: Path, clips: dict[int, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    root, asked = mlvu_of(tmp_path / "snapshot", clips, 1), {}

    def fetch(hub: str, **options: Any) -> str:
        asked.update(options, hub=hub)
        return str(root)

    monkeypatch.setattr("huggingface_hub.snapshot_download", fetch)
    (item,) = load("MLVU", min_seconds=1, cache=tmp_path, revision="abc")
    assert item.id == "MLVU/0.mp4"
    assert (asked["hub"], asked["repo_type"], asked["revision"]) == ("MLVU/MVLU", "dataset", "abc")
    assert "*json/*.json" in asked["allow_patterns"]
    list(load("MLVU", "someone/MLVU-mirror", min_seconds=1, cache=tmp_path))
    assert asked["hub"] == "someone/MLVU-mirror"


def test_no_network_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError("no route")

    monkeypatch.setattr("huggingface_hub.snapshot_download", fail)
    with pytest.raises(SoonerError, match=r"can't fetch 'OpenGVLab/MVBench'.*local folder"):
        load("MVBench")


def test_all_captioned_sets_are_there() -> None:
    assert {"VideoDetailCaption", "VideoMME", "MVBench", "MLVU", "LongVideoBench"} <= set(SCHEMAS)
    assert (loading_module.MIN_SECONDS, loading_module.SAMPLES) == (60.0, 50)


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
