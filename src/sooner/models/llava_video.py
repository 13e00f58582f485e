"""LLaVA-Video, LongVILA and VideoChat-Flash from their published files, without the code there.

All are a SigLIP tower, a projector and a text decoder, each of transformers' own modules. A token
is a square of 2 x 2 patches; newlines stand behind each row of a frame or behind each frame. The
layouts are those of `llava_arch.py` in LLaVA-NeXT and of `base_projector.py` in VILA.

VideoChat-Flash's tower, UMT-L, has SigLIP's layers; the frames of a clip go through it one under
another, as one picture, and become 64 tokens (its `mm_projector_builder.py`), without newlines.
"""

from __future__ import annotations

from functools import wraps
from math import isqrt
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, interpolate, normalize, one_hot, pad
from transformers import LlavaOnevisionConfig
from transformers import LlavaOnevisionForConditionalGeneration as LlavaOnevision

from .checkpoint import complain, count_parts, read_config, read_state, require_built

TOWER, PROJECTOR = "model.vision_tower.", "model.multi_modal_projector."
TEXT, NEWLINE = "model.language_model.", "model.image_newline"
WORDS, LAYERS = TEXT + "embed_tokens.weight", TOWER + "encoder.layers."
PATCHES, PLACES = (f"{TOWER}embeddings.{name}_embedding.weight" for name in ("patch", "position"))
UMT = "model.vision_tower.vision_tower.encoder."
UMT_NAMES = {
    "norm": "layer_norm", "attn.proj": "self_attn.out_proj", "attn.q_bias": "self_attn.q_proj.bias",
    "attn.v_bias": "self_attn.v_proj.bias",
}  # fmt: skip
"""What stands in the names of a layer of UMT-L, and in SigLIP's; `attn.qkv.weight` is split."""
NAMES = {
    "": {UMT + "patch_embed.proj.": TOWER + "embeddings.patch_embedding.",
         UMT + "blocks.": LAYERS, UMT + "vision_layernorm.": TOWER + "post_layernorm.",
         "model.vision_tower.vision_tower.vision_model.": TOWER,
         "model.mm_projector.mlp.": PROJECTOR, "model.mm_projector.": PROJECTOR,
         NEWLINE: NEWLINE, "model.": TEXT},
    "llm": {"model.": TEXT}, "vision_tower": {"vision_model.": TOWER},
    "mm_projector": {"layers.": PROJECTOR},
}  # fmt: skip
"""What published names begin with, and ours; LongVILA's files stand in the last three folders."""

LLAVA: dict[str, tuple] = {
    "mm_vision_tower": ("google/siglip-so400m-patch14-384",), "mm_projector_type": ("mlp2x_gelu",),
    "mm_newline_position": ("grid", "frame"), "mm_spatial_pool_mode": ("bilinear", "average"),
    "mm_patch_merge_type": ("spatial_unpad",), "add_faster_video": (False,),
}  # fmt: skip
VILA: dict[str, tuple] = {
    "llm": ("qwen2", "llama"), "vision_tower": ("siglip_vision_model",),
    "mm_projector": ("mlp_downsample", "mlp_downsample_2x2_fix"), "s2": (False,), "ps3": (False,),
    "dynamic_s2": (False,), "video_max_tiles": (1,), "mm_vision_select_feature": ("cls_patch",),
    "image_aspect_ratio": ("resize", "dynamic"), "chat_template": (None,),
    "video_encoder": ('{"_target_": "llava.model.encoders.BasicVideoEncoder"}',),
}  # fmt: skip
FLASH: dict[str, tuple] = {
    "mm_vision_tower": ("umt-hd-large", "umt-large"), "mm_projector_type": ("tome16_mlp_hd64",),
    "vision_encode_type": ("video_image",), "mm_local_num_frames": (4,),
    "mm_newline_position": ("nothing",), "frame_aspect_ratio": ("square",),
    "mm_llm_compress": (False,), "rope_scaling": (None,),  # which its decoder doesn't read
}  # fmt: skip
"""What is built in, by fields of the config and LongVILA's folders; the first is the default."""

SIGNATURE: Any = wraps(LlavaOnevision.forward)
FRAMES = 32  # that the tower encodes at a time
CLIP, MERGED = 4, 64  # frames that VideoChat-Flash's tower sees together, and tokens of these
WAY_OUT = "give the whole folder of a LLaVA-Video, LongVILA or VideoChat-Flash"


class LlavaVideoConfig(LlavaOnevisionConfig):
    """LLaVA-OneVision's, and two fields by LLaVA's names; without a mode of pooling the projector
    takes squares, which are listed `by_columns` as in VILA 1.5. `tome` merges a clip, whose frames
    the tower's config takes for a square of twice their side."""

    model_type = "llava_video"
    mm_newline_position: str = "grid"
    mm_spatial_pool_mode: str | None = "bilinear"
    by_columns: bool = False

    @property
    def clip_frames(self) -> int:
        """Returns how many frames the tower encodes together."""
        return CLIP if self.mm_spatial_pool_mode == "tome" else 1

    @property
    def frame_tokens(self) -> int:
        """Returns the tokens of a frame, newlines included, or of the clip that it is in."""
        vision: Any = self.vision_config
        if self.clip_frames > 1:
            return MERGED
        patches = vision.image_size // vision.patch_size
        side = (patches + (self.mm_spatial_pool_mode != "average")) // 2
        return side * side + (side if self.mm_newline_position == "grid" else 1)


