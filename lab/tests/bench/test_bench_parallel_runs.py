"""The study on real models: both sides watched, one small study from end to end."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import sooner
import tiny
from sooner.cli.main import main
from sooner.methods.visual_match import views
from sooner.models import adapt
from sooner.tasks.loading import load_pair
from sooner_lab.bench.parallel import study as study_module
from sooner_lab.bench.parallel.agreement import read_name
from sooner_lab.bench.parallel.book import book_path
from sooner_lab.bench.parallel.page import markdown
from sooner_lab.bench.parallel.peak import peak
from sooner_lab.bench.parallel.running import Runner, kept_by_frame
from sooner_lab.bench.parallel.settings import ParallelSettings
from sooner_lab.bench.parallel.timeline import TimedVLM, phases
from sooner_lab.bench.parallel.verdicts import verdicts
from sooner_lab.bench.parallel.watch import watched
from tasks import fixtures, videos

FAMILY = "llava_onevision"
SMALL = ParallelSettings(
    clips=1,
    judged=3,
    scenes=1,
    frames_per_scene=2,
    alphas=(0.5,),
    criteria=("uv-prune-by-frame", "uniform"),
    parts=("methods", "lossy", "sweep", "timeline"),
    max_new_tokens=12,
)


class StopError(Exception):
    """An interruption."""


@pytest.fixture
def watched_run() -> tuple[Any, Any, list[int]]:
    """Events of both sides of one run with a forked draft, and the text."""
    target, draft = tiny.model(FAMILY), tiny.noisy(FAMILY)
    with watched(target, draft, depth=1) as (ours, theirs):
        method = TimedVLM(draft, prune=0.5, placement="process", log=ours)
        inputs = tiny.inputs(FAMILY, "video")
        made = sooner.generate(target, inputs, method, max_new_tokens=12, do_sample=False)
    return ours.events(), theirs.events(), made.tokens[0]


def test_both_sides_are_seen_on_one_clock(watched_run: tuple[Any, Any, list[int]]) -> None:
    target, draft, said = watched_run
    kinds = {event.kind for event in target}
    assert {"vision", "prefill", "rank", "step"} <= kinds
    assert {event.kind for event in draft} == {"vision", "prefill", "step"}
    assert all(event.end >= event.start for event in (*target, *draft))
    ranked = next(event for event in target if event.kind == "rank")
    prefill = next(event for event in draft if event.kind == "prefill")
    assert prefill.start > ranked.start  # the draft can't know before what it keeps
    last = max(event.end for event in target)
    assert phases(target, draft, said, target[0].start)["whole"] == last - target[0].start


def test_places_of_verifications_follow_the_text(
    watched_run: tuple[Any, Any, list[int]],
) -> None:
    target, _, said = watched_run
    steps = [event for event in target if event.kind == "step"]
    assert next(event for event in target if event.kind == "prefill").token == said[0]
    # A block of n tokens behind k committed ones ends at the place k + n - 1.
    assert steps[0].place == steps[0].entries
    assert all(event.place <= len(said) + 16 for event in steps)


def test_no_hook_is_left() -> None:
    models = tiny.model(FAMILY), tiny.noisy(FAMILY)
    before = hooks(models)
    with watched(*models, depth=1):
        assert hooks(models) > before
    with pytest.raises(StopError), watched(*models, depth=1):
        raise StopError
    assert hooks(models) == before


def hooks(models: Any) -> int:
    modules = [module for model in models for module in model.modules()]
    return sum(len(one._forward_hooks) + len(one._forward_pre_hooks) for one in modules)


def test_kept_tokens_are_counted_by_their_frames() -> None:
    inputs = tiny.inputs(FAMILY, "video")
    model = tiny.model(FAMILY)
    clip: Any = SimpleNamespace(inputs=inputs)
    frames = inputs["pixel_values_videos"].shape[1]
    tokens = int((inputs["input_ids"] == tiny.VIDEO).sum())
    each = (tokens - 1) // frames
    everything = kept_by_frame(model, clip, list(range(tokens)))
    assert everything == [each] * frames  # the newline belongs to none
    assert kept_by_frame(model, clip, [0, each]) == [1, 1, *[0] * (frames - 2)]


@pytest.mark.parametrize("family", ["llava_onevision", "qwen2_5_vl"])
def test_verdicts_are_the_drafts_own_words(family: str) -> None:
    """Against HF's forward of the whole prefix, token by token."""
    draft, inputs = tiny.noisy(family), tiny.inputs(family, "image")
    made = sooner.generate(tiny.model(family), inputs, max_new_tokens=12, do_sample=False)
    tokens = made.tokens[0]
    own = [
        sooner.generate(
            draft, follow(inputs, tokens[:end]), max_new_tokens=1, eos_token_id=None
        ).tokens[0][0]
        for end in range(1, len(tokens))
    ]
    vocab = draft.config.get_text_config().vocab_size
    wanted = [one == said for one, said in zip(own, tokens[1:], strict=True)]
    assert verdicts(draft, inputs, tokens, vocab) == wanted
    visual = int((inputs["input_ids"] == tiny.IMAGE).sum())
    (seen,) = views(adapt(tiny.model(family)), inputs)
    everything = list(range(visual)), seen
    assert verdicts(draft, inputs, tokens, vocab, everything) == wanted
    assert len(verdicts(draft, inputs, tokens, vocab, ([0], seen))) == len(wanted)


