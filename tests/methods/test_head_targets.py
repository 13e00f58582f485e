"""What folders hold a drafter, and that a head is refused by every target but its own."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

import sooner
import tiny
from published_heads import write_eagle3
from sooner.methods.eagle.eagle3 import Eagle3Head
from sooner.methods.trained import method_of
from sooner.models import adapt
from sooner.tasks.act.policy import Policy


def test_the_files_tell_what_a_drafter_is(tmp_path: Path) -> None:
    tiny.head("llama").save_pretrained(tmp_path / "own")
    write_eagle3(tmp_path / "specforge")
    write_eagle3(tmp_path / "speculators", "speculators")
    write_eagle3(tmp_path / "safeai", architectures=["LlamaForCausalLM"])  # its first heads
    kinds = {"own": sooner.EagleHead, "specforge": Eagle3Head, "speculators": Eagle3Head,
             "safeai": Eagle3Head}  # fmt: skip
    for name, kind in kinds.items():
        method = sooner.load_drafter(tmp_path / name, nodes=7)
        assert isinstance(method, sooner.Eagle)
        assert type(method.head) is kind
        assert method.nodes == 7
        assert method_of(tmp_path / name) == "eagle"


def folder(path: Path, config: dict[str, Any], *names: str) -> Path:
    (path / "config.json").write_text(json.dumps(config))
    if names:
        save_file({name: torch.ones(1) for name in names}, path / "model.safetensors")
    return path


@pytest.mark.parametrize(
    ("config", "names", "message"),
    [
        ({"speculators_model_type": "peagle"}, (), "is P-EAGLE, which is not run; .* would take"),
        ({"model_type": "medusa"}, (), "is Medusa, "),
        ({}, ("medusa_head.0.0.linear.weight",), "is Medusa, "),
        ({"speculators_model_type": "hydra"}, (), "is Hydra, "),
        ({"fork_token_id": 7}, ("language_model.mtp.fc.weight",), "is P-MTP, "),
        ({"architectures": ["MLPSpeculatorPreTrainedModel"], "model_type": "mlp_speculator"}, (),
         "is an MLP speculator, "),
        ({"model_type": "llama"}, ("model.norm.weight",), "no drafter that is known; known: "),
    ],
)  # fmt: skip
def test_unknown_kinds_are_refused_by_name(
    config: dict[str, Any], names: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    with pytest.raises(sooner.UnsupportedError, match=message):
        sooner.load_drafter(folder(tmp_path, config, *names))


def test_what_is_no_drafter_is_reported_in_a_line(tmp_path: Path) -> None:
    with pytest.raises(sooner.SoonerError, match=r"no readable config\.json"):
        sooner.load_drafter(tmp_path / "nothing")
    (tmp_path / "config.json").write_text("[1]")
    with pytest.raises(sooner.SoonerError, match="no JSON object"):
        sooner.load_drafter(tmp_path)
    write_eagle3(tmp_path)
    with pytest.raises(sooner.SoonerError, match=r"run by Eagle: .*'windows'"):
        sooner.load_drafter(tmp_path, windows=3)
    (tmp_path / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(sooner.SoonerError, match="can't be read"):
        sooner.load_drafter(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(sooner.SoonerError, match=r"no model\.safetensors and no pytorch_model"):
        sooner.load_drafter(tmp_path)


def test_a_name_is_fetched_from_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    write_eagle3(tmp_path)
    write_eagle3(tmp_path / "inner")
    requests: list[str] = []
    patterns: list[str] = []

    def fetch(name: str, **options: Any) -> str:
        requests.append(name)
        patterns.append(options["allow_patterns"][0])
        if name == "org/none":
            raise OSError("404")
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    monkeypatch.setattr("sooner.methods.trained.hub_problem", lambda: None)
    assert isinstance(sooner.load_drafter("org/head"), sooner.Eagle)
    assert isinstance(sooner.load_drafter("org/model/inner"), sooner.Eagle)
    with pytest.raises(sooner.SoonerError, match="'org/none' is no folder here"):
        sooner.load_drafter("org/none")
    assert requests == ["org/head", "org/model", "org/none"]
    assert patterns == ["*.json", "inner/*.json", "*.json"], "of a folder, nothing else is fetched"


FAMILIES = ("llama", "qwen2_5_vl", "openvla", "hunyuan_vl")


def layers(model: Any) -> Any:
    return model.get_decoder().layers


def matrices(layer: Any) -> list[torch.nn.Linear]:
    return [module for module in layer.modules() if type(module) is torch.nn.Linear]


def in_eight_bits(model: Any) -> Any:
    """A copy whose decoder's matrices are rounded to int8, a scale a row."""
    rounded = copy.deepcopy(model)
    for layer in layers(rounded):
        for module in matrices(layer):
            largest = module.weight.data.abs().amax(1, keepdim=True)
            step = largest.clamp(min=1e-9) / 127  # silent layers are zeros
            module.weight.data = (module.weight.data / step).round() * step
    return rounded


def test_another_computation_shows_in_the_logits_of_the_probe() -> None:
    model = copy.deepcopy(tiny.model("llama"))
    for layer in layers(model):
        layer.self_attn.scaling *= 4
    with pytest.raises(sooner.SoonerError, match="probe logits are off by"):
        tiny.head("llama").check(adapt(model))


@pytest.mark.parametrize("family", FAMILIES)
def test_the_same_target_in_any_format_of_eight_bits_or_more_is_accepted(family: str) -> None:
    head, model = tiny.head(family), tiny.model(family)
    for dtype in (torch.bfloat16, torch.float16):
        head.check(adapt(copy.deepcopy(model).to(dtype)))
        head.check(adapt(in_eight_bits(model).to(dtype)))


def test_the_bundled_head_knows_its_target() -> None:
    policy = Policy.load()
    policy.head.check(policy.adapter)
    assert policy.head.config.target["hidden_size"] == policy.adapter.text_config.hidden_size
