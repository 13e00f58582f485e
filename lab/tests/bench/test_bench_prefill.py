"""The prefill bench: sizes of its arms, what it measures, and its pages."""

from __future__ import annotations

import copy
import json
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import tiny
from sooner.cli.main import app
from sooner.models import adapt
from sooner.models.silent import Depth, deepen
from sooner.sparse.patterns import AShape, Grid, VerticalSlash
from sooner.sparse.prefill import MMInference
from sooner.sparse.search.score import trial
from sooner.sparse.table import PatternTable
from sooner.tasks.loading import Loaded, ModelPair
from sooner_lab.bench import report
from sooner_lab.bench.prefill import layer, model, rivals
from sooner_lab.bench.prefill.needles import DEPTHS, needles
from sooner_lab.bench.prefill.run import Patterns, goals
from sooner_lab.bench.prefill.settings import PrefillSettings
from sooner_lab.bench.prefill.states import grid_states, video_layout
from sooner_lab.bench.prefill.text import KINDS, TextTask
from sooner_lab.rivals.patterns import local_window
from sparse_attention.contexts import prompt_of

SETTINGS = PrefillSettings(lengths=(600,), heads=2, kv_heads=1, head_dim=16, frame=20, repeats=1)


SHAPE = {"heads": 2, "head_dim": 16, "frame": 20}


@pytest.fixture(scope="module")
def rows() -> list[dict]:
    return layer.layer(SETTINGS, torch.device("cpu"), torch.float32, lambda line: None)


class WordTokenizer:
    """A token for each word, of a tiny model's vocabulary, with a token in front of every text."""

    bos_token_id = 1

    def __call__(self, text: str, add_special_tokens: bool = True) -> dict[str, list[int]]:
        ids = [2 + zlib.crc32(word.encode()) % 80 for word in text.split()]
        return {"input_ids": [self.bos_token_id, *ids] if add_special_tokens else ids}

    def decode(self, ids: list[int], skip_special_tokens: bool = True) -> str:
        return " ".join(map(str, ids))


TEXT = PrefillSettings(lengths=(128,), budget=0.36, needles=1, arms=("dense", "a-shape", "ours"))


@pytest.fixture(scope="module")
def text_result() -> dict[str, Any]:
    """What a tiny random model of text makes of 128 tokens."""
    target = Loaded("tiny", tiny.model("llama"), WordTokenizer(), is_text=True)
    pair, adapter = ModelPair(target), adapt(target.model)
    searched = Patterns(TEXT, pair, adapter).table
    assert not [h for row in searched.layers for h in row if isinstance(h.pattern, Grid)]
    ours = PatternTable.uniform(adapter, VerticalSlash(8, 8))
    return {"needles": needles(TEXT, pair, ours, lambda line: None)}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("depth", [0.0, 0.5, 1.0])
def test_a_text_has_its_length_and_its_needle(kind: str, depth: float) -> None:
    tokenizer = WordTokenizer()
    sample, again = (TextTask(tokenizer, kind).sample(2000, depth, 3) for _ in range(2))
    assert len(sample.ids) == 2000
    assert torch.equal(sample.ids, again.ids)
    first, *_, last = sample.ids[sample.needle].tolist()
    assert first == tokenizer("The", add_special_tokens=False)["input_ids"][0]
    assert last == tokenizer(f"{sample.answer}.", add_special_tokens=False)["input_ids"][0]
    assert abs(sample.needle.start - depth * 2000) < 600
    assert sample.score(f" {sample.answer}. It")
    assert not sample.score(f"{sample.answer}0")


def test_recall_is_a_mean_over_layers_that_were_trained() -> None:
    deep = copy.deepcopy(tiny.model("llama"))
    deepen(deep.get_decoder(), Depth(7, (0, 3, 5)))
    adapter = adapt(deep)
    assert model.trained_layers(adapter) == [0, 3, 5]
    sparse = MMInference(PatternTable.uniform(adapter, AShape(4, 32)))
    with torch.inference_mode():
        prompt = adapter.embed_prompt({"input_ids": torch.arange(300)[None] % 80})
        tokens = model.continuation(adapter, prompt, 2)
        _, figures = model._measure(sparse, adapter, prompt, tokens)
        shallow = adapt(tiny.model("llama"))
        table = PatternTable.uniform(shallow, AShape(4, 32))
        _, expected = model._measure(MMInference(table), shallow, prompt, tokens)
    assert (figures["trained_layers"], figures["layers"]) == (3, 7)
    assert figures["recall"] == pytest.approx(expected["recall"], abs=1e-6)
    assert figures["recall"] != pytest.approx(figures["recall_all"], abs=1e-4)


