"""Models are checked before their weights are read, and refused in one line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedConfig, PreTrainedModel

import tiny
from sooner.errors import SoonerError
from sooner.tasks import loading
from sooner.tasks.loading import load_pair


@pytest.fixture
def no_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading weights is a failure."""

    def fail(*args: object, **kwargs: object) -> None:
        raise AssertionError("weights were read")

    monkeypatch.setattr(PreTrainedModel, "from_pretrained", fail)


def changed(folder: Path, copy: Path, **values: object) -> Path:
    """A checkpoint folder with other values in its config."""
    shutil.copytree(folder, copy)
    config = copy / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | values))
    return copy


def test_a_pair(target_folder: Path, poor_folder: Path) -> None:
    pair = load_pair(str(target_folder), str(poor_folder))
    assert pair.draft is not None
    for loaded in (pair.target, pair.draft):
        assert loaded.model.dtype == torch.float32
        assert loaded.model.config.get_text_config()._attn_implementation == "sdpa"
        assert not loaded.model.training
    assert pair.target.model is not pair.draft.model
    assert pair.miniature is None
    assert load_pair(str(target_folder), dtype="bfloat16").target.model.dtype == torch.bfloat16


def test_a_text_only_draft(tmp_path: Path, target_folder: Path) -> None:
    text = tiny.model("qwen2", vocab=192)
    text.save_pretrained(tmp_path / "text")
    loading.AutoTokenizer.from_pretrained(target_folder).save_pretrained(tmp_path / "text")
    pair = load_pair(str(target_folder), str(tmp_path / "text"))
    assert pair.draft is not None
    assert pair.draft.is_text
    assert pair.draft.tokenizer.get_vocab() == pair.target.tokenizer.get_vocab()


@pytest.mark.usefixtures("no_weights")
class TestRefused:
    @pytest.mark.parametrize(
        ("model_type", "is_draft", "message"),
        [
            ("llava_onevison", False, "did you mean 'llava_onevision'"),
            ("mamba", True, "type 'mamba', which is not supported"),
            ("qwen2", False, "reads text only"),
        ],
    )
    def test_type(
        self, tmp_path: Path, target_folder: Path, model_type: str, is_draft: bool, message: str
    ) -> None:
        odd = str(changed(target_folder, tmp_path / "odd", model_type=model_type))
        with pytest.raises(SoonerError, match=message):
            load_pair(*((str(target_folder), odd) if is_draft else (odd,)))

    def test_no_such_folder(self) -> None:
        with pytest.raises(SoonerError, match=r"model folder '\./gone' does not exist"):
            load_pair("./gone")

    def test_folder_without_config(self, tmp_path: Path) -> None:
        with pytest.raises(SoonerError, match="config"):
            load_pair(str(tmp_path))

    def test_hub_out_of_reach(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def unreachable(*args: object, **kwargs: object) -> None:
            raise OSError("We couldn't connect to the hub\nmore text")

        monkeypatch.setattr(PreTrainedConfig, "get_config_dict", unreachable)
        monkeypatch.setattr("sooner.models.model_types.hub_problem", lambda: None)
        with pytest.raises(SoonerError, match="check the name, your connection") as caught:
            load_pair("some/model")
        assert "\n" not in str(caught.value)

    def test_device(self, target_folder: Path) -> None:
        with pytest.raises(SoonerError, match="unknown device 'gpu'"):
            load_pair(str(target_folder), device="gpu")
        with pytest.raises(SoonerError, match="is not there"):
            load_pair(str(target_folder), device="cuda:99")

    def test_dtype(self, target_folder: Path) -> None:
        with pytest.raises(SoonerError, match="did you mean 'float16'"):
            load_pair(str(target_folder), dtype="floot16")


def test_broken_weights(tmp_path: Path, target_folder: Path) -> None:
    shutil.copytree(target_folder, tmp_path / "broken")
    weights = tmp_path / "broken" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(SoonerError, match="can't be loaded"):
        load_pair(str(tmp_path / "broken"))
    weights.unlink()
    with pytest.raises(SoonerError, match=r"the folder has no weights \(\*\.safetensors\)"):
        load_pair(str(tmp_path / "broken"))


def test_other_tokenizer(tmp_path: Path, target_folder: Path, poor_folder: Path) -> None:
    shutil.copytree(poor_folder, tmp_path / "other")
    path = tmp_path / "other" / "tokenizer.json"
    data = json.loads(path.read_text())
    vocab = data["model"]["vocab"]
    vocab["red"], vocab["blue"] = vocab["blue"], vocab["red"]
    path.write_text(json.dumps(data))
    with pytest.raises(SoonerError, match="different tokenizers"):
        load_pair(str(target_folder), str(tmp_path / "other"))
