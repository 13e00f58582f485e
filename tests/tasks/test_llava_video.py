"""LLaVA-Video and LongVILA from folders as published, tiny, against their layouts written out."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor
from torch.nn.functional import gelu, interpolate, layer_norm, linear
from transformers import AutoConfig, AutoModelForCausalLM, SiglipVisionConfig, SiglipVisionModel

import sooner
from commands import Run, records
from commands import run as run
from sooner.errors import SoonerError
from sooner.models import adapt
from sooner.sparse.modality import VIDEO, PromptLayout
from sooner.sparse.table import PatternTable
from sooner.tasks.clip import prepare
from sooner.tasks.loading import load_pair
from sooner.tasks.settings import CaptionSettings
from tasks import videos

NEW, WIDTH, HIDDEN = 8, 32, 24
ASK = CaptionSettings(prompt="What happens?", frames=4, max_new_tokens=NEW)
CHATML = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
LLAMA_3 = (
    "{% for message in messages %}{% if loop.first %}{{ '<|begin_of_text|>' }}{% endif %}"
    "{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' }}"
    "{{ message['content'] | trim + '<|eot_id|>' }}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"
)
MARKS = {
    CHATML: ("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
    LLAMA_3: ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>",
              "<|reserved_special_token_250|>"),
}  # fmt: skip
TEXT: dict[str, Any] = {
    "hidden_size": HIDDEN, "intermediate_size": 40, "num_hidden_layers": 2, "rope_theta": 1e6,
    "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 4096,
    "tie_word_embeddings": False, "torch_dtype": "float32", "vocab_size": 261,
}  # fmt: skip
LLAVA: dict[str, Any] = {
    "architectures": ["LlavaQwenForCausalLM"], "model_type": "llava", "add_faster_video": False,
    "add_time_instruction": True, "force_sample": True, "image_aspect_ratio": "anyres_max_9",
    "mm_newline_position": "grid", "mm_patch_merge_type": "spatial_unpad", "rope_scaling": None,
    "mm_projector_type": "mlp2x_gelu", "mm_resampler_type": None, "mm_spatial_pool_stride": 2,
    "mm_vision_tower": "google/siglip-so400m-patch14-384", "use_sliding_window": False,
    "mm_spatial_pool_mode": "bilinear", "mm_vision_select_layer": -2, **TEXT,
}  # fmt: skip
VILA_15: dict[str, Any] = {
    "architectures": ["LlavaLlamaModel"], "model_type": "llava_llama", "llm_cfg": {}, "s2": False,
    "image_aspect_ratio": "resize", "mm_projector_cfg": {}, "mm_vision_select_layer": -2,
    "mm_vision_select_feature": "cls_patch", "num_video_frames": 8, "vision_tower_cfg": {},
}  # fmt: skip
VILA = VILA_15 | {
    "image_aspect_ratio": "dynamic", "video_max_tiles": 1, "dynamic_s2": False, "fps": 0.0,
    "video_encoder": '{"_target_": "llava.model.encoders.BasicVideoEncoder"}',
}  # fmt: skip
START = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n"
END = "<|im_end|>\n<|im_start|>assistant\n"
TIMES = (
    "\nThe video lasts for 3.00 seconds, and 4 frames are uniformly sampled from it. These frames "
    "are located at 0.00s,0.90s,1.90s,2.90s.Please answer the following questions related to this "
    "video.\n"
)
ROLE, COLON = "<|eot_id|><|start_header_id|>", "<|end_header_id|>\n\n"
SYSTEM = (
    "You are a helpful language and vision assistant. You are able to understand the visual content"
    " that the user provides, and assist the user with a variety of tasks using natural language."
)
CASES = {
    "LLaVA-Video-7B-Qwen2": (LLAVA, 210, START + TIMES),
    "averaged": (LLAVA | {"mm_spatial_pool_mode": "average"}, 182, START + TIMES),
    "qwen2-7b-longvila-256f": (VILA, 10, START),
    "Llama-3-LongVILA-8B-256Frames": (
        VILA_15, 10, f"<|begin_of_text|>{ROLE[10:]}system{COLON}{SYSTEM}{ROLE}user{COLON}"),
}  # fmt: skip
"""Config, tokens of a frame, and the prompt without placeholders up to the question."""


def write(folder: Path, config: dict[str, Any]) -> SimpleNamespace:
    """Files, names and keys as published, with tiny widths; returns what they hold."""
    torch.manual_seed(0)
    is_vila, kind = "llm_cfg" in config, "llama" if "Llama" in folder.name else "qwen2"
    vision: dict[str, Any] = {
        "hidden_size": WIDTH, "image_size": 70 if is_vila else 384, "num_hidden_layers": 3,
        "intermediate_size": 48, "num_attention_heads": 16, "patch_size": 14,
    }  # fmt: skip
    tower = SiglipVisionModel(SiglipVisionConfig(**vision)).eval()
    text = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **TEXT)).eval()
    for module in (tower, text):
        for name, weights in module.named_parameters():
            weights.data.normal_(0, 0.5 if "embed" in name else 0.2)
    shapes = {"2": (HIDDEN, 4 * WIDTH), "4": (HIDDEN, HIDDEN), "1": (4 * WIDTH,)} if is_vila else {
        "0": (HIDDEN, WIDTH), "2": (HIDDEN, HIDDEN)}  # fmt: skip
    projector = {f"{at}.weight": torch.randn(shape) / 4 for at, shape in shapes.items()}
    projector |= {f"{at}.bias": torch.randn(shape[0]) / 4 for at, shape in shapes.items()}
    seen = {f"vision_model.{name}": value for name, value in tower.state_dict().items()}
    layers = {f"layers.{name}": value for name, value in projector.items()}
    parts = {"llm": text.state_dict(), "vision_tower": seen, "mm_projector": layers}
    newline = torch.randn(HIDDEN)
    if not is_vila:
        parts = {"": {**text.state_dict(), "model.image_newline": newline}}
        parts[""] |= {f"model.mm_projector.{name}": value for name, value in projector.items()}
        left = {name: seen[name] for name in seen if not re.search(r"layers\.2\.|\.head\.", name)}
        parts[""] |= {f"model.vision_tower.vision_tower.{name}": left[name] for name in left}
    configs = {
        "": config, "llm": {"model_type": kind, **TEXT},
        "vision_tower": {"model_type": "siglip_vision_model", **vision},
        "mm_projector": {"model_type": "v2l_projector", "mm_projector_type": "mlp_downsample"},
    }  # fmt: skip
    for part in {"", *parts}:
        (folder / part).mkdir(parents=True, exist_ok=True)
        (folder / part / "config.json").write_text(json.dumps(configs[part]))
    for part, state in parts.items():
        save_file({name: value.clone() for name, value in state.items()},
                  folder / part / "model.safetensors", {"format": "pt"})  # fmt: skip
    words = sorted(pre_tokenizers.ByteLevel.alphabet())
    whole = Tokenizer(models.BPE({word: number for number, word in enumerate(words)}, []))
    whole.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    template = LLAMA_3 if kind == "llama" else CHATML
    whole.add_special_tokens(list(MARKS[template]))
    place = folder / "llm" if is_vila else folder
    whole.save(str(place / "tokenizer.json"))
    info = {"chat_template": template, "tokenizer_class": "PreTrainedTokenizerFast"}
    info |= {"bos_token": MARKS[template][0]} if kind == "llama" else {}
    (place / "tokenizer_config.json").write_text(json.dumps(info))
    newline = text.get_input_embeddings().weight[words.index("Ċ")] if is_vila else newline
    return SimpleNamespace(folder=folder, config=config, text=text, tower=tower,
                           projector=projector, newline=newline)  # fmt: skip


@torch.no_grad()
def features(model: SimpleNamespace, pixels: Tensor) -> Tensor:
    """What stands for frames `[frames, 3, side, side]`, `[tokens, hidden]`."""
    states, rows, weights = model.tower.embeddings(pixels), [], model.projector
    for layer in model.tower.encoder.layers[:-1]:
        states = layer(states, attention_mask=None)
    first, last = ("2", "4") if "llm_cfg" in model.config else ("0", "2")

    def project(values: Tensor) -> Tensor:
        hidden = gelu(linear(values, weights[f"{first}.weight"], weights[f"{first}.bias"]))
        return linear(hidden, weights[f"{last}.weight"], weights[f"{last}.bias"])

    for frame in states:
        if first == "2":
            grid = torch.zeros(6, 6, WIDTH)
            grid[:5, :5] = frame.view(5, 5, WIDTH)
            for outer in range(0, 6, 2):
                for inner in range(0, 6, 2):
                    row, column = (
                        (outer, inner) if "video_encoder" in model.config else (inner, outer)
                    )
                    square = grid[row : row + 2, column : column + 2].reshape(-1)
                    square = layer_norm(
                        square, square.shape, weights["1.weight"], weights["1.bias"]
                    )
                    rows.append(project(square)[None])
            rows.append(model.newline[None])
            continue
        tokens = project(frame).view(27, 27, HIDDEN)
        if model.config["mm_spatial_pool_mode"] == "bilinear":
            pooled = interpolate(tokens.permute(2, 0, 1)[None], (14, 14), mode="bilinear")[0]
        else:
            pooled = tokens[:26, :26].view(13, 2, 13, 2, HIDDEN).mean((1, 3)).permute(2, 0, 1)
        for row in pooled.permute(1, 2, 0):
            rows += [row, model.newline[None]]
    return torch.cat(rows)


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return videos.write(tmp_path_factory.mktemp("film") / "clip.mp4")


@pytest.mark.parametrize("name", CASES)
def test_a_clip_is_read_as_the_published_layout_has_it(
    name: str, film: Path, tmp_path: Path
) -> None:
    config, frame, start = CASES[name]
    published = write(tmp_path / name, config)
    pair = load_pair(str(published.folder), device="cpu")
    clip, model, tokenizer = prepare(film, pair, ASK), pair.target.model, pair.target.tokenizer
    assert clip.frames.indices == [0, 10 - ("add_time_instruction" in config), 19, 29]
    ids = clip.inputs["input_ids"][0]
    seen = (ids == model.config.video_token_id).nonzero()[:, 0]
    assert seen.tolist() == list(range(seen[0], seen[0] + 4 * frame))
    before, after = ids[: seen[0]], ids[seen[-1] + 1 :]
    text = start + "What happens?" + (f"{ROLE}assistant{COLON}" if "Llama" in name else END)
    expected = tokenizer(text, add_special_tokens=False).input_ids
    assert torch.cat([before, after]).tolist() == expected
    embed = published.text.get_input_embeddings()
    visual = features(published, clip.inputs["pixel_values_videos"][0])
    embeds = torch.cat([embed(before), visual, embed(after)])[None]
    prompt = adapt(model).embed_prompt(clip.inputs)
    assert torch.allclose(prompt.embeds, embeds, atol=1e-5)
    layout = PromptLayout.of(prompt, 0)
    assert layout.frames[seen].tolist() == [at // frame for at in range(4 * frame)]
    assert int((layout.modality == VIDEO).sum()) == len(seen)
    options: dict[str, Any] = {"max_new_tokens": NEW, "do_sample": False}
    expected = published.text.generate(inputs_embeds=embeds, eos_token_id=None, **options).tolist()
    model.generation_config.eos_token_id = None
    assert model.generate(**clip.inputs, **options)[:, len(ids) :].tolist() == expected
    assert sooner.generate(model, clip.inputs, sooner.PromptLookup(), **options).tokens == expected


@pytest.mark.parametrize("name", ["averaged", "qwen2-7b-longvila-256f"])
def test_commands_caption_and_search(name: str, film: Path, tmp_path: Path, run: Run) -> None:
    config, frame, _ = CASES[name]
    folder, table, out = write(tmp_path / name, config).folder, tmp_path / "p.json", tmp_path / "o"
    usual = ("--model", folder, "--frames", 4, "--threads", 1)
    done = run("search", "patterns", film, *usual, "--no-break-even", "--queries", 16, "-o", table)
    assert done.code == 0, done.err
    assert PatternTable.load(table).frame_tokens == frame
    for more, mode in ((), "exact"), (("--prefill", table), "approximate"):
        done = run("caption", film, *usual, "--max-new-tokens", 4, "-o", out, "--overwrite", *more)
        assert done.code == 0, done.err
        assert (records(out)[-1]["mode"], records(out)[-1]["tokens"]) == (mode, 4)


@pytest.mark.parametrize(
    ("name", "part", "change", "message"),
    [
        ("averaged", "", {"mm_vision_tower": "openai/clip"}, "mm_vision_tower 'openai/clip'"),
        ("averaged", "", {"mm_newline_position": "one_token"}, "only 'grid' or 'frame' is"),
        ("averaged", "", {"add_faster_video": True}, "add_faster_video 'True', which is not built"),
        ("new", "", {"dynamic_s2": True}, "dynamic_s2 'True', which is not built in"),
        ("new", "", {"video_encoder": "TSPVideoEncoder"}, "video_encoder 'TSPVideoEncoder', which"),
        ("new", "vision_tower", {"model_type": "intern_vit_6b"}, "'intern_vit_6b', which is not"),
        ("new", "mm_projector", {"mm_projector_type": "mlp_downsample_3x3_fix"}, "3x3_fix', which"),
    ],
)  # fmt: skip
def test_other_variants_are_refused_by_name(
    name: str, part: str, change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    folder = write(tmp_path / name, LLAVA if name == "averaged" else VILA).folder
    file = folder / part / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(SoonerError, match=re.escape(message)) as error:
        load_pair(str(folder), device="cpu")
    assert "\n" not in str(error.value)


def test_weights_that_are_missing_or_unknown_are_named(tmp_path: Path) -> None:
    file = write(tmp_path, LLAVA).folder / "model.safetensors"
    state = load_file(file)
    for lacks, more, message in (
        ("model.norm.weight", {}, r"lacks model\.language_model\.norm\.weight \(1 in all"),
        ("", {"faster_token": torch.ones(HIDDEN)}, r"has unknown faster_token \(1 in all"),
    ):
        save_file({n: t for n, t in state.items() if n != lacks} | more, file, {"format": "pt"})
        with pytest.raises(SoonerError, match=message):
            load_pair(str(tmp_path), device="cpu")