def test_every_text_and_arm_is_asked_at_every_depth(text_result: dict[str, Any]) -> None:
    grids = text_result["needles"]
    assert [(grid["kind"], grid["name"]) for grid in grids] == [
        (kind, name) for kind in KINDS for name in TEXT.arms
    ]
    assert all(grid["asked"] == [[1] * len(DEPTHS)] for grid in grids)


def test_the_page_of_text_has_pictures_and_goals(
    text_result: dict[str, Any], tmp_path: Path
) -> None:
    rows = [
        {"method": name, "tokens": 128, "mode": "exact", "seconds": 1.0, "speedup": speed,
         "recall": 0.9, "recall_all": 0.9, "trained_layers": 3, "layers": 3, "flops_share": 0.3,
         "logit_error": 0.0, "agreement": 1.0}
        for name, speed in (("dense", 1.0), ("ours", 1.2))
    ]  # fmt: skip
    result = {"bench": "prefill", "model": "m", "reads": "text", "model_rows": rows, **text_result}
    for grid in result["needles"]:
        grid["right"] = [[1, 1, 1, 1, int(grid["name"] == "dense")]]
    result["goals"] = goals(result)
    assert [row["met"] for row in result["goals"]] == [False, True, False]
    assert [row["reached"] for row in result["goals"]] == [0.9, 1.2, 0.8]
    result["provenance"] = {
        "argv": ["sooner"], "date": "d", "git": "g", "device": "cpu", "threads": 1,
        "dtype": "float32", "versions": {"torch": "2", "transformers": "5"},
    }  # fmt: skip
    page = report.markdown(result, "prefill-m.json")
    assert "over the 3 trained layers" in " ".join(
        page.replace("mean over heads and", "over").split()
    )
    assert "ours, 128 tokens" in page
    made = {path.stem: path for path in report.write_figures(result, tmp_path / "prefill-m.json")}
    names = ("model", "figure5", "figure13")  # 14 lacks its arms
    assert set(made) == {f"prefill-m-{name}" for name in names}
    assert all(path.stat().st_size < 60_000 for path in made.values())


@pytest.mark.parametrize("budget", [0.1, 0.25, 0.6])
def test_local_windows_spend_the_budget(budget: float) -> None:
    tokens, sink = 4096, 128
    local = local_window(tokens, sink, budget)
    rank = torch.arange(tokens)
    pairs = sum(
        int(((rank[:row] < sink) | (row - 1 - rank[:row] < local)).sum())
        for row in range(1, tokens + 1, 7)
    )
    share = pairs / sum(range(1, tokens + 1, 7))
    assert share == pytest.approx(budget, abs=0.02)


def test_planted_layers_are_grids() -> None:
    """Own class and phase's class hold most of the attention, a fifteenth of the pairs."""
    layout = video_layout(1200, 30)
    states = grid_states(layout, 30, heads=2, kv_heads=2, head_dim=32, seed=1)
    grid, shape = (trial(states, layout, [each] * 2, 64) for each in (Grid("frame"), AShape(4, 64)))
    assert grid.figures[1].mean() > 0.7
    assert shape.figures[1].mean() < grid.figures[1].mean() / 2


def test_dense_is_all_and_without_error(rows: list[dict]) -> None:
    dense = next(row for row in rows if row["method"] == "dense")
    assert dense["flops_share"] == 1
    assert dense["speedup"] == 1
    assert dense["recall"] == pytest.approx(1, abs=1e-5)
    assert dense["error"] < 1e-5


def test_every_arm_has_a_row_with_all_figures(rows: list[dict]) -> None:
    assert [row["method"] for row in rows] == list(SETTINGS.arms)
    for row in rows:
        assert 0 < row["flops_share"] <= 1
        assert 0 < row["recall"] <= 1
        assert row["of_allowed"] == pytest.approx(row["speedup"] * row["flops_share"])
        assert (row["index_seconds"] > 0) == (row["method"] != "dense")


