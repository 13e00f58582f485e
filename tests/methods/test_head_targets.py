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
from sooner import EagleHead
from sooner.methods.eagle import Eagle3Head, target_print
from sooner.methods.eagle.matrices import sample_matrices
from sooner.methods.trained import method_of
from sooner.models import adapt
from sooner.tasks.act.policy import load


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
        ({"speculators_model_type": "dflash2"}, (), "is DFlash2: its tokens depend"),
        ({"dflash_config": {"selector_rank": 256}}, (), "is DFlash2: "),
        ({"architectures": ["DominoDraftModel"]}, (), "is Domino: "),
        ({"architectures": ["DSparkDraftModel"]}, (), "is DSpark: "),
        ({"dflash_config": {"projector_type": "dspark"}}, (), "is DSpark: "),
        ({"speculators_model_type": "peagle"}, (), "is P-EAGLE: "),
        ({"model_type": "medusa"}, (), "is Medusa: its heads are independent"),
        ({}, ("medusa_head.0.0.linear.weight",), "is Medusa: "),
        ({"speculators_model_type": "hydra"}, (), "is Hydra: "),
        ({"architectures": ["MLPSpeculatorPreTrainedModel"], "model_type": "mlp_speculator"}, (),
         "is an MLP speculator: "),
        ({"model_type": "llama"}, ("fc.weight", "layers.0.mlp.up_proj.weight"), "is an EAGLE-1"),
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
    requests: list[str] = []

    def fetch(name: str, **options: Any) -> str:
        requests.append(name)
        if name == "org/none":
            raise OSError("404")
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    monkeypatch.setattr("sooner.methods.trained.hub_problem", lambda: None)
    assert isinstance(sooner.load_drafter("org/head"), sooner.Eagle)
    with pytest.raises(sooner.SoonerError, match="'org/none' is no folder here"):
        sooner.load_drafter("org/none")
    assert requests == ["org/head", "org/none"]


FAMILIES = ("llama", "qwen2_5_vl", "openvla", "hunyuan_vl")
RANK = 8


def layers(model: Any) -> Any:
    return model.get_decoder().layers


def matrices(layer: Any) -> list[torch.nn.Linear]:
    return [module for module in layer.modules() if type(module) is torch.nn.Linear]


def low_rank(weight: torch.Tensor, size: float, seed: int) -> torch.Tensor:
    """An update of rank 8 whose norm is `size` of the matrix's."""
    generator = torch.Generator().manual_seed(seed)
    up, down = (torch.randn(shape, generator=generator) for shape in
                ((weight.shape[0], RANK), (RANK, weight.shape[1])))  # fmt: skip
    update = up @ down
    return size * update * weight.norm() / update.norm()


def in_eight_bits(model: Any) -> Any:
    """A copy whose decoder's matrices are rounded to int8, a scale a row."""
    rounded = copy.deepcopy(model)
    for layer in layers(rounded):
        for module in matrices(layer):
            largest = module.weight.data.abs().amax(1, keepdim=True)
            step = largest.clamp(min=1e-9) / 127  # silent layers are zeros
            module.weight.data = (module.weight.data / step).round() * step
    return rounded


def is_refused(head: EagleHead, model: Any) -> bool:
    return bool(target_print.differences(head.config.target, adapt(model)))


# Fine-tuned targets


@pytest.mark.parametrize("family", FAMILIES)
def test_a_merged_lora_in_any_matrix_of_any_layer_is_refused(family: str) -> None:
    head, model = tiny.head(family), copy.deepcopy(tiny.model(family))
    assert not is_refused(head, model)
    number = 0
    for layer in layers(model):
        for module in matrices(layer):
            number += 1
            before = module.weight.data
            module.weight.data = before + low_rank(before, 0.01, number)
            assert is_refused(head, model), f"matrix {number}"
            module.weight.data = before
    assert number >= 3 * 6
    assert not is_refused(head, model), "all were put back"