def follow(inputs: dict[str, Any], tokens: list[int]) -> dict[str, Any]:
    """The prompt and `tokens` behind it."""
    behind = torch.tensor([tokens])
    longer = {"input_ids": behind, "attention_mask": torch.ones_like(behind)}
    longer["mm_token_type_ids"] = torch.zeros_like(behind)
    return {
        name: torch.cat([value, longer[name]], 1) if name in longer else value
        for name, value in inputs.items()
    }


def test_a_draft_equal_to_its_target_says_every_token() -> None:
    inputs, model = tiny.inputs(FAMILY, "video"), tiny.model(FAMILY)
    made = sooner.generate(model, inputs, max_new_tokens=12, do_sample=False)
    vocab = model.config.get_text_config().vocab_size
    assert verdicts(model, inputs, made.tokens[0], vocab) == [True] * (len(made.tokens[0]) - 1)
    assert verdicts(model, inputs, made.tokens[0][:1], vocab) == []


@pytest.mark.parametrize("criterion", ["uv-prune", "attention", "uniform"])
def test_a_clip_that_is_read_is_judged_as_a_timed_one(tmp_path: Path, criterion: str) -> None:
    """From what was heard once, the same tokens are kept as in a run of the method."""
    settings = replace(SMALL, judged=1, criteria=(criterion,), parts=("sweep",))  # type: ignore[arg-type]
    pair = load_pair()
    runner = Runner(pair, study_module.find_clips(tmp_path, settings), settings)
    arms = [one for one in study_module.contenders(settings) if one.alpha is not None]
    found = {one["arm"]: one for one in study_module.read(runner, arms, 0)}
    assert len(found) == len(arms) == 3
    tokens, _ = runner.reference(0)
    for one in arms:
        timed = runner.run(one, 0, 0)
        assert timed["tokens"] == tokens
        assert found[read_name(one.name)]["verdicts"] == timed["verdicts"]
        assert found[read_name(one.name)].get("repacked") == timed.get("repacked")


def test_an_interrupted_study_loses_nothing_and_ends_as_a_whole_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Runner, "warm_up", lambda *_: None)
    target = tmp_path / "study.json"
    told: list[str] = []

    def stop_at_fifth(text: str) -> None:
        told.append(text)
        if "arm 5/" in text:
            raise StopError

    with pytest.raises(StopError):
        study_module.run(SMALL, target, stop_at_fifth)
    assert len(book_path(target).read_text().splitlines()) == 1 + 4
    reads: list[int] = []
    read = study_module.read

    def stop_at_second(runner: Runner, arms: Any, clip: int) -> Any:
        reads.append(clip)
        if len(reads) == 2:
            raise StopError
        return read(runner, arms, clip)

    monkeypatch.setattr(study_module, "read", stop_at_second)
    with pytest.raises(StopError):
        study_module.run(SMALL, target, told.append)
    kept = len(book_path(target).read_text().splitlines()) - 1
    result = study_module.run(SMALL, target, told.append)
    assert result["complete"]
    assert result["resumed_runs"] == kept
    assert reads == [1, 2, 2]  # only the one that was stopped again
    assert result["clips"] == 1
    assert all(one["read_clips"] == 3 for one in result["sweep"])
    assert all("value" in one["run_length_share"] for one in result["sweep"])
    assert json.loads(json.dumps(result)) == json.loads(target.read_text())
    assert not book_path(target).exists()
    arms = {arm["method"]: arm for arm in result["arms"]}
    assert {"plain", "hf-assisted", "onsd", "sd-tree", "specvlm", "sparse-to-dense"} <= set(arms)
    exact = [arm for arm in arms.values() if arm["mode"] == "exact"]
    assert all(arm["parity"] in ("identical", "tie") for arm in exact)
    assert all(arm["decode_speedup"] > 0 for arm in exact)
    assert arms["parallel"]["acceptance_ratio"] == 1.0
    assert 0 <= arms["fastv"]["acceptance_ratio"] <= 1
    for name in ("fastv", "sparse-vlm", "pyramid-drop", "dycoke"):
        assert arms[name]["retention"] == pytest.approx(0.1, abs=1e-6)
    assert arms["dycoke"]["prefill_retention"] == pytest.approx(0.25)
    assert arms["parallel-forked"]["first_token_ratio"] > 0
    assert arms["parallel"]["over_speculative_auto"] > 0
    points = {(one["criterion"], one["alpha"]): one for one in result["sweep"]}
    ours = {("uv-prune-by-frame", alpha) for alpha in (0.0, 0.5, 0.9)}
    assert set(points) == ours | {("uniform", 0.5), ("uniform", 0.9)}
    assert sum(points["uniform", 0.5]["kept_by_frame"]) in (15, 16)  # half of 33, one a newline
    assert all(len(one["kept_by_frame"]) == 2 for one in result["sweep"] if one["alpha"])
    assert all(0 <= one["draft_agreement"] <= 1 for one in result["sweep"])
    assert "repacked_draft_run_length" in points["uv-prune-by-frame", 0.9]
    lengths = [one["goal"] for one in result["goals"] if one["goal"].startswith("M of")]
    assert len(lengths) == 2  # one a criterion
    page = markdown(result, "study.json")
    assert "would say, on 3 clips" in page
    for table in ("table 1", "table 2", "tables 3 and 5", "table 6", "table 7"):
        assert table in page
    _check_pictures(result, tmp_path / "figures")


