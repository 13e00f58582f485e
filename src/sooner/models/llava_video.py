"""LLaVA-Video and LongVILA from their published files, without the code beside them.

Both are a SigLIP tower, a projector and a text decoder, each of transformers' own modules. A token
is a square of 2 x 2 patches; newlines stand behind each row of a frame or behind each frame. The
layouts are those of `llava_arch.py` in LLaVA-NeXT and of `base_projector.py` in VILA.
"""

from __future__ import annotations

from functools import wraps
from math import isqrt
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, interpolate, pad
from transformers import LlavaOnevisionConfig
from transformers import LlavaOnevisionForConditionalGeneration as LlavaOnevision

from .checkpoint import complain, count_parts, read_config, read_state, require_built

TOWER, PROJECTOR = "model.vision_tower.", "model.multi_modal_projector."
TEXT, NEWLINE = "model.language_model.", "model.image_newline"
WORDS = TEXT + "embed_tokens.weight"
NAMES = {
    "": {"model.vision_tower.vision_tower.vision_model.": TOWER, "model.mm_projector.": PROJECTOR,
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
"""What is built in, by fields of the config and LongVILA's folders; the first is the default."""

SIGNATURE: Any = wraps(LlavaOnevision.forward)
FRAMES = 32  # that the tower encodes at a time
WAY_OUT = "give the whole folder of a LLaVA-Video or LongVILA"


class LlavaVideoConfig(LlavaOnevisionConfig):
    """LLaVA-OneVision's, and two fields by LLaVA's names; without a mode of pooling the projector
    takes squares, which are listed `by_columns` as in VILA 1.5."""

    model_type = "llava_video"
    mm_newline_position: str = "grid"
    mm_spatial_pool_mode: str | None = "bilinear"
    by_columns: bool = False

    @property
    def frame_tokens(self) -> int:
        """Returns the tokens of a frame, newlines included."""
        vision: Any = self.vision_config
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

    def _supports_mm_encoder_outputs(self) -> bool:
        return False  # or `generate` of transformers 5.24 would encode videos as LLaVA-OneVision's

    @SIGNATURE
    def forward(
        self, input_ids: Any = None, *, pixel_values_videos: Any = None, inputs_embeds: Any = None,
        **kwargs: Any,
    ) -> Any:  # fmt: skip
        if pixel_values_videos is not None:
            here = input_ids == self.config.video_token_id
            parts = pixel_values_videos.flatten(0, 1).split(FRAMES)
            features = torch.cat([self._tokens(part) for part in parts]).flatten(0, 1)
            if (tokens := int(here.sum())) != len(features):
                raise ValueError(f"{tokens} video tokens and {len(features)} features do not match")
            embeds = self.get_input_embeddings()(input_ids)
            inputs_embeds = embeds.masked_scatter(here[..., None], features.to(embeds))
            input_ids = None
        return super().forward(input_ids=input_ids, inputs_embeds=inputs_embeds, **kwargs)

    def _tokens(self, pixels: Tensor) -> Tensor:
        """Maps `[frames, 3, side, side]` to `[frames, tokens, hidden]`, newlines included."""
        states = self.model.vision_tower(pixels, output_hidden_states=True).hidden_states[-1]
        mode, side = self.config.mm_spatial_pool_mode, isqrt(states.shape[1])
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


def load_published(folder: Path, newline: int, video: int, **options: Any) -> Any:
    """Load a model from a published folder, in eval mode, by options of `from_pretrained`.

    Args:
        newline, video: ids of a line break, and of the token that stands for visual ones.

    Raises:
        SoonerError: tensors are missing, or left over.
        UnsupportedError: the checkpoint has a part that is not built in; says which.
    """
    parts = {name: read_config(folder / name) for name in NAMES}
    raw, is_vila = {"mm_newline_position": "one_token", **parts[""]}, "llm_cfg" in parts[""]
    raw |= {
        name: kind.get("mm_projector_type", kind.get("model_type")) for name, kind in parts.items()
    }
    require_built(folder, raw, VILA if is_vila else LLAVA)
    state = dict[str, Tensor]()
    for part, names in NAMES.items():
        for name, tensor in read_state(folder / part).items():
            old = next((old for old in names if name.startswith(old)), "")
            state[names.get(old, "") + name.removeprefix(old)] = tensor
    layers = f"{TOWER}encoder.layers."
    needed = [f"{TOWER}embeddings.patch_embedding.weight", f"{layers}0.mlp.fc1.weight", WORDS]
    complain(folder, "lacks", [name for name in needed if name not in state], WAY_OUT)
    (width, _, patch, _), (inner, _) = (state[name].shape for name in needed[:2])
    count = count_parts(state, layers)
    depth = count + is_vila * (1 + raw.get("mm_vision_select_layer", -2))
    if is_vila:
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
    gone = (f"{TOWER}head.", *(f"{layers}{number}." for number in range(depth, count)))
    loader: Any = LlavaVideoForConditionalGeneration
    model, report = loader.from_pretrained(
        None, config=config, output_loading_info=True, attn_implementation="sdpa",
        state_dict={name: state[name] for name in state if not name.startswith(gone)}, **options,
    )  # fmt: skip
    for fault, key in (("lacks", "missing_keys"), ("has unknown", "unexpected_keys")):
        complain(folder, fault, sorted(report[key]), WAY_OUT)
    return model
