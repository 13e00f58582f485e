"""Training an MTP layer in a checkpoint's own layout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

import method_matrix as matrix
import sooner
import tiny
from sooner.methods.eagle import MtpHead
from sooner.tasks.train_draft import DataSet, HeadTraining, record, train

SHORT = HeadTraining(
    steps=40, warmup=2, batch=2, lr=3e-3, depth=3, holdout=0.2, unroll=2, format="mtp"
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> DataSet:
    model = tiny.model("qwen2")
    folder = tmp_path_factory.mktemp("mtp") / "data"
    batches = (tiny.inputs("qwen2", "uneven", 3, seed) for seed in range(4))
    return record(model, batches, folder, 12, eos_token_id=None)


def test_a_layer_learns_and_is_read_as_published(data: DataSet, tmp_path: Path) -> None:
    metrics: list[dict[str, Any]] = []
    model = tiny.model("qwen2")
    head = train(model, data, tmp_path, SHORT, progress=False, on_step=metrics.append)
    assert isinstance(head, MtpHead)
    assert metrics[-1]["loss"] < 0.97 * metrics[0]["loss"]
    names = load_file(tmp_path / "head" / "model.safetensors")
    assert "mtp.layers.0.self_attn.q_proj.weight" in names
    assert all(name.startswith("mtp.") for name in names)
    method = sooner.load_drafter(tmp_path / "head", nodes=12, top_k=4)
    made = sooner.generate(
        model, tiny.inputs("qwen2", "uneven", 3), method, max_new_tokens=15,
        eos_token_id=None, do_sample=False,
    )  # fmt: skip
    assert made.sequences.tolist() == matrix.reference("qwen2", "uneven", 3, 15).tolist()
    assert made.stats.num_accepted_draft_tokens > 0
    with pytest.raises(sooner.SoonerError, match="another target"):
        sooner.generate(
            tiny.model("qwen2", seed=5), tiny.inputs("qwen2", "text", 1), method, max_new_tokens=4
        )
