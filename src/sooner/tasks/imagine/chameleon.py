"""What Chameleon and Lumina-mGPT need besides `from_pretrained`: a decoder, and their layout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import ChameleonForConditionalGeneration

from ...errors import SoonerError, unknown
from ...models.chameleon import LAYOUTS
from ...models.chameleon_files import VQGANDecoder, load_lumina
from .lens import check_trust
from .prompting import LUMINA

VQGAN, JIT = "vqgan.ckpt", "decoder.jit"


class JitDecoder:
    """`decoder.jit`: codes `[rows, height, width]` to pixels `[rows, 3, height, width]`, -1..1."""

    def __init__(self, file: Path, device: torch.device) -> None:
        self.device = device
        self.network = torch.jit.load(file, map_location=device).eval()

    @torch.no_grad()
    def decode(self, codes: Tensor) -> Tensor:
        return self.network(codes.to(self.device)).float()


def chameleon_options(
    folder: str, device: torch.device, tokenizer: str | None, layout: str | None, trust: bool
) -> dict[str, Any]:
    """What a Chameleon's canvas takes; without a decoder nobody would ever see its pictures.

    Args:
        tokenizer: `vqgan.ckpt` or its folder (or of `decoder.jit`, for codes that are not Meta's),
            where it is not in the model's.

    Raises:
        SoonerError: no decoder, an unknown layout, TorchScript without `trust`.
    """
    if layout is not None and layout not in LAYOUTS:
        raise unknown("layout", layout, LAYOUTS)
    told = {} if layout is None else {"layout": layout}
    places = [Path(folder), Path(folder) / "tokenizer"] if tokenizer is None else [Path(tokenizer)]
    for place in places:
        if place.is_file():
            return {"decoder": VQGANDecoder(place, device), **told}
        if (place / VQGAN).is_file():
            return {"decoder": VQGANDecoder(place / VQGAN, device), **told}
        if (place / JIT).is_file():
            check_trust(place, trust)
            return {"decoder": JitDecoder(place / JIT, device), **told}
    raise SoonerError(
        f"model '{folder}' is a Chameleon, whose codes transformers can't turn into pixels; give "
        f"its {VQGAN} with --tokenizer"
    )


def load_chameleon(folder: str, dtype: Any, layout: str | None) -> Any:
    """The model; Lumina-mGPT's files in a folder are read as they were published."""
    if layout in LUMINA and Path(folder).is_dir():
        return load_lumina(folder, None if dtype == "auto" else dtype)
    return ChameleonForConditionalGeneration.from_pretrained(
        folder, dtype=dtype, attn_implementation="sdpa"
    )
