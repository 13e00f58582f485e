"""Benchmarks in the layout of their hub repositories, with tiny encoded videos of known length."""

from __future__ import annotations

import io
import logging
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from data_sets.files import fake_datasets, parquet, put, zipped
from sooner.errors import SoonerError
from sooner.tasks.video import probe
from sooner_lab.datasets import (
    DETAILED_PROMPT,
    Item,
    load,
)
from sooner_lab.datasets.videos import VideoStore


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


@pytest.mark.parametrize(
    ("name", "table", "content", "video"),
    [
        ("ActivityNet-QA", "test_q.json", [{"video_name": "abc"}], "all_test/v_abc.mp4"),
        ("EgoSchema", "Subset/test-0.parquet", [{"video_idx": "abc"}], "videos/abc.mp4"),
        ("NExT-QA", "mc/test.csv", b"video,question\n4010,why", "NExTVideo/1164/4010.mp4"),
        (
            "PerceptionTest",
            "mc_question_valid.json",
            {"video_7": {"mc_question": [{"id": 2}]}},
            "valid/video_7.mp4",
        ),
    ],
)
def test_videos_of_question_sets(
    tmp_path: Path,
    clips: dict[int, bytes],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    table: str,
    content: Any,
    video: str,
) -> None:
    """Prefixes that the table leaves out, CSV, and a table keyed by videos."""
    fake_datasets(monkeypatch)
    put(tmp_path / "root" / table, content)
    film = put(tmp_path / "root" / video, clips[2])
    (item,) = take(name, tmp_path / "root")
    assert item.video == film


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


def test_missing_and_broken_videos_are_named_once(
    tmp_path: Path, clips: dict[int, bytes], caplog: pytest.LogCaptureFixture
) -> None:
    root = mlvu_of(tmp_path / "mlvu", clips, 3)
    (root / "video" / "0.mp4").unlink()
    (root / "video" / "1.mp4").write_bytes(b"not a video")
    with caplog.at_level(logging.WARNING, "sooner"):
        assert names(take("MLVU", root)) == {"2.mp4"}
    messages = [
        record.message for record in caplog.records if "samples instead of" in record.message
    ]
    assert len(messages) == 1
    assert "2 are not under" in messages[0]


def test_a_filter_that_leaves_nothing_is_refused(tmp_path: Path, clips: dict[int, bytes]) -> None:
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
    path = store.locate("escaped.mp4")
    assert path is not None
    assert tmp_path / "cache" in path.parents


def test_a_hub_id_is_fetched_with_the_schemas_files(
    tmp_path: Path, clips: dict[int, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    root, request = mlvu_of(tmp_path / "snapshot", clips, 1), {}

    def fetch(hub: str, **options: Any) -> str:
        request.update(options, hub=hub)
        return str(root)

    monkeypatch.setattr("huggingface_hub.snapshot_download", fetch)
    (item,) = load("MLVU", min_seconds=1, cache=tmp_path, revision="abc")
    assert item.id == "MLVU/0.mp4"
    assert (request["hub"], request["repo_type"], request["revision"]) == (
        "MLVU/MVLU",
        "dataset",
        "abc",
    )
    assert "*json/*.json" in request["allow_patterns"]
    list(load("MLVU", "someone/MLVU-mirror", min_seconds=1, cache=tmp_path))
    assert request["hub"] == "someone/MLVU-mirror"

    def fail(*_: Any, **__: Any) -> None:
        raise OSError("no route")

    monkeypatch.setattr("huggingface_hub.snapshot_download", fail)
    with pytest.raises(SoonerError, match=r"can't fetch 'OpenGVLab/MVBench'.*local folder"):
        load("MVBench")
