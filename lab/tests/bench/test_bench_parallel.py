"""`sooner bench parallel`: one small study from end to end."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from commands import exit_code
from sooner_lab.bench.caption_settings import ParallelBenchSettings
from sooner_lab.bench.parallel import run as study
from sooner_lab.bench.report import markdown
from sooner_lab.bench.result_file import ResultFile
from tasks import fixtures, videos

SMALL = ParallelBenchSettings(
    clips=1,
    scenes=1,
    frames_per_scene=2,
    alphas=(0.5,),
    criteria=("uv-prune-by-frame", "uniform"),
    max_new_tokens=12,
)


def test_a_small_study_completes(tmp_path: Path) -> None:
    keep = ResultFile(tmp_path / "study.json", "parallel")
    assert keep.path is not None
    result = study.run(SMALL, lambda _: None, keep)
    assert result["clips"] == 1
    assert json.loads(json.dumps(result)) == json.loads(keep.path.read_text())
    arms = {arm["method"]: arm for arm in result["arms"]}
    assert {"plain", "hf-assisted", "onsd", "sd-tree", "specvlm", "sparse-to-dense"} <= set(arms)
    exact = [arm for arm in arms.values() if arm["mode"] == "exact"]
    assert all(arm["parity"] in ("identical", "tie") for arm in exact)
    assert all(arm["decode_speedup"] > 0 for arm in exact)
    assert arms["parallel"]["acceptance_ratio"] == 1.0
    assert arms["parallel-literal"]["criterion"] == "uv-prune"
    assert arms["parallel-literal"].get("simulated_speedup") is None
    assert 0 <= arms["fastv"]["acceptance_ratio"] <= 1
    for name in ("fastv", "sparse-vlm", "pyramid-drop"):
        assert arms[name]["retention"] == pytest.approx(0.1, abs=1e-6)
    assert arms["parallel"]["over_speculative_auto"] > 0
    points = {(point["criterion"], point["alpha"]): point for point in result["sweep"]}
    swept = {("uv-prune-by-frame", alpha) for alpha in (0.0, 0.5, 0.9)}
    assert set(points) == swept | {("uniform", 0.5), ("uniform", 0.9)}
    page = markdown(result, "study.json")
    for table in ("table 1", "table 2", "tables 3, 5 and 7", "table 6"):
        assert table in page


def test_the_frames_of_a_clip_are_those_that_the_world_samples(tmp_path: Path) -> None:
    from sooner.tasks.loading import load_pair
    from sooner_lab.bench.clips import find_clips
    from sooner_lab.worlds.video import world

    settings = replace(SMALL, scenes=2, frames_per_scene=8)
    clips = find_clips(tmp_path, settings, settings.scenes)
    clip = study.ParallelBench(load_pair(), clips, settings).clip("plain", 0)
    expected = world.sample_indices(2 * world.SCENE_FRAMES, 16)
    assert clip.frames.indices == expected.tolist()


def test_the_command_measures_a_users_clip(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    models = [str(fixtures.checkpoint(tmp_path / name, 0)) for name in ("target", "draft")]
    clip, target = videos.write(tmp_path / "clip.mp4"), tmp_path / "own.json"
    options = f"--model {models[0]} --draft {models[1]} --frames 4 --max-new-tokens 8"
    sweep = f"--parts sweep --alphas 0.5 --criteria uv-prune --json {target}"
    assert exit_code("bench", "parallel", str(clip), *options.split(), *sweep.split()) == 0
    assert "By pruning ratio (tables 3, 5 and 7)" in capsys.readouterr().out
    assert exit_code("bench", "report", str(target)) == 0
    assert "figures/own-alpha.png" in target.with_suffix(".md").read_text()
    assert (tmp_path / "figures" / "own-alpha.png").stat().st_size > 2000
