"""Prompts with several pictures and clips, and clips of different length, in one batch."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import method_matrix as matrix
import sooner
import tiny
from sooner.methods.parallel import drafter as drafter_module
from sooner.sparse.modality import keep_count

NEW = 20
PRUNE = 0.7
LENGTHS = (2, 5)
"""Pairs of frames of each row's clip; each pair is four tokens."""
METHODS: dict[str, Any] = {
    "inline": lambda draft: sooner.ParallelVLM(draft, prune=PRUNE, least=0, placement="inline"),
    "thread": lambda draft: sooner.ParallelVLM(draft, prune=PRUNE, least=0, placement="thread"),
    "process": lambda draft: sooner.ParallelVLM(draft, prune=PRUNE, least=0, placement="process"),
    "attention": lambda draft: sooner.ParallelVLM(
        draft, prune=PRUNE, least=0, criterion="attention", placement="inline"
    ),
    "specvlm": lambda draft: sooner.SpecVLM(draft, prune=PRUNE),
    "sparse-to-dense": lambda draft: sooner.SparseToDense(prune=PRUNE),
    "sd-tree": lambda draft: sooner.SDTree(draft),
}


def clips(family: str) -> dict[str, Any]:
    """A batch of two prompts with a clip each, one of them more than twice as long."""
    generator = torch.Generator().manual_seed(7)
    prompts = []
    for row, pairs in enumerate(LENGTHS):
        words = torch.randint(0, 80, (8 + 3 * row,), generator=generator).tolist()
        pair = [tiny.VISION_START, *[tiny.VIDEO] * 4, tiny.VISION_END]
        video = [tiny.VISION_START, *[tiny.VIDEO] * 4 * pairs, tiny.VISION_END]
        if family == "qwen3_vl":  # a time stamp in front of each pair
            video = [token for number in range(pairs) for token in (5 + number, *pair)]
        prompts.append(words[:3] + video + words[3:])
    width = max(map(len, prompts))
    ids = torch.tensor([[tiny.PAD] * (width - len(one)) + one for one in prompts])
    types = torch.zeros_like(ids)
    types[ids == tiny.VIDEO] = 2
    batch = {
        "input_ids": ids,
        "attention_mask": torch.tensor(
            [[int(width - len(one) <= place) for place in range(width)] for one in prompts]
        ),
        "mm_token_type_ids": types,
        "pixel_values_videos": torch.randn(sum(LENGTHS) * 16, 3 * 2 * 7 * 7, generator=generator),
        "video_grid_thw": torch.tensor([[pairs, 4, 4] for pairs in LENGTHS]),
    }
    if family == "qwen2_5_vl":
        batch["second_per_grid_ts"] = torch.tensor([1.0, 3.0])
    return batch


@pytest.mark.parametrize("family", ["qwen2_5_vl", "qwen3_vl"])
def test_each_clip_keeps_its_own_share(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[list[int]] = []
    close = drafter_module.ParallelDrafter.close

    def noted(self: drafter_module.ParallelDrafter) -> None:
        kept.extend(self.kept_tokens)
        close(self)

    monkeypatch.setattr(drafter_module.ParallelDrafter, "close", noted)
    method = METHODS["inline"](tiny.noisy(family))
    sooner.generate(tiny.model(family), clips(family), method, max_new_tokens=4)
    assert [len(row) for row in kept] == [keep_count(4 * pairs, PRUNE) for pairs in LENGTHS]
    for row, pairs in zip(kept, LENGTHS, strict=True):
        assert row == sorted(set(row))
        assert row[-1] < 4 * pairs


@pytest.mark.parametrize("placement", ["inline", "process"])
@pytest.mark.parametrize(
    ("family", "kind", "rows"),
    [
        ("llava_onevision", "mixed", 2),
        ("llava_onevision", "uneven", 5),
        ("qwen2_5_vl", "uneven", 5),
        ("qwen3_vl", "uneven", 5),
        ("qwen3_vl", "mixed", 1),
    ],
)
def test_prompts_with_several_pictures_and_clips(
    family: str, kind: str, rows: int, placement: Any
) -> None:
    """The first prompt of an uneven batch shows nothing at all."""
    method = sooner.ParallelVLM(tiny.noisy(family), prune=PRUNE, least=0, placement=placement)
    inputs, options = tiny.inputs(family, kind, rows), {"max_new_tokens": NEW}
    made = sooner.generate(
        tiny.model(family), inputs, method, do_sample=False, eos_token_id=None, **options
    )
    assert torch.equal(made.sequences, matrix.reference(family, kind, rows, NEW))
