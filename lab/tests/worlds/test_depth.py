"""Layers that add nothing are put in on loading: not stored, not trained, and not felt."""

from __future__ import annotations

import copy
import functools
import hashlib
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForImageTextToText, JanusForConditionalGeneration

import sooner
from sooner import miniatures
from sooner.errors import SoonerError
from sooner.models import silent
from sooner.models.openvla.model import OpenVLAForActionPrediction
from sooner.tasks.act import Policy
from sooner.tasks.imagine.loading import load_drawing_model
from sooner.tasks.loading import load_pair
from tasks import fixtures

MIB = 2**20
DEPTHS = {"document": (48, 8), "image": (24, 6), "robot": (20, 6), "video": (28, 4)}
"""Layers that run and layers that are trained."""
DIGESTS = {
    "document": "2527c025634bb0b42c56119098d70a4d8080735c3c55e527d9cb7a565bc4e628",
    "image": "ddf7236b21344ce719b7a22f0f450a9f3c7caec08657b34423dcf31d4884c8be",
    "robot": "c82c3248f1d7692c097c3a10cc0a49a6c2ad6725dc4235409ec9913e7be93c0c",
    "video": "e375d79e5cf17cce607734d0cb491e310cc769633c21d72ef10ea14b430f64a6",
}
"""Bytes of the trained weights, taken while the silent layers were still stored between them."""
CLASSES: dict[str, Any] = {
    "document": AutoModelForImageTextToText,
    "image": JanusForConditionalGeneration,
    "robot": OpenVLAForActionPrediction,
    "video": AutoModelForImageTextToText,
}


@functools.cache
def loaded(name: str) -> Any:
    """A bundled target by the way that the commands load it, with its silent layers."""
    if name == "image":
        return load_drawing_model(None, "image", device="cpu").model
    if name == "robot":
        return Policy.load(device="cpu").model
    return load_pair(miniature=name, device="cpu", dtype="float32").target.model


def folder(name: str) -> Path:
    return miniatures.find(name).target


def test_the_tracked_tree_is_small() -> None:
    """A copy of it has to fit where 64 MiB do, with what is built beside it."""
    root = Path(sooner.__file__).parents[2]
    if not (root / ".git").exists():
        pytest.skip("not a git checkout")
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=root, capture_output=True, check=True, text=True
    ).stdout
    files = [root / name for name in listed.split("\0") if name and (root / name).is_file()]
    size = sum(path.stat().st_size for path in files)
    assert size < 35 * MIB, f"tracked files are {size / MIB:.1f} MiB; 35 is the limit"


def test_all_weights_together_are_small() -> None:
    files = list(folder("video").parents[2].rglob("*.safetensors"))
    size = sum(path.stat().st_size for path in files)
    assert size <= 23 * MIB, f"weights are {size / MIB:.1f} MiB; 23 is the limit"


def stored_weights(folder: Path) -> dict[str, torch.Tensor]:
    """All tensors of a checkpoint by their names, wherever its index says that they lie."""
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        return load_file(folder / "model.safetensors")
    places = json.loads(index.read_text())["weight_map"]
    files = {name: load_file(folder / name) for name in set(places.values())}
    return {tensor: files[name][tensor] for tensor, name in places.items()}


@pytest.mark.parametrize("name", DEPTHS)
def test_what_was_trained_is_as_it_was(name: str) -> None:
    digest = hashlib.sha256()
    for key, value in sorted(stored_weights(folder(name)).items()):
        digest.update(key.encode())
        digest.update(value.numpy().tobytes())
    assert digest.hexdigest() == DIGESTS[name]


@pytest.mark.parametrize("name", DEPTHS)
def test_the_commands_load_the_deep_model_and_cards_have_both_numbers(name: str) -> None:
    run, trained = DEPTHS[name]
    model = loaded(name)
    layers = model.get_decoder().layers
    assert (len(layers), model.config.get_text_config().num_hidden_layers) == (run, run)
    depth = silent.read_depth(folder(name))
    assert depth is not None
    for place, layer in enumerate(layers):
        adds = bool(layer.self_attn.o_proj.weight.any() or layer.mlp.down_proj.weight.any())
        assert adds == (place in depth.trained)
        assert layer.self_attn.layer_idx == place
    card = json.loads((folder(name) / "card.json").read_text())
    assert (card["layers"], card["trained_layers"]) == (run, trained)
    assert card["parameters"] == sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("name", DEPTHS)
def test_transformers_alone_loads_an_equal_model(name: str) -> None:
    """Bit for bit: a silent layer adds a zero to the residual stream."""
    deep, options = loaded(name), {"dtype": torch.float32, "attn_implementation": "sdpa"}
    shallow = CLASSES[name].from_pretrained(folder(name), **options).eval()
    assert len(shallow.get_decoder().layers) == DEPTHS[name][1]
    width = deep.config.get_text_config().hidden_size
    states = torch.randn(2, 24, width, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        outputs = [
            model.get_decoder()(inputs_embeds=states).last_hidden_state for model in (deep, shallow)
        ]
    assert torch.equal(*outputs)


def note(path: Path, run: int, trained: list[int]) -> None:
    """Writes where the trained layers of a checkpoint are."""
    data = {"layers": {"run": run, "trained": trained}}
    (path / "sooner.json").write_text(json.dumps(data))


def test_a_saved_tiny_model_comes_back_deep(tmp_path: Path) -> None:
    torch.manual_seed(0)
    fixtures.save(fixtures.random_model(layers=3), tmp_path)
    assert silent.read_depth(tmp_path) is None
    note(tmp_path, 7, [0, 3, 5])
    plain = AutoModelForImageTextToText.from_pretrained(tmp_path, dtype=torch.float32).eval()
    deep = silent.as_run(copy.deepcopy(plain), tmp_path)
    assert len(deep.get_decoder().layers) == 7
    ids = torch.randint(6, 150, (2, 9))
    with torch.no_grad():
        made = deep(input_ids=ids, output_hidden_states=True, use_cache=True)
        assert torch.equal(made.logits, plain(input_ids=ids).logits)
    assert len(made.hidden_states) == 8
    assert made.past_key_values.get_seq_length(6) == 9


@pytest.mark.parametrize(
    "text", ["{", '{"layers": {"run": 4}}', '{"layers": {"run": 4, "trained": [1, 0]}}', "[]"]
)
def test_a_broken_note_is_a_single_line(text: str, tmp_path: Path) -> None:
    (tmp_path / "sooner.json").write_text(text)
    with pytest.raises(SoonerError, match="can't be used"):
        silent.read_depth(tmp_path)


def test_a_note_of_other_weights_is_a_single_line(tmp_path: Path) -> None:
    note(tmp_path, 5, [0, 3])
    with pytest.raises(SoonerError, match="the decoder has 3 layers; 2 are to be placed"):
        silent.as_run(fixtures.random_model(layers=3), tmp_path)
