"""VideoChat-Flash from folders as published, tiny, against its tower, its merging and its prompt
written out."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor
from torch.nn.functional import (
    conv3d,
    gelu,
    interpolate,
    layer_norm,
    linear,
    scaled_dot_product_attention,
)
from transformers import AutoConfig, AutoModelForCausalLM

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
from tasks.test_llava_video import CHATML, END, HIDDEN, MARKS, NEW, START, TEXT, WIDTH

HEADS, CLIP, MERGED = 16, 4, 64
ENCODER = "model.vision_tower.vision_tower.encoder."
CONFIG: dict[str, Any] = {
    "architectures": ["VideoChatFlashQwenForCausalLM"], "model_type": "videochat_flash_qwen",
    "auto_map": {"AutoModel": "modeling_videochat_flash.VideoChatFlashQwenForCausalLM"},
    "frame_aspect_ratio": "square", "image_aspect_ratio": "anyres_nopad", "mm_llm_compress": False,
    "llm_compress_layer_list": [8, 16, 24], "llm_image_token_ratio_list": [1.0, 0.5, 0.25, 0.125],
    "mm_hidden_size": WIDTH, "mm_local_num_frames": 4, "mm_newline_position": "nothing",
    "mm_patch_merge_type": "spatial_nopad", "mm_pos_num_frames": 8, "rope_scaling": None,
    "mm_projector_type": "tome16_mlp_hd64", "mm_vision_select_layer": -2, **TEXT,
    "mm_vision_tower": "umt-hd-large", "vision_encode_type": "video_image",
}  # fmt: skip
YARN = {"factor": 4.0, "original_max_position_embeddings": 32768, "type": "yarn"}
SMALL = CONFIG | {"mm_vision_tower": "umt-large"}
CASES: dict[str, tuple[dict[str, Any], int, int | None, list[int]]] = {
    "VideoChat-Flash-Qwen2-7B_res448": (CONFIG, 448, 4, [3, 10, 18, 25]),
    "padded": (SMALL, 224, 6, [2, 7, 12, 17, 22, 27]),
    "VideoChat-Flash-Qwen2_5-7B-1M_res224": (
        SMALL, 224, None, [at for at in range(30) if at % 5 != 4]),
}  # fmt: skip
"""Config, side of a frame, `--frames`, and which of 30 frames in 3 seconds are seen."""


def write(folder: Path, config: dict[str, Any], system: str = "") -> SimpleNamespace:
    """Files, names and keys as published, with tiny widths; returns what they hold."""
    torch.manual_seed(0)
    text = AutoModelForCausalLM.from_config(AutoConfig.for_model("qwen2", **TEXT)).eval()
    for weights in text.parameters():
        weights.data.normal_(0, 0.5)
    shapes: dict[str, tuple[int, ...]] = {"patch_embed.proj.weight": (WIDTH, 3, 1, 16, 16)}
    biased: dict[str, tuple[int, ...]] = {
        "patch_embed.proj": (WIDTH,),
        "vision_layernorm": (WIDTH,),
    }
    for block in ("blocks.0.", "blocks.1.")[: 1 + (config != CONFIG)]:
        shapes |= {block + "attn.qkv.weight": (3 * WIDTH, WIDTH)}
        shapes |= {block + f"attn.{name}_bias": (WIDTH,) for name in "qv"}
        biased |= {block + "attn.proj": (WIDTH, WIDTH), block + "mlp.fc1": (4 * WIDTH, WIDTH)}
        biased |= {block + "mlp.fc2": (WIDTH, 4 * WIDTH)}
        biased |= {block + f"norm{number}": (WIDTH,) for number in (1, 2)}
    shapes |= {f"{name}.weight": shape for name, shape in biased.items() if "patch" not in name}
    shapes |= {f"{name}.bias": shape[:1] for name, shape in biased.items()}
    tower = {name: torch.randn(shape) / 4 for name, shape in shapes.items()}
    mlp: dict[str, tuple[int, ...]] = {"0.weight": (HIDDEN, WIDTH), "2.weight": (HIDDEN, HIDDEN)}
    mlp |= {"0.bias": (HIDDEN,), "2.bias": (HIDDEN,)}
    projector = {name: torch.randn(shape) / 4 for name, shape in mlp.items()}
    state = dict(text.state_dict())
    if config["tie_word_embeddings"]:
        del state["lm_head.weight"]
    state |= {ENCODER + name: value for name, value in tower.items()}
    state |= {f"model.mm_projector.mlp.{name}": value for name, value in projector.items()}
    folder.mkdir(parents=True, exist_ok=True)
    save_file({name: value.clone() for name, value in state.items()},
              folder / "model.safetensors", {"format": "pt"})  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    words = sorted(pre_tokenizers.ByteLevel.alphabet())
    whole = Tokenizer(models.BPE({word: number for number, word in enumerate(words)}, []))
    whole.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    whole.add_special_tokens(list(MARKS[CHATML]))
    whole.save(str(folder / "tokenizer.json"))
    template = CHATML.replace("You are a helpful assistant.", system) if system else CHATML
    info = {"chat_template": template, "tokenizer_class": "PreTrainedTokenizerFast"}
    (folder / "tokenizer_config.json").write_text(json.dumps(info))
    tower, projector = ({n: t.double() for n, t in part.items()} for part in (tower, projector))
    return SimpleNamespace(folder=folder, text=text.double(), tower=tower, projector=projector)


def places(side: int) -> Tensor:
    """Sinusoids of 4 frames of 14 x 14 patches, stretched to `side`, `[4 * side**2, width]`."""
    table = np.empty((CLIP * 14 * 14, WIDTH))
    for position in range(len(table)):
        for channel in range(WIDTH):
            angle = position / 10000 ** (2 * (channel // 2) / WIDTH)
            table[position, channel] = np.cos(angle) if channel % 2 else np.sin(angle)
    frames = torch.tensor(table, dtype=torch.float).reshape(CLIP, 14, 14, WIDTH).permute(0, 3, 1, 2)
    stretched = interpolate(frames, size=(side, side), mode="bicubic", align_corners=False)
    return stretched.permute(0, 2, 3, 1).reshape(-1, WIDTH).double()


def encode(weights: dict[str, Tensor], pixels: Tensor) -> Tensor:
    """The tower on a clip, `[4, 3, side, side]` to `[patches, width]`."""

    def norm(values: Tensor, name: str, eps: float) -> Tensor:
        return layer_norm(values, (WIDTH,), weights[f"{name}.weight"], weights[f"{name}.bias"], eps)

    def project(values: Tensor, name: str) -> Tensor:
        return linear(values, weights[f"{name}.weight"], weights[f"{name}.bias"])

    patch = weights["patch_embed.proj.weight"], weights["patch_embed.proj.bias"]
    grid = conv3d(pixels.transpose(0, 1)[None], *patch, stride=(1, 16, 16))
    states = grid[0].flatten(1).T + places(pixels.shape[-1] // 16)
    for block in dict.fromkeys(name[:9] for name in weights if name.startswith("blocks.")):
        biases = [weights[block + f"attn.{name}_bias"] for name in "qv"]
        bias = torch.cat([biases[0], torch.zeros(WIDTH).double(), biases[1]])
        entering = norm(states, block + "norm1", 1e-6)
        mixed = linear(entering, weights[block + "attn.qkv.weight"], bias)
        parts = mixed.reshape(len(mixed), 3, HEADS, -1).permute(
            1, 2, 0, 3
        )  # [3, heads, patches, 2]
        heads = scaled_dot_product_attention(*parts).transpose(0, 1).flatten(1)
        states = states + project(heads, block + "attn.proj")
        inner = gelu(project(norm(states, block + "norm2", 1e-6), block + "mlp.fc1"))
        states = states + project(inner, block + "mlp.fc2")
    return norm(states, "vision_layernorm", 1e-12)


def merge(tokens: Tensor) -> Tensor:
    """Token merging, token by token: `[patches, width]` to `[64, width]`."""
    entries = [(token, 1) for token in tokens]
    while len(entries) > MERGED:
        count = min(len(entries) - MERGED, len(entries) // 2)
        metric = torch.stack([token.view(HEADS, -1).mean(0) for token, _ in entries])
        metric = metric / metric.norm(dim=-1, keepdim=True)
        scores = metric[::2] @ metric[1::2].T
        similar, nearest = scores.max(1)
        order = sorted(range(len(scores)), key=lambda source: -float(similar[source]))
        targets = [(token * size, size) for token, size in entries[1::2]]
        for source in order[:count]:
            token, size = entries[2 * source]
            total, weight = targets[int(nearest[source])]
            targets[int(nearest[source])] = total + token * size, weight + size
        apart = [entries[2 * source] for source in order[count:]]
        entries = apart + [(total / weight, weight) for total, weight in targets]
    return torch.stack([token for token, _ in entries])


@torch.no_grad()
def features(model: SimpleNamespace, pixels: Tensor) -> Tensor:
    """What stands for frames `[frames, 3, side, side]`, `[tokens, hidden]`."""
    parts = [merge(encode(model.tower, clip)) for clip in pixels.split(CLIP)]
    first, second = ((model.projector[f"{n}.weight"], model.projector[f"{n}.bias"]) for n in "02")
    return linear(gelu(linear(torch.cat(parts), *first)), *second)


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return videos.write(tmp_path_factory.mktemp("film") / "clip.mp4", size=(48, 48), noise=True)


@pytest.mark.parametrize("name", CASES)
def test_a_clip_is_read_as_the_published_code_has_it(name: str, film: Path, tmp_path: Path) -> None:
    config, side, frames, indices = CASES[name]
    published = write(tmp_path / name, config, "You are Qwen." if "2_5" in name else "")
    pair = load_pair(str(published.folder), device="cpu")
    settings = CaptionSettings(prompt="What happens?", frames=frames, max_new_tokens=NEW)
    clip, model, tokenizer = prepare(film, pair, settings), pair.target.model, pair.target.tokenizer
    assert clip.frames.indices == indices
    pixels = clip.inputs["pixel_values_videos"][0]
    seen = [np.array(Image.fromarray(frame).resize((side, side), Image.Resampling.BICUBIC))
            for frame in clip.frames.pixels]  # fmt: skip
    seen += [seen[-1]] * (-len(seen) % CLIP)
    scaled = (torch.tensor(np.stack(seen)) / 255 - torch.tensor([0.485, 0.456, 0.406])) / (
        torch.tensor([0.229, 0.224, 0.225])
    )
    assert pixels.shape == (len(seen), 3, side, side)
    assert (
        pixels - scaled.permute(0, 3, 1, 2)
    ).abs().max() < 0.036  # two 255ths, rounded otherwise
    ids = clip.inputs["input_ids"][0]
    here = (ids == model.config.video_token_id).nonzero()[:, 0]
    count = len(seen) // CLIP * MERGED
    assert here.tolist() == list(range(here[0], here[0] + count))
    before, after = ids[: here[0]], ids[here[-1] + 1 :]
    lasts = f"\nThe video lasts for 3.00 seconds, and {len(seen)} frames are uniformly sampled"
    text = f"{START}{lasts} from it. What happens?{END}"
    assert torch.cat([before, after]).tolist() == tokenizer(text).input_ids
    inputs = clip.inputs | {"pixel_values_videos": pixels[None].double()}
    embed, prompt = (
        published.text.get_input_embeddings(),
        adapt(model.double()).embed_prompt(inputs),
    )
    visual = features(published, pixels.double())
    embeds = torch.cat([embed(before), visual, embed(after)])[None]
    assert torch.allclose(prompt.embeds, embeds, atol=1e-9)
    layout = PromptLayout.of(prompt, 0)
    assert layout.frames[here].tolist() == [at // MERGED for at in range(count)]
    assert int((layout.modality == VIDEO).sum()) == count
    if side == 448:  # which takes long
        return
    options: dict[str, Any] = {"max_new_tokens": NEW, "do_sample": False}
    expected = published.text.generate(inputs_embeds=embeds, eos_token_id=None, **options).tolist()
    model.generation_config.eos_token_id = None
    assert len({*expected[0]}) > 1
    assert model.generate(**inputs, **options)[:, len(ids) :].tolist() == expected
    assert sooner.generate(model, inputs, sooner.PromptLookup(), **options).tokens == expected
    with pytest.raises(RuntimeError, match=r"\[-1, 4\] don't multiply up to the size of dim 1 \(3"):
        model(**inputs | {"pixel_values_videos": pixels[None, :3].double()})


def test_commands_caption_and_search(film: Path, tmp_path: Path, run: Run) -> None:
    folder, table, out = write(tmp_path / "tied", SMALL).folder, tmp_path / "p.json", tmp_path / "o"
    usual = ("--model", folder, "--frames", 8, "--threads", 1)
    done = run("search", "patterns", film, *usual, "--no-break-even", "--queries", 16, "-o", table)
    assert done.code == 0, done.err
    assert PatternTable.load(table).frame_tokens == MERGED
    for more, mode in ((), "exact"), (("--prefill", table), "approximate"):
        done = run("caption", film, *usual, "--max-new-tokens", 4, "-o", out, "--overwrite", *more)
        assert done.code == 0, done.err
        assert (records(out)[-1]["mode"], records(out)[-1]["tokens"]) == (mode, 4)
    done = run("caption", film, *usual, "--frames", 3, "-o", out)
    assert "frames is 3, but this model looks at 4 frames at a time" in done.err


@pytest.mark.parametrize(
    ("total", "rate", "fps", "count"),
    [(30, 10, None, 24), (5, 10, None, 8), (6000, 25, None, 240), (200, 10, 2.0, 64),
     (90_000, 25, None, 512), (600, 10, 2.0, 120)],
)  # fmt: skip
def test_as_many_frames_as_published_are_sampled(
    total: int, rate: float, fps: float | None, count: int
) -> None:
    from sooner.tasks.llava_video import ClipProcessor

    metadata = SimpleNamespace(total_num_frames=total, fps=rate)
    indices = ClipProcessor().sample_frames(metadata, fps=fps)
    assert len(indices) == count
    ends = [number * total // min(count, total) for number in range(min(count, total) + 1)]
    middles = [(start + end - 1) // 2 for start, end in pairwise(ends)]
    assert indices.tolist() == middles + middles[-1:] * (count - len(middles))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mm_vision_tower": "internvideo2"}, "mm_vision_tower 'internvideo2', which is not built"),
        ({"mm_llm_compress": True}, "mm_llm_compress 'True', which is not built in; only 'False'"),
        ({"mm_local_num_frames": 8}, "mm_local_num_frames '8', which is not built in; only '4' is"),
        ({"mm_projector_type": "mlp2x_gelu"}, "mm_projector_type 'mlp2x_gelu', which is not built"),
        ({"mm_newline_position": "frame"}, "mm_newline_position 'frame', which is not built in"),
        ({"frame_aspect_ratio": "anyres_max_4"}, "frame_aspect_ratio 'anyres_max_4', which is not"),
        ({"vision_encode_type": "image"}, "vision_encode_type 'image', which is not built in"),
        ({"rope_scaling": YARN}, f"rope_scaling '{YARN}', which is not built in; only 'None' is"),
    ],
)  # fmt: skip
def test_other_variants_are_refused_by_name(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    folder = write(tmp_path, SMALL).folder
    (folder / "config.json").write_text(json.dumps(SMALL | change))
    with pytest.raises(SoonerError, match=re.escape(message)) as error:
        load_pair(str(folder), device="cpu")
    assert "\n" not in str(error.value)


def test_embeddings_may_be_tied_and_weights_that_lack_are_named(tmp_path: Path) -> None:
    folder = write(tmp_path, SMALL | {"tie_word_embeddings": True}).folder
    model = load_pair(str(folder), device="cpu").target.model
    assert model.lm_head.weight is model.get_input_embeddings().weight
    file, message = folder / "model.safetensors", r"lacks .*layers\.0\.self_attn\.q_proj\.bias \(1"
    state = load_file(file)
    del state[ENCODER + "blocks.0.attn.q_bias"]
    save_file(state, file, {"format": "pt"})
    with pytest.raises(SoonerError, match=message):
        load_pair(str(folder), device="cpu")
