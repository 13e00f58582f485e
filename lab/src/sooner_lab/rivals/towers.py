"""Where each family's vision tower attends, and how its tokens become those of the decoder.

Features are pooled, unpadded or put into another order on their way. What is known of them is sent
the same way, by the model's own functions, so that nothing of it is written anew here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers.models.llama.modeling_llama import rotate_half

from sooner.errors import UnsupportedError
from sooner.models import Adapter
from sooner.models.hooks import ForwardHooks

CHUNK = 1 << 25
"""Attention weights held at once; 128 MB in fp32."""


def received(queries: Tensor, keys: Tensor, scale: float) -> Tensor:
    """Mean over heads and queries of the attention on each key of a frame, `[tokens]` in fp32.

    Args:
        queries, keys: `[heads, tokens, head_dim]`.
        scale: of the scores.
    """
    heads, tokens = queries.shape[:2]
    keys = keys.float().transpose(1, 2)
    total = keys.new_zeros(tokens)
    for some in queries.split(max(CHUNK // (heads * tokens), 1), 1):
        total += (some.float() @ keys * scale).softmax(-1).sum((0, 1))
    return total / (heads * tokens)


NONE = -1
"""Unit of a token that the tower did not make, such as a newline."""


@dataclass(frozen=True)
class Gaze:
    """What is known of some visual tokens.

    Attributes:
        table: the attention that each gets in the tower, and its key there, averaged over heads,
            fp32 `[tokens, 1 + head_dim]`.
        units: the frame, image or tile that it belongs to, from 0, or `NONE`; `[tokens]`.
    """

    table: Tensor
    units: Tensor

    @property
    def scores(self) -> Tensor:
        return self.table[:, 0]

    @property
    def keys(self) -> Tensor:
        return self.table[:, 1:]

    def to(self, device: torch.device) -> Gaze:
        return Gaze(self.table.to(device), self.units.to(device))


def table_of(scores: Tensor, keys: Tensor) -> Tensor:
    """Returns a gaze's table of scores `[tokens]` and of keys `[tokens, heads, head_dim]`."""
    return torch.cat([scores[:, None], keys.float().mean(1)], 1)


class TowerHooks(ForwardHooks):
    """Hooks on one model that note its tower's gaze each time a prompt is embedded.

    Args:
        adapter: the model. Subclasses say where its family computes what.
    """

    every_thread = True

    def __init__(self, adapter: Adapter) -> None:
        super().__init__()
        self.adapter = adapter
        self.body: Any = adapter.model.model
        self.inputs: Mapping[str, Any] = {}
        self.seen: list[Gaze] = []  # one for each call of the tower

    def install(self) -> None:
        """Hook the model's body; subclasses hook the tower as well."""
        self.before(self.body, self._begin)

    def remove(self) -> None:
        """Take the hooks off, and forget what was noted."""
        super().remove()
        self.inputs, self.seen = {}, []

    def _begin(self, module: nn.Module, args: tuple, kwargs: dict[str, Any]) -> None:
        self.inputs, self.seen = kwargs, []

    def carried(self, kind: str, gaze: Gaze) -> Gaze:
        """Returns the gaze on tower tokens, carried over to the placeholders of the prompt.

        Args:
            kind: `image` or `video`.
        """
        return gaze

    def of_prompt(self, total: int) -> Gaze:
        """Returns the gaze for the visual tokens of the newest prompt, in their order.

        Args:
            total: how many it should have.

        Raises:
            UnsupportedError: the prompt was embedded elsewhere, so the tower was not watched.
        """
        kinds = [
            kind
            for kind, name in (("image", "pixel_values"), ("video", "pixel_values_videos"))
            if self.inputs.get(name) is not None
        ]
        places = self._places()
        if len(kinds) != len(self.seen) or len(places) != total:
            raise UnsupportedError(
                f"VisionZip saw {len(self.seen)} calls of the vision tower for a prompt of {total} "
                "visual tokens that sooner did not embed; pass pixels, and not encoded features"
            )
        first, begin = self.seen[0].table, 0
        merged = Gaze(
            first.new_zeros(total, first.shape[1]), torch.full((total,), NONE, device=first.device)
        )
        for kind, seen in zip(kinds, self.seen, strict=True):
            gaze = self.carried(kind, seen)
            spots = (places == self._token(kind)).to(gaze.units.device)
            if int(spots.sum()) != len(gaze.units):
                raise UnsupportedError(
                    f"VisionZip can't tell {len(gaze.units)} {kind} tokens from the "
                    f"{int(spots.sum())} of the prompt; this layout is not known"
                )
            merged.table[spots] = gaze.table
            known = gaze.units != NONE
            merged.units[spots] = torch.where(known, gaze.units + begin, gaze.units)
            begin = int(merged.units.max()) + 1
        return merged

    def _token(self, kind: str) -> int:
        return int(getattr(self.adapter.config, f"{kind}_token_id"))

    def _places(self) -> Tensor:
        """Ids of the visual placeholders of the only row, in order."""
        ids = self.inputs.get("input_ids")
        if ids is None:
            return torch.empty(0)
        mask = self.inputs.get("attention_mask")
        row = ids[0] if mask is None else ids[0][mask[0].bool()]
        visual_ids = torch.tensor(self.adapter.visual_ids, device=ids.device)
        return row[torch.isin(row, visual_ids)]