def _check_pictures(result: dict[str, Any], folder: Path) -> None:
    pytest.importorskip("matplotlib")
    from sooner_lab.bench.parallel.plots import write_figures

    names = write_figures(result, folder, "study")
    assert {name.rsplit(".", 1)[1] for name in names} == {"png"}
    assert len(names) == 4
    assert all((folder / name).stat().st_size > 2000 for name in names)


def test_shown_frames_are_those_that_the_world_samples(tmp_path: Path) -> None:
    from sooner.tasks.clip import prepare
    from sooner.tasks.loading import load_pair
    from sooner.tasks.settings import CaptionSettings
    from sooner_lab.worlds.video import world

    settings = replace(SMALL, scenes=2, frames_per_scene=8)
    clips = study_module.find_clips(tmp_path, settings)
    clip = prepare(clips.files[0], load_pair(), CaptionSettings(frames=settings.shown_frames))
    wanted = world.sample_indices(2 * world.SCENE_FRAMES, 16)
    assert clip.frames.indices == wanted.tolist()


def test_a_peak_counts_the_models(tmp_path: Path) -> None:
    models = [str(fixtures.checkpoint(tmp_path / name, 0)) for name in ("target", "draft")]
    clip = videos.write(tmp_path / "clip.mp4")
    about = {"device": "cpu", "dtype": "auto", "threads": 1, "max_new_tokens": 6}
    request = {"arm": "parallel", "file": str(clip), "frames": 4, "prune": 0.5, **about}
    found = peak({**request, "model": models[0], "draft": models[1]})
    assert found > sum(path.stat().st_size for path in tmp_path.rglob("*.safetensors"))


def test_the_command_measures_a_users_own_clip(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    models = [str(fixtures.checkpoint(tmp_path / name, 0)) for name in ("target", "draft")]
    clip, target = videos.write(tmp_path / "clip.mp4"), tmp_path / "own.json"
    given = ["--model", models[0], "--draft", models[1], "--frames", "4", "--max-new-tokens", "8"]
    asked = ["--parts", "sweep,timeline", "--alphas", "0.5", "--criteria", "uv-prune"]
    wanted = ["--json", str(target), "--plots", str(tmp_path / "plots")]
    assert command("parallel", str(clip), *given, *asked, *wanted) == 0
    assert "By pruning ratio (table 7)" in capsys.readouterr().out
    assert command("report", str(target)) == 0
    page = target.with_suffix(".md").read_text()
    assert "figures/own-gantt.png" in page
    assert (tmp_path / "figures" / "own-gantt.png").is_file()
    assert (tmp_path / "plots" / "own-alpha.png").is_file()


def command(*arguments: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(["bench", *arguments])
    return int(end.value.code or 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--parts", "sweeps"], "did you mean 'sweep'"),
        (["--criteria", "uvprune"], "did you mean 'uv-prune'"),
        (["--alphas", "0.5,2"], "a pruning ratio lies in 0 to 1"),
        (["--scenes", "0"], "--scenes is 0"),
        (["--dataset", "VideoMMEE"], "did you mean 'VideoMME'"),
    ],
)
def test_bad_requests_get_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("parallel", *arguments) == 2
    error = capsys.readouterr().err.strip()
    assert message in error
    assert len(error.splitlines()) == 1
