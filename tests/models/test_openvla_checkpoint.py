"""Published OpenVLA checkpoints: same keys, same numbers, and refusals that name what is wrong."""

from __future__ import annotations

import json
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

import openvla_published as published
import sooner
from openvla_published import CONFIG, DINO, SIGLIP, STATS, TEXT, VOCAB, State, write
from sooner.errors import SoonerError
from sooner.models import checkpoint
from sooner.models.openvla.checkpoint import load_model, load_policy
from sooner.models.openvla.config import OpenVLAConfig
from sooner.models.openvla.model import OpenVLAForActionPrediction, renamed_projections
from sooner.models.openvla.published import moves
from sooner.tasks import loading

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def state() -> State:
    return published.published_state()


@pytest.fixture(scope="module")
def folder(state: State, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = write(tmp_path_factory.mktemp("openvla") / "published", state)
    published.tokenizer().save_pretrained(made)
    return made


@pytest.fixture(scope="module")
def model(folder: Path) -> OpenVLAForActionPrediction:
    return load_model(folder)


def picture(rows: int = 2) -> Tensor:
    return torch.randn(rows, 6, 28, 28, generator=torch.Generator().manual_seed(1))


def prompt(model: Any, words: list[int]) -> Tensor:
    return torch.tensor([[1, *[model.config.image_token_id] * 4, *words]])


@torch.no_grad()
def test_features_are_timm_s_number_for_number(
    model: OpenVLAForActionPrediction, state: State
) -> None:
    pixels = picture()
    ours = model.double().model.vision_backbone(pixels.double())
    tokens = model.model.see(pixels)
    model.float()
    for row in range(len(pixels)):
        reference = published.features(state, pixels[row])
        assert reference.shape == (4, 80)
        assert torch.allclose(ours[row], reference, rtol=1e-9, atol=1e-9)
        assert torch.allclose(
            tokens[row], published.projected(state, reference), rtol=1e-8, atol=1e-8
        )


@torch.no_grad()
def test_logits_are_llama_s_with_patches_after_the_first_token(
    model: OpenVLAForActionPrediction, state: State
) -> None:
    language = LlamaForCausalLM(LlamaConfig(**{k: v for k, v in TEXT.items() if k != "model_type"}))
    prefix = "language_model."
    weights = {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
    language.load_state_dict(weights)
    pixels, words = picture(1), [6, 7, 8, 19]
    patches = published.projected(state, published.features(state, pixels[0])).float()
    embeds = language.get_input_embeddings()(torch.tensor([1, *words]))
    embeds = torch.cat([embeds[:1], patches, embeds[1:]])[None]
    expected = language.eval()(inputs_embeds=embeds).logits
    actual = model(input_ids=prompt(model, words), pixel_values=pixels).logits
    assert torch.allclose(actual, expected, rtol=1e-4, atol=1e-4)


def test_what_is_read_fills_the_model_and_the_rest_is_named(
    model: OpenVLAForActionPrediction, state: State
) -> None:
    """Left over are the last blocks, both final norms and the pooling head."""
    used = moves(model.state_dict())
    assert used.keys() <= state.keys()
    unused = sorted(state.keys() - used.keys())
    blocks = [f"{DINO}blocks.3.", f"{SIGLIP}blocks.2.", f"{DINO}norm.", f"{SIGLIP}norm."]
    assert all(name.startswith((*blocks, f"{SIGLIP}attn_pool.")) for name in unused)
    assert {name.split("blocks")[0] for name in unused if "blocks" in name} == {DINO, SIGLIP}


def test_at_full_size_every_tensor_has_a_published_tensor() -> None:
    """ViT-L, SoViT-400m and Llama 2 7B, without a number in memory."""
    tower = {"num_attention_heads": 16, "image_size": 224, "patch_size": 14}
    config = OpenVLAConfig(
        dino_config={**tower, "hidden_size": 1024, "num_hidden_layers": 23},
        siglip_config={**tower, "hidden_size": 1152, "intermediate_size": 4304,
                       "num_hidden_layers": 26},
        text_config={"vocab_size": VOCAB},
    )  # fmt: skip
    with torch.device("meta"):
        model = OpenVLAForActionPrediction(config)
    towers = 5 + 23 * 14 + 3 + 26 * 12
    assert len(moves(model.state_dict())) == towers + 6 + 32 * 9 + 3
    assert config.siglip_patches == 256


def test_statistics_of_a_fine_tuned_checkpoint_replace_those_of_the_config(
    state: State, tmp_path: Path
) -> None:
    write(tmp_path, state)
    assert sorted(load_model(tmp_path).config.norm_stats) == ["bridge_orig", "fractal"]
    statistics = {"libero_goal": {"action": STATS, "num_transitions": 3}}
    (tmp_path / "dataset_statistics.json").write_text(json.dumps(statistics))
    assert load_model(tmp_path).config.norm_stats == statistics
    (tmp_path / "dataset_statistics.json").write_text("[")
    with pytest.raises(SoonerError, match=r"dataset_statistics\.json' is not JSON"):
        load_model(tmp_path)


def test_both_forms_load_by_their_config_and_generate_the_same(
    folder: Path, tmp_path: Path
) -> None:
    """From a published folder to tokens, without a line of its code: there is none."""
    loaded = loading.load(str(folder), CPU, torch.float32)
    pixels = torch.randint(0, 256, (2, 20, 30, 3), dtype=torch.uint8)
    inputs = loaded.processor(list(pixels.numpy()), ["Open the drawer", "push the block to the"])
    expected = loaded.model.generate(**inputs, max_new_tokens=8, do_sample=False)
    loaded.model.save_pretrained(tmp_path)
    loaded.processor.save_pretrained(tmp_path)
    again = loading.load(str(tmp_path), CPU, torch.float32)
    inputs = again.processor(list(pixels.numpy()), ["Open the drawer", "push the block to the"])
    ran = sooner.generate(again.model, inputs, sooner.PromptLookup(), max_new_tokens=8)
    assert ran.sequences.tolist() == expected.tolist()
    assert loaded.tokenizer.get_vocab() == again.tokenizer.get_vocab()


def test_a_policy_saved_by_another_transformers_loads(
    model: OpenVLAForActionPrediction, tmp_path: Path
) -> None:
    """Versions name DINOv2's projections in two ways."""
    model.save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    renames = {ours: older_name for older_name, ours in renamed_projections().items()}

    def renamed(name: str) -> str:
        for ours, older_name in renames.items():
            if ".featurizer." in name and f"{ours}." in name:
                return name.replace(f"{ours}.", f"{older_name}.")
        return name

    save_file({renamed(k): v for k, v in weights.items()}, tmp_path / "model.safetensors",
              {"format": "pt"})  # fmt: skip
    assert sum(renamed(name) != name for name in weights) in (0, 3 * 4 * 2)
    again = OpenVLAForActionPrediction.from_pretrained(tmp_path).state_dict()
    for name, tensor in model.state_dict().items():
        assert torch.equal(again[name], tensor), name


def test_a_checkpoint_on_the_hub_comes_without_its_python(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request: dict[str, Any] = {}

    def fetch(name: str, **options: Any) -> str:
        request.update(options, name=name)
        return str(folder)

    monkeypatch.setattr(checkpoint, "snapshot_download", fetch)
    model, processor = load_policy("openvla/openvla-7b", dtype=torch.float32, device_map="cpu")
    assert request["name"] == "openvla/openvla-7b"
    assert not any(fnmatch(file, kind) for kind in request["allow_patterns"]
                   for file in ("modeling_prismatic.py", "pytorch_model.bin"))  # fmt: skip
    assert model.model.vision_backbone.fused_featurizer.embeddings.position_ids.tolist() == [
        [0, 1, 2, 3]
    ]
    assert processor.patches == 4


@pytest.mark.parametrize(
    ("keeps", "more", "message"),
    [
        (lambda name: not name.startswith("projector."), {},
         r"lacks projector\.fc1\.weight, .*2 more \(6 in all"),
        (lambda name: f"{DINO}blocks.1." not in name, {},
         r"lacks .*featurizer\.blocks\.1\..* and 10 more"),
        (lambda name: True, {"action_head.weight": torch.ones(2)},
         r"has unknown action_head\.weight \(1 in all\)"),
    ],
    ids=["tensors", "block", "unknown"],
)  # fmt: skip
def test_tensors_that_do_not_fit_are_named(
    state: State, tmp_path: Path, keeps: Any, more: State, message: str
) -> None:
    write(tmp_path, {name: tensor for name, tensor in state.items() if keeps(name)} | more)
    with pytest.raises(SoonerError, match=message):
        load_model(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"timm_model_ids": ["vit_so400m_patch14_siglip_224"]}, "which are not built in"),
        ({"timm_model_ids": CONFIG["timm_model_ids"][::-1]}, "which are not built in"),
        ({"timm_override_act_layers": [None, "quick_gelu"]}, "overrides the towers"),
        ({"text_config": {"model_type": "mistral"}}, "'mistral'; only 'llama'"),
        ({"text_config": TEXT | {"intermediate_size": 28}},
         r"gate_proj\.weight of \[24, 16\], but .*\[28, 16\]"),
    ],
)  # fmt: skip
def test_what_is_not_built_is_refused(
    state: State, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    write(tmp_path, state, **change)
    with pytest.raises(SoonerError, match=message):
        load_model(tmp_path)


def test_folders_without_whole_weights_are_refused(
    state: State, model: OpenVLAForActionPrediction, tmp_path: Path
) -> None:
    with pytest.raises(SoonerError, match=r"has no config\.json"):
        load_model(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    with pytest.raises(SoonerError, match=r"lacks model\.safetensors"):
        load_model(tmp_path)
    write(tmp_path, state)
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(SoonerError, match="lacks model-00002-of-00002"):
        load_model(tmp_path)
    ours = tmp_path / "ours"
    model.save_pretrained(ours)
    published.tokenizer().save_pretrained(ours)
    weights = load_file(ours / "model.safetensors")
    del weights["model.projector.fc2.bias"]
    save_file(weights, ours / "model.safetensors", {"format": "pt"})
    with pytest.raises(SoonerError, match=r"lacks model\.projector\.fc2\.bias \(1 in all\)"):
        loading.load(str(ours), CPU, "auto")
