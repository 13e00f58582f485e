"""`sooner bench gpu`, proved on a CPU: every section, its gates, the budget, interruptions."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import sooner
from sooner.cli.main import main
from sooner.engine.attention.context import block_attention
from sooner.errors import SoonerError
from sooner_lab import gpu
from sooner_lab.bench.gpu import goals, kernels, methods, models, page, run, texts
from sooner_lab.bench.gpu.bench import GpuBench
from sooner_lab.bench.gpu.settings import COSTS, SECTIONS, GpuSettings
from sooner_lab.bench.gpu.timing import Deadline, DeviceClock

MISSING = ("psutil", "rich", "typer", "click", "av", "PIL", "torchvision", "accelerate")
WITHOUT = f"""
import sys
for name in {MISSING}:
    sys.modules[name] = None
from sooner_lab.gpu import main
sys.exit(main(sys.argv[1:]))
"""


def quiet(settings: GpuSettings, **options: Any) -> dict[str, Any]:
    return run.run(settings, progress=lambda line: None, **options)


def tiny_bench(**changes: Any) -> GpuBench:
    settings = GpuSettings.tiny(**changes)
    device = torch.device("cpu")
    built = models.BuiltModels(device, torch.float32, 0)
    nothing: Callable[..., None] = lambda *_: None  # noqa: E731
    return GpuBench(settings, DeviceClock(device), built, nothing, nothing, Deadline(60), 1e9)


def test_every_section_has_its_figures() -> None:
    settings = GpuSettings.tiny(compiles=False)
    result = quiet(settings)
    sections = result["sections"]
    assert list(sections) == list(SECTIONS)
    assert [(name, part["status"], part.get("error")) for name, part in sections.items()] == [
        (name, "done", None) for name in SECTIONS
    ]
    assert result["is_complete"]
    assert gpu.faults(result) == []
    assert result["bandwidth"]["bytes_per_second"] > 0

    for model in sections["step"]["models"]:
        timed = {arm: part for arm, part in model["arms"].items() if "missing" not in part}
        assert set(timed) == {"hf-eager", "sooner", "sooner-graphs"}
        assert all(part["identical"] and part["share_of_copy"] > 0 for part in timed.values())

    rows = sections["methods"]["rows"]
    drafted = {part["arm"] for part in rows if part["acceptance"] == settings.acceptance[0]}
    assert drafted == {
        "speculative", "parallel", "speculative-auto", "sd-tree", "speculative sampled",
        "sd-tree sampled",
    }  # fmt: skip
    untrained = {part["arm"] for part in rows if part["acceptance"] is None} - {"plain"}
    assert untrained == {
        "eagle", "eagle3", "dflash", "ddtree", "prompt-lookup", "plain sampled", "eagle3 sampled",
    }  # fmt: skip
    assert {part["arm"] for part in rows if part["acceptance"] == settings.acceptance[1]} == {
        "speculative", "parallel",
    }  # fmt: skip
    assert all(part["identical"] and part["break_even"] > 0 for part in rows)
    assert all(len(part["captures"]) == 1 + settings.text_runs for part in rows)
    assert {part["arm"] for part in rows if "share_of_theory" in part} == {
        "speculative", "speculative sampled", "parallel",
    }  # fmt: skip

    cells = sections["verify"]["cells"]
    plain = [part for part in cells if part["block"] == 1]
    assert {part["arm"] for part in cells} == {"eager chain", "graph chain", "graph tree"}
    assert all(part["over_plain"] == 1.0 for part in plain)
    assert len(plain) == 2 * len(settings.verify_contexts), "eager and graph have their own"

    assert sections["video"]["visual_tokens"] == 4
    assert [part["arm"] for part in sections["video"]["rows"]] == [
        "plain", "speculative", "parallel", "specvlm",
    ]  # fmt: skip
    assert all(part["identical"] and part["phases"] for part in sections["video"]["rows"])

    for arm in sections["engine"]["arms"]:
        assert len(arm["waves"]) == settings.engine_waves
        assert all(wave["identical"] and wave["captures"] >= 0 for wave in arm["waves"])

    cells = sections["kernels"]["cells"]
    assert len(cells) == 12
    assert sections["kernels"]["ok"]
    assert [part["tree"] for part in cells[1]["checks"]] == [False, True]
    assert "missing" in cells[0]["arms"]["sdpa-efficient-grouped"], "no such backend on CPUs"
    assert set(sections["prefill"]["lengths"][0]["arms"]) == {
        "sdpa-flash", "dense", "vertical-slash", "grid", "searched",
    }  # fmt: skip
    assert sections["graphs"]["graphs"] == 2 * len(sections["graphs"]["buckets"]) > 20
    assert {part["met"] for part in result["goals"]} == {None}
    assert len(result["goals"]) == len(goals.GOALS)


@pytest.mark.slow
def test_the_command_where_only_torch_and_transformers_are(tmp_path: Path) -> None:
    """As `python -m sooner_lab.gpu` runs it on a bare machine, HF's compiled step included; then
    its page."""
    path = tmp_path / "gpu.json"
    command = [sys.executable, "-c", WITHOUT, "--tiny", "--json", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    result = json.loads(path.read_text())
    assert result["is_complete"]
    first, second = result["sections"]["step"]["models"]
    assert all(figures["identical"] for figures in first["arms"].values())
    assert set(first["arms"]) == {
        "hf-eager", "hf-compiled", "sooner", "sooner-graphs", "sooner-compiled",
    }  # fmt: skip
    assert second["arms"]["hf-compiled"] == {"missing": "one compile a run"}
    assert second["arms"]["sooner-compiled"] == {"missing": "one compile a run"}
    with pytest.raises(SystemExit):
        main(["bench", "report", str(path)])
    page = path.with_suffix(".md").read_text()
    for title in ("Goals", "Block attention", "Plain step", "Verification", "Drafts"):
        assert f"## {title}" in page
    assert "verify" in done.stdout


def test_the_command_takes_sections_and_adds_to_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    planted(monkeypatch, {})
    path = str(tmp_path / "gpu.json")

    def command(*arguments: str) -> int:
        with pytest.raises(SystemExit) as end:
            main(["bench", "gpu", "--tiny", "--json", path, *arguments])
        return int(end.value.code or 0)

    assert command("--section", "graphs") == 0
    assert command("--section", "verify", "--section", "engine", "--add") == 0
    result = json.loads(Path(path).read_text())
    assert list(result["sections"]) == ["graphs", "verify", "engine"]
    assert [earlier["parts"] for earlier in result["kept"]] == [["graphs"]]
    assert result["settings"]["sections"] == ["verify", "engine"]
    assert result["is_complete"]
    assert command("--section", "verfy") != 0
    assert "did you mean 'verify'" in capsys.readouterr().err


def test_without_a_gpu_the_error_is_short(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu.main([]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("sooner: no CUDA device")


def planted(monkeypatch: pytest.MonkeyPatch, errors: dict[str, BaseException]) -> None:
    """Every section measures one figure; those of `errors` then end by one."""

    def section(name: str) -> Any:
        def measure(bench: GpuBench, out: dict[str, Any]) -> None:
            out["figures"] = [name]
            bench.keep()
            if name in errors:
                raise errors[name]

        return measure

    monkeypatch.setattr(run, "section", section)


def test_a_section_that_fails_does_not_stop_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    planted(monkeypatch, {"step": RuntimeError("CUDA error: out of luck\nmore")})
    result = quiet(GpuSettings.tiny())
    sections = result["sections"]
    assert sections["step"]["status"] == "failed"
    assert sections["step"]["error"] == "RuntimeError: CUDA error: out of luck"
    assert sections["step"]["figures"] == ["step"], "what it had measured stays"
    assert all(sections[name]["status"] == "done" for name in SECTIONS if name != "step")
    assert not result["is_complete"]
    assert "out of luck" in page.PAGE.markdown(result, "gpu.json")
    assert gpu.faults(result) == ["section step failed: RuntimeError: CUDA error: out of luck"]


def test_an_interrupted_run_keeps_what_it_has(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    planted(monkeypatch, {"verify": KeyboardInterrupt()})
    path = tmp_path / "gpu.json"
    monkeypatch.setattr(gpu.signal, "signal", lambda *_: None)
    assert gpu.main(["--tiny", "--json", str(path)]) == 130
    sections = json.loads(path.read_text())["sections"]
    assert list(sections) == list(SECTIONS[: SECTIONS.index("verify") + 1])
    assert [part["status"] for part in sections.values()][-2:] == ["done", "interrupted"]
    assert sections["verify"]["figures"] == ["verify"]


def test_what_does_not_fit_the_budget_is_skipped_and_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ran = []

    def section(name: str) -> Any:
        def measure(bench: GpuBench, out: dict[str, Any]) -> None:
            ran.append(name)
            for number in range(3):
                if bench.is_late(out, f"cell {number}"):
                    continue
            out["left"] = bench.deadline.left

        return measure

    monkeypatch.setattr(run, "section", section)
    costs = {**COSTS, "step": 4000.0, "verify": 300.0}
    result = quiet(GpuSettings.tiny(budget=1000.0, costs=costs, sections=("step", "verify")))
    assert ran == ["verify"]
    assert result["sections"]["step"]["status"] == "skipped"
    assert "takes about 4000 s" in result["sections"]["step"]["reason"]
    assert 0 < result["sections"]["verify"]["left"] <= 600.0, "no more than twice its own"
    assert not result["is_complete"]

    monkeypatch.setattr(Deadline, "left", -1.0)
    result = quiet(GpuSettings.tiny(sections=("verify",)))
    assert result["sections"]["verify"]["status"] == "cut"
    assert result["sections"]["verify"]["cut"] == ["cell 0", "cell 1", "cell 2"]
    with pytest.raises(SoonerError, match="--budget"):
        quiet(GpuSettings.tiny(budget=0.0))


def test_a_red_kernel_has_no_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """An attention that forgets a slot, and one that reads a slot that nobody wrote."""

    def short(query: Any, keys: Any, values: Any, block: Any, **options: Any) -> Any:
        block = block._replace(lengths=block.lengths - 1)
        return block_attention(query, keys, values, block, **options)

    def poisoned(query: Any, keys: Any, values: Any, block: Any, **options: Any) -> Any:
        wider = block._replace(lengths=block.lengths + 1)
        return block_attention(query, keys, values, wider, **options)

    for broken in (short, poisoned):
        monkeypatch.setattr(kernels, "block_attention", broken)
        out: dict[str, Any] = {}
        kernels.kernels(tiny_bench(contexts=(100,), kernel_rows=(1,), blocks=(4,)), out)
        (cell,) = out["cells"]
        assert not cell["ok"], broken
        assert not out["ok"]
        assert "arms" not in cell
    assert cell["checks"][0]["error"] is None, "NaN"
    assert page.section_table("kernels", out)[0].rows == [["100", "1", "4", "– red"]]
    result = {"sections": {"kernels": out}}
    assert gpu.faults(result) == ["section kernels: a kernel is red"]


def test_a_models_text_counts_upwards_and_its_draft_follows_the_script() -> None:
    target = models.build("tiny", torch.device("cpu"), torch.bfloat16, seed=1)
    draft = models.build("tiny-draft", torch.device("cpu"), torch.bfloat16, seed=2)
    ids = models.prompts(2, 16, 40, 1024, torch.device("cpu"), seed=3)
    first = ids["input_ids"][:, -1].tolist()
    made = sooner.generate(target, ids, max_new_tokens=40, do_sample=False)
    assert made.tokens == [list(range(start_id + 1, start_id + 41)) for start_id in first]
    right = models.script(0.7, 1024, seed=4)
    models.set_script(draft, right)
    drafted = sooner.generate(draft, ids, max_new_tokens=40, do_sample=False)
    for start, output_ids in zip(first, drafted.tokens, strict=True):
        for before, token in zip([start, *output_ids], output_ids, strict=False):
            assert token == before + (1 if right[before] else 2)
    both = sooner.generate(
        target,
        ids,
        sooner.Speculative(draft, num_draft_tokens=3),
        max_new_tokens=40,
        do_sample=False,
    )
    assert both.tokens == made.tokens


def texts_of(name: str, tokens: list[int], gaps: list[float], sizes: list[int]) -> texts.ArmTexts:
    """An arm whose first call is slow, and another one of these rounds."""
    first = texts.DecodedText([tokens], [9.0, *gaps], [1, *sizes], 100.0, captures=4)
    return texts.ArmTexts(name, [first, texts.DecodedText([tokens], gaps, sizes, 10.0)])


def test_a_text_that_differs_has_no_speed() -> None:
    plain = texts_of("plain", [1, 2, 3], [1.0, 1.0], [1, 1])
    other = texts_of("parallel", [1, 2, 4], [1.0, 1.0], [1, 1])
    parted = (2, [4], [3])
    assert other.figures(plain) == {"identical": False, "differs": [parted]}
    row = {"arm": "parallel", "acceptance": 0.8, **other.figures(plain)}
    waves = [{"identical": True}, {"identical": False}]
    sections = {"methods": {"rows": [row]}, "engine": {"arms": [{"arm": "plain", "waves": waves}]}}
    assert gpu.faults({"sections": sections}) == [
        "methods parallel 0.8: not plain's text",
        "engine plain: not plain's text",
    ]


def test_rates_are_of_late_rounds_and_the_first_call_is_separate() -> None:
    plain = texts_of("plain", [1, 2, 3, 4, 5], [5.0, 5.0, 1.0, 1.0], [1, 1, 1, 1])
    ours = texts_of("speculative", [1, 2, 3, 4, 5], [7.0, 2.0], [2, 3])
    ours.profile = {"kernels": 30.0, "launches": 3.0, "busy_seconds": 1.5}
    figures = ours.figures(plain)
    assert figures["tokens_per_second"] == 1.5, "three tokens in the two seconds of the last round"
    assert figures["over_plain"] == 1.5
    assert figures["break_even"] == 2.0, "a round takes as long as two plain ones"
    assert figures["tokens_a_round"] == 3.0
    assert (figures["first_call_seconds"], figures["call_seconds"]) == (100.0, 10.0)
    assert figures["captures"] == [4, 0]
    assert figures["idle_share"] == pytest.approx(0.25)


def test_theory_is_tokens_over_steps() -> None:
    """Rounds of 3 seconds, 2.5 tokens each: what a draft of 2 at a second each and a verification
    of a second allow."""
    steps = {name: {"seconds": 1.0} for name in ("plain", "verify", "draft")}
    figures = {"tokens_per_second": 2.5 / 3, "tokens_a_round": 2.5}
    shares = methods.theory("speculative", figures, 0.8, steps, 2)
    assert shares["theory_tokens_per_second"] == pytest.approx(2.5 / 3)
    assert shares["share_of_theory"] == pytest.approx(1.0)
    assert shares["share_of_expected"] == pytest.approx(2.5 / (1 + 0.8 + 0.64))
    assert methods.theory("eagle", figures, 0.8, steps, 2) == {}
    assert methods.theory("speculative", {"identical": False}, 0.8, steps, 2) == {}


def test_rounds_of_batches_are_distinguished() -> None:
    """Rows report one by one; one that has ended is left out."""
    rounds = texts.Rounds(DeviceClock(torch.device("cpu")))
    for row, tokens in ((0, [1]), (1, [1]), (0, [2, 3]), (1, [2]), (1, [3]), (1, [4])):
        rounds.on_tokens(row, tokens, 0)
    assert rounds.sizes == [2, 3, 1, 1]
    assert len(rounds.marks) == 4


def test_the_profiler_sees_some_late_rounds_of_a_text() -> None:
    bench = tiny_bench(profiled_rounds=2)
    model = bench.models.get("tiny-draft")
    inputs = models.prompts(1, 8, 12, 1024, bench.device, 0)
    arm = texts.sooner_arm(bench, model)
    assert texts.profiled(bench, arm, inputs, 12) == {
        "kernels": 0.0, "launches": 0.0, "busy_seconds": 0.0,
    }, "a CPU has no kernels"  # fmt: skip
    assert texts.profiled(bench, arm, inputs, 3) == {}, "the text ended before"