@pytest.mark.parametrize("wrapped", ["injected", "model"])
@pytest.mark.parametrize("family", ["llama", "qwen2_5_vl", "openvla"])
def test_a_lora_that_peft_wraps_is_refused_in_any_layer(family: str, wrapped: str) -> None:
    peft = pytest.importorskip("peft")
    head = tiny.head(family)
    for number in range(3):
        model = copy.deepcopy(tiny.model(family))
        config = peft.LoraConfig(
            r=RANK, lora_alpha=RANK, target_modules=["q_proj", "v_proj"],
            layers_to_transform=[number], layers_pattern="layers",
        )  # fmt: skip
        if wrapped == "model":
            model = peft.get_peft_model(model, config)
        else:
            peft.inject_adapter_in_model(config, model)
        added = [parameter for name, parameter in model.named_parameters() if "lora_B" in name]
        assert len(added) >= 2
        assert not is_refused(head, model.eval()), "an adapter of zeros changes nothing"
        for parameter in added:
            torch.nn.init.normal_(parameter, std=0.02)
        assert is_refused(head, model), f"layer {number}"


@pytest.mark.parametrize("family", ["llama", "qwen3_vl"])
def test_a_changed_norm_is_refused(family: str) -> None:
    model = copy.deepcopy(tiny.model(family))
    for layer in layers(model):
        weight = layer.post_attention_layernorm.weight
        weight.data *= 1.02
        assert is_refused(tiny.head(family), model)
        weight.data /= 1.02


def test_a_head_that_kept_no_samples_of_its_target_is_refused() -> None:
    """As sooner 0.1 wrote them."""
    head = EagleHead.for_target(tiny.model("llama"))
    del head.config.target["matrices"]
    with pytest.raises(sooner.SoonerError, match="knows too little of its target"):
        head.check(adapt(tiny.model("llama")))


def test_what_is_no_weight_shows_in_the_logits_of_the_probe() -> None:
    model = copy.deepcopy(tiny.model("llama"))
    for layer in layers(model):
        layer.self_attn.scaling *= 4
    with pytest.raises(sooner.SoonerError, match="probe logits are off by"):
        tiny.head("llama").check(adapt(model))


def test_a_run_is_refused_before_it_begins() -> None:
    model = copy.deepcopy(tiny.model("llama"))
    module = layers(model)[1].self_attn.q_proj
    module.weight.data += low_rank(module.weight.data, 0.02, 0)
    with pytest.raises(sooner.SoonerError, match=r"layers\.1\.self_attn\.q_proj is off by"):
        sooner.generate(
            model, tiny.inputs("llama", "text", 1), sooner.Eagle(tiny.head("llama")),
            max_new_tokens=4,
        )  # fmt: skip


# The same target in another format


@pytest.mark.parametrize("family", FAMILIES)
def test_the_same_target_in_any_format_of_eight_bits_or_more_is_accepted(family: str) -> None:
    head, model = tiny.head(family), tiny.model(family)
    for dtype in (torch.bfloat16, torch.float16):
        head.check(adapt(copy.deepcopy(model).to(dtype)))
        head.check(adapt(in_eight_bits(model).to(dtype)))


# The samples


def test_a_module_is_read_as_its_weight() -> None:
    """Through unit vectors and directly: the same weights, and the same largest of each row."""
    adapter = adapt(copy.deepcopy(tiny.model("qwen2")))
    direct = sample_matrices(adapter, with_largest=True)

    class CustomLinear(torch.nn.Linear):
        """Not `nn.Linear` itself, so nobody knows what its weight is good for."""

    for layer in layers(adapter.model):
        for module in matrices(layer):
            module.__class__ = CustomLinear
    through = sample_matrices(adapter, with_largest=True)
    assert direct.keys() == through.keys()
    for name, target in direct.items():
        assert torch.allclose(target.weights, through[name].weights, atol=1e-6), name
        assert torch.allclose(target.largest, through[name].largest, atol=1e-6), name


def test_the_bundled_head_knows_its_target(caplog: pytest.LogCaptureFixture) -> None:
    policy = load()
    policy.head.check(policy.adapter)
    assert not caplog.text
    assert json.dumps(policy.head.config.target).count("layers.") > 100


@pytest.mark.parametrize("family", FAMILIES)
def test_a_lora_of_an_int8_target_is_refused_too(family: str) -> None:
    head, model = tiny.head(family), in_eight_bits(tiny.model(family))
    assert not is_refused(head, model)
    for number, layer in enumerate(layers(model)):
        module = matrices(layer)[number % 3]
        before = module.weight.data
        module.weight.data = before + low_rank(before, 0.03, number)
        assert is_refused(head, model), f"layer {number}"
        module.weight.data = before
