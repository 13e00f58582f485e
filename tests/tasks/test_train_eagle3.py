"""EAGLE-3 heads are trained on three layers' states, and written as others read them."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch

import method_matrix as matrix
import sooner
import tiny
from methods.doors import generate
from published_heads import PublishedEagle3, write_eagle3
from sooner.methods.eagle.eagle3 import Eagle3Head
from sooner.methods.trained import load_for
from sooner.models import adapt
from sooner.tasks.train_draft.heads import HeadTask, unroll
from sooner.tasks.train_draft.recording import DataSet, record
from sooner.tasks.train_draft.settings import HeadTraining
from sooner.tasks.train_draft.training import train

NEW = 9
LAYERS = (0, 1, 2)
SHORT = HeadTraining(
    format="eagle3", layers=LAYERS, draft_vocab_size=30, steps=30, warmup=3, batch=4, lr=3e-3,
    check_every=15, save_every=50, unroll=3, depth=3,
)  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> DataSet:
    model = tiny.model("qwen2_5_vl")
    batches = (tiny.inputs("qwen2_5_vl", "uneven", 3, seed) for seed in range(4))
    layers = SHORT.recorded_layers(adapt(model).layers)
    folder = tmp_path_factory.mktemp("recording")
    return record(model, batches, folder, NEW, layers=layers, eos_token_id=None)


def test_unrolled_steps_are_drafts_of_the_published_layout(data: DataSet, tmp_path: Path) -> None:
    """Step s of every place: the head goes on s times from its own states."""
    model = tiny.model("qwen2_5_vl")
    write_eagle3(tmp_path)
    head = load_for("eagle", tmp_path)
    reference, adapter = PublishedEagle3(tmp_path), adapt(model)
    samples = [data[0], data[4]]
    with torch.no_grad():
        batch = HeadTask(head, adapter, SHORT).batch(samples, SHORT.steps)
        steps = [estimate for estimate, _ in unroll(head, batch, 3)]
        for row in range(2):
            base = reference.start(batch.states[row, :, 48:])
            for place in (2, 5):
                at = int(batch.places[row, place])
                for step in range(3):  # the draft began `step` entries before
                    states = base[: at + 1 - step]
                    for entry in range(at - step, at + 1):
                        count = len(states)
                        where = torch.arange(count)
                        after, _ = reference.run(batch.embeds[row, :count], states, where)
                        if entry < at:
                            states = torch.cat([states, after[-1:]])
                    torch.testing.assert_close(
                        steps[step][row, place], after[-1], atol=2e-3, rtol=2e-3
                    )


def train_and_read(
    family: str, data: DataSet, recipe: HeadTraining, folder: Path
) -> tuple[Any, Any]:
    """Trains a head, which learns, and reads it as published, by which ids stay exact."""
    metrics: list[dict[str, Any]] = []
    model = tiny.model(family)
    head = train(model, data, folder, recipe, progress=False, on_step=metrics.append)
    assert metrics[-1]["loss"] < 0.97 * metrics[0]["loss"]
    method = sooner.load_drafter(folder / "head", nodes=12, top_k=4)
    made = generate(family, method, "uneven", 3)
    assert made.sequences.tolist() == matrix.reference(family, "uneven", 3, 15).tolist()
    assert made.stats.num_accepted_draft_tokens > 0
    with pytest.raises(sooner.SoonerError, match="another target"):
        sooner.generate(
            tiny.model(family, seed=5), tiny.inputs(family, "text", 1), method, max_new_tokens=4
        )
    return head, method


def test_a_head_learns_and_is_read_as_published(data: DataSet, tmp_path: Path) -> None:
    head, method = train_and_read("qwen2_5_vl", data, SHORT, tmp_path)
    assert isinstance(head, Eagle3Head)
    config = json.loads((tmp_path / "head" / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLMEagle3"]
    assert config["draft_vocab_size"] == 30
    read = method.head.config
    assert (read.layer_ids, read.temperature) == (LAYERS, head.config.temperature)
    assert head.config.provenance["step"] == 30
    # A finished training writes the other layout without another step.
    recipe = replace(SHORT, layout="speculators")
    train(tiny.model("qwen2_5_vl"), data, tmp_path, recipe, progress=False)
    config = json.loads((tmp_path / "head" / "config.json").read_text())
    verifier = config["speculators_config"]["verifier"]
    assert verifier["architectures"] == ["Qwen2_5_VLForConditionalGeneration"]
    assert load_for("eagle", tmp_path / "head").config.layer_ids == LAYERS


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"format": "eagle4"}, "unknown format 'eagle4'"),
        ({"layers": (1, 2)}, r"layers is \[1, 2\]; an EAGLE-3 head reads three"),
        ({"format": "eagle", "layers": None, "draft_vocab_size": 30}, "are of format 'eagle3'"),
        ({"step_decay": 0.0}, "step_decay is 0; it must be above 0"),
    ],
)
def test_recipes_out_of_range_are_refused(options: dict[str, Any], error: str) -> None:
    with pytest.raises(sooner.SoonerError, match=error):
        HeadTraining(**{**asdict(SHORT), **options})


def test_a_recording_of_other_states_is_refused(data: DataSet, tmp_path: Path) -> None:
    model = tiny.model("qwen2_5_vl")
    plain = HeadTraining(steps=12, warmup=3, batch=4)
    with pytest.raises(sooner.SoonerError, match=r"keeps hidden_states \(3, 0, 1, 2\)"):
        train(model, data, tmp_path, plain, progress=False)
    other = HeadTraining(**{**asdict(SHORT), "layers": (1, 1, 2)})
    with pytest.raises(sooner.SoonerError, match=r"learns from \(3, 1, 1, 2\)"):
        train(model, data, tmp_path, other, progress=False)
    with pytest.raises(sooner.SoonerError, match="layers is not set, and the target has 3"):
        HeadTraining(**{**asdict(SHORT), "layers": None}).recorded_layers(3)
