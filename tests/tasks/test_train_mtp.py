"""Training an MTP layer in a checkpoint's own layout."""

from __future__ import annotations

from pathlib import Path

import pytest
from safetensors.torch import load_file

import tiny
from sooner.methods.eagle.mtp import MtpHead
from sooner.tasks.train_draft.recording import DataSet, record
from sooner.tasks.train_draft.settings import HeadTraining
from tasks.test_train_eagle3 import train_and_read

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
    head, _ = train_and_read("qwen2", data, SHORT, tmp_path)
    assert isinstance(head, MtpHead)
    names = load_file(tmp_path / "head" / "model.safetensors")
    assert "mtp.layers.0.self_attn.q_proj.weight" in names
    assert all(name.startswith("mtp.") for name in names)
