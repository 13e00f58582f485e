"""Benches on data sets: local folders of the benchmarks' own layouts, with tiny videos."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sooner.cli.main import main
from sooner.errors import SoonerError
from sooner_lab.bench.caption import run
from sooner_lab.bench.caption_settings import CaptionBenchSettings
from sooner_lab.bench.clips import from_dataset
from sooner_lab.datasets import DETAILED_PROMPT
from tasks import fixtures, videos


@pytest.fixture(scope="module")
def long_video_bench(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three videos of 1 to 3 seconds and the table that names them."""
    root = tmp_path_factory.mktemp("lvb")
    records = []
    for seconds in (1, 2, 3):
        name = f"v{seconds}.mp4"
        (root / "videos").mkdir(exist_ok=True)
        videos.write(root / "videos" / name, frames=4 * seconds, rate=4)
        records.append({"video_path": name, "duration": seconds, "question": "?"})
    (root / "lvb_val.json").write_text(json.dumps(records))
    return root


def test_samples_are_long_enough_and_have_the_papers_prompt(long_video_bench: Path) -> None:
    clips = from_dataset(f"LongVideoBench={long_video_bench}", count=9, min_seconds=1.5)
    assert {path.name for path in clips.files} == {"v2.mp4", "v3.mp4"}
    assert clips.prompt == DETAILED_PROMPT
    assert clips.dataset == "LongVideoBench"
    assert {name.partition("/")[0] for name in clips.ids} == {"LongVideoBench"}


def test_a_name_and_a_folder_identify_a_benchmark(long_video_bench: Path) -> None:
    clips = from_dataset(f"longvideobench={long_video_bench}", count=1, min_seconds=0)
    assert len(clips.files) == 1


def test_without_a_limit_the_papers_minute_holds(long_video_bench: Path) -> None:
    with pytest.raises(SoonerError, match="shorter than 60 s"):
        from_dataset(f"LongVideoBench={long_video_bench}", count=9)


def test_the_arms_run_on_a_data_set(long_video_bench: Path, tmp_path: Path) -> None:
    settings = CaptionBenchSettings(
        model=str(fixtures.checkpoint(tmp_path / "target", 0)),
        draft=str(fixtures.checkpoint(tmp_path / "draft", 0)),
        arms=("plain", "speculative", "parallel"),
        dataset=f"LongVideoBench={long_video_bench}",
        min_seconds=1.5,
        frames=4,
        clips=2,
        repeats=1,
        max_new_tokens=8,
    )
    result = run(settings, lambda line: None)
    assert result["dataset"] == "LongVideoBench"
    assert result["clips"] == len(result["samples"]) == 2
    assert {arm["parity"] for arm in result["arms"]} <= {"identical", "tie"}


def test_files_together_with_a_data_set_are_refused(
    long_video_bench: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    video = str(long_video_bench / "videos" / "v1.mp4")
    with pytest.raises(SystemExit) as end:
        main(["bench", "caption", video, "--dataset", "MLVU"])
    assert end.value.code == 2
    assert "exclude each other" in capsys.readouterr().err
