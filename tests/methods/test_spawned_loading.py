"""A spawned draft's weights: loaded again, handed over, or refused."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch

import method_matrix as matrix
import sooner
import tiny
from methods.children import children
from methods.spawned_drafts import FAMILY, NEW, run
from sooner.methods.parallel.board import nameless_file, pack, unpack
from sooner.methods.parallel.standing import loader

pytestmark = pytest.mark.slow


def test_what_cannot_be_loaded_is_reported_once_in_a_line(tmp_path: Path) -> None:
    """A folder that is gone: decoding goes on, and nobody tries again at every run."""
    draft = copy.deepcopy(tiny.noisy(FAMILY)).to("meta")
    draft.name_or_path = str(tmp_path / "gone")
    method = sooner.ParallelVLM(draft, prune=0, placement="spawn", draft_device="cpu")
    notes = []
    for _ in range(2):
        made = run(method, FAMILY, "video")
        assert torch.equal(made.sequences, matrix.reference(FAMILY, "video", 1, NEW))
        (note,) = made.stats.notes
        assert made.stats.alarms == {"worker": 1}
        notes.append(note)
    assert notes[0] == notes[1]
    assert "can't be loaded" in note
    assert "gone" in note
    assert "\n" not in note
    engine = sooner.Engine(tiny.model(FAMILY), method)
    engine.add_request(tiny.inputs(FAMILY, "video", 1), max_new_tokens=NEW, do_sample=False)
    engine.run()
    assert engine.alarms == {"worker": 1}, "counted before the engine's request began"
    assert not children()


# Without a process of its own, or with one of another script's.


def test_a_source_loads_what_was_loaded(tmp_path: Path) -> None:
    tiny.noisy(FAMILY).to(torch.float32).save_pretrained(tmp_path)
    draft = type(tiny.noisy(FAMILY)).from_pretrained(
        tmp_path, dtype=torch.bfloat16, attn_implementation="eager"
    )
    empty = copy.deepcopy(draft).to("meta")
    empty.name_or_path = str(tmp_path)
    loaded = loader(empty)(torch.device("cpu"))
    assert loaded.dtype == torch.bfloat16
    assert loaded.config._attn_implementation == "eager"
    assert not loaded.training
    tensors = loaded.state_dict()
    assert all(torch.equal(tensor, tensors[name]) for name, tensor in draft.state_dict().items())


def test_quantized_weights_are_loaded_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    """Quantised on loading: the same config again, straight onto the device."""
    arguments: dict[str, Any] = {}
    draft = copy.deepcopy(tiny.noisy("llama"))
    draft.name_or_path = "hub/name"
    draft.config._commit_hash = "abc"
    draft.hf_quantizer = Quantizer()

    def from_pretrained(name: str, **options: Any) -> Any:
        arguments.update(options, name=name)
        return draft

    monkeypatch.setattr(type(draft), "from_pretrained", from_pretrained)
    loader(draft)(torch.device("cpu"))
    assert arguments == {
        "name": "hub/name", "revision": "abc", "dtype": torch.float32,
        "attn_implementation": "sdpa", "quantization_config": "four bits",
        "device_map": {"": torch.device("cpu")},
    }  # fmt: skip


class Quantizer:
    pre_quantized = False
    quantization_config = "four bits"


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_a_model_in_memory_is_handed_over_whole(family: str) -> None:
    """One that has run carries local functions, and must travel all the same."""
    draft = copy.deepcopy(tiny.noisy(family))
    kind = "text" if family in tiny.TEXT_FAMILIES else "image"
    inputs = tiny.inputs(family, kind)
    with torch.inference_mode():
        expected = draft(**inputs).logits
    with nameless_file() as file:
        pack(loader(draft), file)
        loaded = unpack(file.fileno())(torch.device("cpu"))
    with torch.inference_mode():
        assert torch.equal(loaded(**inputs).logits, expected)
    assert loaded.generation_config.eos_token_id == tiny.EOS