class LlavaVideoForConditionalGeneration(LlavaOnevision):
    """The model; of pixels it takes `pixel_values_videos [videos, frames, 3, side, side]` alone."""

    config_class = LlavaVideoConfig

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        width, hidden = config.vision_config.hidden_size, config.text_config.hidden_size
        first: list[nn.Module] = [nn.Linear(width, hidden)]
        if config.mm_spatial_pool_mode is None:  # as many as published: the first makes squares
            first = [nn.Identity(), nn.LayerNorm(4 * width), nn.Linear(4 * width, hidden)]
        layers = nn.Sequential(*first, nn.GELU(), nn.Linear(hidden, hidden))
        self.model.multi_modal_projector = layers
        last = nn.LayerNorm(width, eps=1e-12) if config.clip_frames > 1 else nn.Identity()
        self.model.vision_tower.post_layernorm = last

    def _supports_mm_encoder_outputs(self) -> bool:
        return False  # or `generate` of transformers 5.24 would encode videos as LLaVA-OneVision's

    @SIGNATURE
    def forward(
        self, input_ids: Any = None, *, pixel_values_videos: Any = None, inputs_embeds: Any = None,
        **kwargs: Any,
    ) -> Any:  # fmt: skip
        if pixel_values_videos is not None:
            here = input_ids == self.config.video_token_id
            clips = pixel_values_videos.unflatten(1, (-1, self.config.clip_frames)).flatten(0, 1)
            parts = clips.split(FRAMES // self.config.clip_frames)
            features = torch.cat([self._tokens(part) for part in parts]).flatten(0, 1)
            if (tokens := int(here.sum())) != len(features):
                raise ValueError(f"{tokens} video tokens and {len(features)} features do not match")
            embeds = self.get_input_embeddings()(input_ids)
            inputs_embeds = embeds.masked_scatter(here[..., None], features.to(embeds))
            input_ids = None
        return super().forward(input_ids=input_ids, inputs_embeds=inputs_embeds, **kwargs)

    def _tokens(self, pixels: Tensor) -> Tensor:
        """Maps `[clips, frames, 3, side, side]` to `[clips, tokens, hidden]`, newlines included."""
        picture = pixels.transpose(1, 2).flatten(2, 3)  # [clips, 3, frames * side, side]
        states = self.model.vision_tower(picture).last_hidden_state  # [clips, patches, width]
        mode, side = self.config.mm_spatial_pool_mode, isqrt(states.shape[1])
        if mode == "tome":
            vision: Any = self.config.vision_config
            merged = merge_tokens(states, vision.num_attention_heads, MERGED)
            return self.model.multi_modal_projector(merged)
        if mode is None:
            grid = pad(states.unflatten(1, (side, side)), (0, 0, 0, side % 2, 0, side % 2))
            squares = grid.unflatten(2, (-1, 2)).unflatten(1, (-1, 2)).transpose(2, 3).flatten(3)
            squares = squares.transpose(1, 2) if self.config.by_columns else squares
            tokens = self.model.multi_modal_projector(squares)  # [frames, rows, columns, hidden]
        else:
            grid = self.model.multi_modal_projector(states).mT.unflatten(2, (side, side))
            size = [(side + 1) // 2] * 2
            even = avg_pool2d(grid, 2) if mode == "average" else interpolate(grid, size, mode=mode)
            tokens = even.permute(0, 2, 3, 1)
        if self.config.mm_newline_position == "frame":
            tokens = tokens.flatten(1, 2)[:, None]
        newline = self.model.image_newline.expand(*tokens.shape[:2], 1, -1)
        return torch.cat([tokens, newline], 2).flatten(1, 2)


def merge_tokens(tokens: Tensor, heads: int, count: int) -> Tensor:
    """Merges `[clips, tokens, width]` to `[clips, count, width]` (Bolya et al. 2023, ToMe).

    In each round tokens at even places that resemble one at an odd place most, by the cosine of
    their means over heads, are averaged with it, half of all tokens at most; those that stay come
    before the odd ones, the most similar first. A token weighs as much as what it was made of.
    """
    weights = torch.ones_like(tokens[..., :1])
    while (excess := tokens.shape[1] - count) > 0:
        merged = min(excess, tokens.shape[1] // 2)
        metric = normalize(tokens.unflatten(2, (heads, -1)).mean(2), dim=-1)
        best, place = (metric[:, ::2] @ metric[:, 1::2].mT).max(-1)  # [clips, even]
        order = best.argsort(descending=True)
        total = torch.cat([tokens * weights, weights], -1)
        even = total[:, ::2].gather(1, order[..., None].expand(-1, -1, total.shape[2]))
        odd, target = total[:, 1::2], place.gather(1, order[:, :merged])
        joins = one_hot(target, odd.shape[1]).to(odd)  # [clips, merged, odd]; sums in one order
        total = torch.cat([even[:, merged:], odd + joins.mT @ even[:, :merged]], 1)
        tokens, weights = total[..., :-1] / total[..., -1:], total[..., -1:]
    return tokens


def clip_places(width: int, side: int) -> Tensor:
    """Returns what marks the places of a clip's patches, `[frames * side**2, width]`: sinusoids of
    numbers of 14 x 14 patches a frame, stretched to `side`."""
    channels = torch.arange(width)
    steps = 10_000.0 ** (channels // 2 * 2 / width).double()
    angles = torch.arange(CLIP * 14 * 14)[:, None] / steps
    table = torch.where(channels % 2 == 0, angles.sin(), angles.cos()).float()
    grid = table.unflatten(0, (CLIP, 14, 14)).permute(0, 3, 1, 2)  # [frames, width, rows, columns]
    return interpolate(grid, (side, side), mode="bicubic").flatten(2).mT.flatten(0, 1)


def _as_siglip(state: dict[str, Tensor], side: int) -> None:
    """Give the tensors of UMT-L's patches and layers SigLIP's names and shapes, in place."""
    patches = state[PATCHES] = state[PATCHES].squeeze(2)
    state[PLACES] = clip_places(len(patches), side // patches.shape[-1])
    for name in [name for name in state if name.startswith(LAYERS)]:
        tensor, stem = state.pop(name), name.removesuffix("attn.qkv.weight") + "self_attn."
        if name.endswith("attn.qkv.weight"):
            parts = zip("qkv", tensor.chunk(3), strict=True)
            state |= {f"{stem}{part}_proj.weight": rows for part, rows in parts}
            state[f"{stem}k_proj.bias"] = tensor.new_zeros(len(tensor) // 3)
            continue
        for old, new in UMT_NAMES.items():
            name = name.replace(old, new)
        state[name] = tensor


def load_published(folder: Path, newline: int, video: int, **options: Any) -> Any:
    """Load a model from a published folder, in eval mode, by options of `from_pretrained`.

    Args:
        newline, video: ids of a line break, and of the token that stands for visual ones.

    Raises:
        SoonerError: tensors are missing, or left over.
        UnsupportedError: the checkpoint has a part that is not built in; says which.
    """
    parts = {name: read_config(folder / name) for name in NAMES}
    is_vila, is_flash = "llm_cfg" in parts[""], "mm_local_num_frames" in parts[""]
    raw = {"mm_newline_position": "one_token", **parts[""]}
    raw |= {
        name: kind.get("mm_projector_type", kind.get("model_type")) for name, kind in parts.items()
    }
    require_built(folder, raw, VILA if is_vila else FLASH if is_flash else LLAVA)
    state = dict[str, Tensor]()
    for part, names in NAMES.items():
        for name, tensor in read_state(folder / part).items():
            old = next((old for old in names if name.startswith(old)), "")
            state[names.get(old, "") + name.removeprefix(old)] = tensor
    needed = [PATCHES, f"{LAYERS}0.mlp.fc1.weight", WORDS]
    complain(folder, "lacks", [name for name in needed if name not in state], WAY_OUT)
    if is_flash:
        side = 224 if raw.get("mm_vision_tower") == "umt-large" else 448
        parts["vision_tower"] = {"image_size": 2 * side, "hidden_act": "gelu"}
        raw["mm_spatial_pool_mode"] = "tome"
        _as_siglip(state, side)
    (width, _, patch, _), (inner, _) = (state[name].shape for name in needed[:2])
    count = count_parts(state, LAYERS)
    depth = count + is_vila * (1 + raw.get("mm_vision_select_layer", -2))
    if is_vila or is_flash:  # which writes none
        state[NEWLINE] = state[WORDS][newline]
    tower = {
        "model_type": "siglip_vision_model", "hidden_size": width, "intermediate_size": inner,
        "patch_size": patch, "num_attention_heads": 16, "image_size": 384, **parts["vision_tower"],
        "num_hidden_layers": depth, "vision_use_head": False,
    }  # fmt: skip
    config = LlavaVideoConfig(
        vision_config=tower, text_config=parts["llm"] or {**parts[""], "model_type": "qwen2"},
        image_token_index=video, video_token_index=video, by_columns="video_encoder" not in raw,
        mm_newline_position="frame" if is_vila else raw["mm_newline_position"],
        mm_spatial_pool_mode=None if is_vila else raw.get("mm_spatial_pool_mode", "bilinear"),
    )  # fmt: skip
    gone = (f"{TOWER}head.", *(f"{LAYERS}{number}." for number in range(depth, count)))
    gone += () if is_flash else (f"{TOWER}post_layernorm.",)
    loader: Any = LlavaVideoForConditionalGeneration
    model, report = loader.from_pretrained(
        None, config=config, output_loading_info=True, attn_implementation="sdpa",
        state_dict={name: state[name] for name in state if not name.startswith(gone)}, **options,
    )  # fmt: skip
    for fault, key in (("lacks", "missing_keys"), ("has unknown", "unexpected_keys")):
        complain(folder, fault, sorted(report[key]), WAY_OUT)
    return model