class LlavaOnevisionWatch(TowerHooks):
    """A SigLIP or CLIP tower of equal views, those of a video, which are pooled 2x2."""

    def install(self) -> None:
        super().install()
        self.before(self._attention(), self._attended)

    def _attention(self) -> nn.Module:
        """Returns the attention of the layer whose output is taken."""
        tower = self.body.vision_tower
        modules = [part for name, part in tower.named_modules() if name.endswith("self_attn")]
        level = self.adapter.config.vision_feature_layer
        level = level if isinstance(level, int) else level[-1]
        return modules[level - 1 if level > 0 else len(modules) + level]

    def _attended(self, module: Any, args: tuple, kwargs: dict[str, Any]) -> None:
        hidden = kwargs["hidden_states"] if "hidden_states" in kwargs else args[0]
        with torch.no_grad():
            table = torch.cat([self._view(module, view) for view in hidden])
        units = torch.arange(len(hidden), device=hidden.device)
        self.seen.append(Gaze(table, units.repeat_interleave(len(table) // len(hidden))))

    def _view(self, module: Any, view: Tensor) -> Tensor:
        """Returns the table of the patches of one view."""
        queries, keys = (
            project(view).view(len(view), -1, module.head_dim)
            for project in (module.q_proj, module.k_proj)
        )
        scores = received(queries.transpose(0, 1), keys.transpose(0, 1), module.scale)
        return table_of(scores, keys)

    def carried(self, kind: str, gaze: Gaze) -> Gaze:
        if kind == "image":  # whose tiles end up in shared lines
            raise UnsupportedError(
                "VisionZip follows videos through LLaVA-OneVision, and no pictures; give a video"
            )
        videos, frames = self.inputs["pixel_values_videos"].shape[:2]
        pooled = self.body.apply_pooling(gaze.table.unflatten(0, (videos * frames, -1)))
        units = torch.arange(videos * frames, device=pooled.device)[:, None]
        units = units.expand(pooled.shape[:2]).reshape(videos, -1)
        table = _with_newline(pooled.reshape(videos, -1, pooled.shape[-1]), 0)
        return Gaze(table.flatten(0, 1), _with_newline(units, NONE).flatten())


def _with_newline(states: Tensor, value: int) -> Tensor:
    """Returns one more entry behind each video of `[videos, tokens, ...]`."""
    last = states.new_full((len(states), 1, *states.shape[2:]), value)
    return torch.cat([states, last], 1)


DIGITS = 128
"""Row numbers ride through the model in digits that are exact in every dtype."""


class QwenWatch(TowerHooks):
    """Watches a tower of any number of patches, which attend frame by frame and are merged 2x2,
    maybe in another order.

    The merger's output gets three channels with its row's number. They pass whatever order the
    model gives its rows, and are taken off when the tower returns.
    """

    def install(self) -> None:
        super().install()
        visual = self.body.visual
        full = getattr(visual, "fullatt_block_indexes", None) or [len(visual.blocks) - 1]
        self.before(visual.blocks[max(full)].attn, self._attended)
        self.after(visual.merger, self._number)
        self.after(visual, self._order)

    @property
    def _merged(self) -> int:
        return int(self.body.visual.spatial_merge_size) ** 2

    def _attended(self, module: Any, args: tuple, kwargs: dict[str, Any]) -> None:
        hidden = kwargs["hidden_states"] if "hidden_states" in kwargs else args[0]
        rotary, ends = kwargs["position_embeddings"], kwargs["cu_seqlens"]
        lengths = (ends[1:] - ends[:-1]).tolist()
        with torch.no_grad():
            parts = zip(*(part.split(lengths) for part in (hidden, *rotary)), strict=True)
            table = torch.cat([self._frame(module, *frame) for frame in parts])
        sizes = torch.tensor([length // self._merged for length in lengths])
        units = torch.arange(len(lengths)).repeat_interleave(sizes).to(table.device)
        self.seen.append(Gaze(table, units))

    def _frame(self, module: Any, states: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Returns the table of one frame's merged patches, in the tower's order."""
        packed = module.qkv(states).reshape(len(states), 3, module.num_heads, -1)
        queries, keys = packed[:, 0].float(), packed[:, 1].float()  # [tokens, heads, head_dim]
        cos, sin = (part.float()[:, None] for part in (cos, sin))  # [tokens, 1, head_dim]
        asking, turned = (part * cos + rotate_half(part) * sin for part in (queries, keys))
        scores = received(asking.transpose(0, 1), turned.transpose(0, 1), module.scaling)
        table = table_of(scores, keys)
        return table.unflatten(0, (-1, self._merged)).mean(1)

    def _number(
        self, module: nn.Module, args: tuple, kwargs: dict[str, Any], output: Tensor
    ) -> Tensor:
        rows = torch.arange(len(output), device=output.device)
        digits = [rows // DIGITS**power % DIGITS for power in range(3)]
        return torch.cat([output, torch.stack(digits, 1).to(output.dtype)], 1)

    def _order(self, module: nn.Module, args: tuple, kwargs: dict[str, Any], output: Any) -> Any:
        whole = output if isinstance(output, Tensor) else output.pooler_output
        digits = whole[:, -3:].long()
        rows = sum(digits[:, power] * DIGITS**power for power in range(3))
        seen = self.seen[-1]
        self.seen[-1] = Gaze(seen.table[rows], seen.units[rows])
        if isinstance(output, Tensor):
            return whole[:, :-3]
        output.pooler_output = whole[:, :-3]
        return output


WATCHES: dict[str, type[TowerHooks]] = {
    "llava_onevision": LlavaOnevisionWatch,
    "qwen2_5_vl": QwenWatch,
    "qwen3_vl": QwenWatch,
}


def watch(adapter: Adapter) -> TowerHooks:
    """Returns what watches this model's vision tower.

    Raises:
        UnsupportedError: a family whose tower is not known.
    """
    kind = adapter.config.model_type
    if kind not in WATCHES:
        raise UnsupportedError(
            f"VisionZip reads the vision tower of {', '.join(sorted(WATCHES))}, not of '{kind}'; "
            "use sooner.FastV, which reads the decoder"
        )
    return WATCHES[kind](adapter)
