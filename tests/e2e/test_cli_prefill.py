"""`sooner caption --prefill`: patterns from a file, defaults, pruners, chunks, and wrong ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from commands import Run, records
from sooner.models import adapt
from sooner.sparse.patterns import AShape, Grid, VerticalSlash
from sooner.sparse.table import PatternTable
from sooner.tasks.loading import load_pair
from sooner.tasks.prefill import build_prefill
from sooner.tasks.settings import CaptionSettings
from tasks.fixtures import checkpoint

FRAMES = 16  # of 16 tokens each


class Captioned(NamedTuple):
    code: int
    err: str
    record: dict[str, Any]


@pytest.fixture
def patterns(target_folder: Path, tmp_path: Path) -> Path:
    """A file for the target: every head a local window."""
    adapter = adapt(load_pair(str(target_folder)).target.model)
    PatternTable.uniform(adapter, AShape(2, 40)).save(tmp_path / "patterns.json")
    return tmp_path / "patterns.json"


@pytest.fixture
def caption(run: Run, clip: Path, target_folder: Path, tmp_path: Path) -> Any:
    """Runs `sooner caption` on a clip; the record is empty where none was written."""

    def call(*arguments: object) -> Captioned:
        output = tmp_path / "out.jsonl"
        usual = ("caption", clip, "--model", target_folder, "--frames", FRAMES,
                 "--max-new-tokens", 6, "-o", output, "--overwrite")  # fmt: skip
        done = run(*usual, *arguments)
        rows = records(output) if output.exists() else []
        return Captioned(done.code, done.err, rows[-1] if rows else {})

    return call


def test_a_pattern_file_makes_the_result_approximate_and_is_reported(
    caption: Any, patterns: Path
) -> None:
    done = caption("--prefill", patterns, "--compare", "--prefill-recall")
    assert done.code == 0
    assert done.record["mode"] == "approximate"
    report = done.record["prefill"]
    assert report["name"] == "MMInference"
    assert report["sparse_layers"] == report["layers"] == 2
    assert 0 < report["recall"] < 1
    assert 0 < report["flops_share"] < 1
    assert report["patterns"] == f"file '{patterns}'"
    assert done.record["parity"] is None
    assert 0 <= done.record["agreement"]["equal_tokens"] <= 1
    for phrase in ("mode: approximate", "name: MMInference", "recall: 0.", "flops share: 0.",
                 "parity: not defined", "equal tokens: "):  # fmt: skip
        assert phrase in done.err


def test_short_prompts_stay_exact_under_auto(caption: Any) -> None:
    done = caption("--prefill", "auto", "--compare")
    assert done.code == 0
    assert done.record["mode"] == "exact"
    assert done.record["prefill"]["sparse_layers"] == 0
    assert ", dense: " in done.err
    assert done.record["parity"]["verdict"] == "identical"
    assert done.record["agreement"] is None


@pytest.mark.parametrize("name", ["fastv:0.5", "fastv"])
def test_a_pruner_has_a_name(caption: Any, tmp_path: Path, name: str) -> None:
    folder = checkpoint(tmp_path / "deep", 0, layers=3)  # FastV looks at the second layer
    done = caption("--prefill", name, "--model", folder)
    assert done.code == 0, done.err
    assert done.record["mode"] == "approximate"
    assert done.record["prefill"]["name"].lower() == name.split(":")[0]


def test_a_prompt_may_come_in_chunks(caption: Any, patterns: Path) -> None:
    whole = caption()
    cut = caption("--prefill-chunk", 100)
    assert cut.record["mode"] == "exact"
    assert cut.record["text"] == whole.record["text"]
    sparse = caption("--prefill", patterns)
    both = caption("--prefill", patterns, "--prefill-chunk", 100)
    assert both.record["text"] == sparse.record["text"]


def test_patterns_come_in_chunks_or_are_refused_by_name(
    caption: Any, patterns: Path, target_folder: Path
) -> None:
    """Patterns that look at a prompt's end cut their MLPs where no chunk is given."""
    pair = load_pair(str(target_folder))

    def chunks(requested: int | None) -> tuple[int | None, int | None]:
        settings = CaptionSettings(prefill=str(patterns), prefill_chunk=requested)
        prefill: Any = build_prefill(settings, pair, 64)
        return prefill.chunk, prefill.context.mlp_chunk

    assert chunks(None) == chunks(64) == (64, None)
    PatternTable.uniform(adapt(pair.target.model), VerticalSlash(3, 5)).save(patterns)
    assert (chunks(None), chunks(64)) == ((None, 64), (64, None))
    done = caption("--prefill", patterns, "--prefill-chunk", 100)
    assert done.code != 0
    assert "a prefill chunk of 100 splits them; leave it out" in done.err


def test_a_changed_file_is_done_again(caption: Any, patterns: Path, target_folder: Path) -> None:
    first = caption("--prefill", patterns).record["settings_hash"]
    adapter = adapt(load_pair(str(target_folder)).target.model)
    PatternTable.uniform(adapter, Grid("frame", 0)).save(patterns)
    assert caption("--prefill", patterns).record["settings_hash"] != first


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("visionzip:0.5", "unknown prefill 'visionzip'"),
        ("absent.json", "pattern file 'absent.json' does not exist"),
        ("fastvv", "did you mean 'fastv'"),
        ("fastv:2", "a share in 0 to 1"),
        ("auto:0.5", "drops nothing"),
        ("auto-search:0.5", "drops nothing"),
    ],
)
def test_what_is_no_prefill_is_refused_in_a_single_line(
    caption: Any, text: str, words: str
) -> None:
    done = caption("--prefill", text)
    assert done.code == 2
    assert words in done.err
    assert len([line for line in done.err.splitlines() if line.startswith("sooner: ")]) == 1


def test_another_model_s_patterns_are_refused_in_a_single_line(
    caption: Any, patterns: Path
) -> None:
    data = json.loads(patterns.read_text())
    patterns.write_text(json.dumps({**data, "layers": data["layers"][:1]}))
    done = caption("--prefill", patterns)
    assert done.code == 2
    assert "it has 1 layers of 2 heads" in done.err
    assert done.record == {}