def test_ours_is_searched_on_states_that_it_is_not_measured_on(rows: list[dict]) -> None:
    ours, planted = (next(r for r in rows if r["method"] == name) for name in ("ours", "planted"))
    assert planted["pattern"].startswith("2d-boundary(video:video grid(stride='frame'")
    other = layer._searched(SETTINGS, torch.device("cpu"), torch.float32)
    assert ours["pattern"] == "; ".join(dict.fromkeys(map(str, other)))


@pytest.mark.parametrize("family", ["llama", "llava_onevision"])
def test_rivals_and_ablations_are_measured_at_equal_pairs(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rivals, "long_inputs", lambda *_: prompt_of(family, kind="video"))
    target = Loaded("tiny", tiny.model(family), WordTokenizer(), is_text=family == "llama")
    settings = replace(SETTINGS, parts=("rivals", "ablations"), budget=0.7)
    comparison = rivals.Comparison(
        settings, ModelPair(target), adapt(target.model), lambda line: None
    )
    result = comparison.run()
    both = {(row["equal"], row["method"]): row for row in result["rivals"]}
    names = ["dense", "ours", *rivals.STATIC, "minference", "flexprefill"]
    names += ["visionzip"] * (family != "llama")
    assert sorted(both) == sorted((equal, name) for equal in ("pairs", "time") for name in names)
    for name, error in (("dense", 0.0), ("sf-fixed", 3.0), ("sf-strided", 3.0)):
        row = both["pairs", name]
        assert row["error"] == pytest.approx(error, abs=1e-4) or 0 < row["error"] < error
        assert 0 < row["pairs"] <= (1 if name == "dense" else both["pairs", "ours"]["pairs"])
        assert 0 < row["recall"] <= 1 + 1e-5
        assert row["seconds"] > 0
    rows = {row["method"]: row for row in result["ablations"]}
    assert set(rivals.ABLATIONS) < set(rows)
    # Both prompts are the same here, so the index of the other one is the prompt's own.
    assert rows["index of another input"]["error"] == pytest.approx(rows["ours"]["error"])
    for name, without in rivals.ABLATIONS.items():
        for arms, *_ in comparison.chosen.values():
            used = {inner.name for each in arms[name] for inner in (each, *parts_of(each))}
            assert not used & set(without)


def parts_of(pattern: Any) -> list[Any]:
    return list(getattr(pattern, "inner", {}).values())


def test_pages_and_figures_are_made_from_the_result(rows: list[dict], tmp_path: Path) -> None:
    result = {
        "bench": "prefill", "model": "m", "settings": SHAPE,
        "backend": "fused", "layer": rows, "goals": goals({"layer": rows}),
        "rivals": [{"equal": "pairs", "method": "dense", "tokens": 600, "layers": 4, "pairs": 1.0,
                    "seconds": 2.5, "recall": 1.0, "error": 0.0, "pairs95": 0.123}],
        "ablations": [{"equal": "budget", "method": "visionzip", "tokens": 600, "error": 0.4}],
        "provenance": {
            "argv": ["sooner"], "date": "d", "git": "g", "device": "cpu", "threads": 1,
            "dtype": "float32", "versions": {"torch": "2", "transformers": "5"},
        },
    }  # fmt: skip
    text = report.markdown(result, "prefill.json")
    assert "## One attention layer" in text
    assert "vertical-slash" in text
    assert "nothing was searched for it" in text
    assert "| 600 | dense | 100.00% | 2.500 | 1.000 | 0.000 |" in text
    assert "12.3% of the pairs" in text
    assert "| 600 | visionzip | – | – | 0.400 |" in text
    assert "speed-up | recall |" in text
    made = report.write_figures(result, tmp_path / "prefill.json")
    assert {path.stem for path in made} == {"prefill-layer"}
    assert all(path.stat().st_size > 1000 for path in made)


def test_the_command_writes_what_it_has_measured(tmp_path: Path) -> None:
    path = tmp_path / "prefill.json"
    done = CliRunner().invoke(
        app,
        ["bench", "prefill", "--parts", "layer", "--lengths", "300,500", "--frame", "16",
         "--repeats", "1", "--arms", "grid", "--json", str(path)],
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    result = json.loads(path.read_text())
    assert {row["method"] for row in result["layer"]} == {"dense", "grid"}
    assert {row["tokens"] for row in result["layer"]} == {300, 500}
    assert result["provenance"]["argv"][0] == "sooner"
