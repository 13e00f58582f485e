"""What Chameleon and Lumina-mGPT need besides `from_pretrained`: a decoder, and their layout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from huggingface_hub import snapshot_download
from torch import Tensor
from transformers import AutoProcessor, AutoTokenizer, ChameleonForConditionalGeneration

from ...errors import SoonerError, unknown
from ...models.chameleon import LAYOUTS
from ...models.chameleon_files import VQGANDecoder, load_lumina
from ...models.movqgan import MoVQGANDecoder
from .lens import check_trust
from .prompting import LUMINA

JIT = "decoder.jit"
FILES = ["*.json", "*.safetensors", "*.txt", "*.model"]
"""What is fetched of a hub id."""

SEPARATOR = "<reserved08706>"
"""Ends a turn of a conversation (`Conversation.sep_token` in Lumina-mGPT's code)."""


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

    Lumina-mGPT 2's codes are MoVQGAN's (`movqgan_270M.ckpt`), all others' Meta's (`vqgan.ckpt`).

    Args:
        tokenizer: the decoder's file or its folder (or that of `decoder.jit`, for other codes),
            where it is not in the model's.

    Raises:
        SoonerError: no decoder, or that of other codes; an unknown layout, TorchScript without
            `trust`.
    """
    if layout is not None and layout not in LAYOUTS:
        raise unknown("layout", layout, LAYOUTS)
    told = {} if layout is None else {"layout": layout}
    kind, name = VQGANDecoder, "vqgan"
    if layout == "lumina2":
        kind, name = MoVQGANDecoder, "movqgan_*"
    for place in _places(Path(folder if tokenizer is None else tokenizer)):
        if place.is_file():
            return {"decoder": kind(place, device), **told}
        files = sorted(
            file for end in ("ckpt", "safetensors") for file in place.glob(f"{name}.{end}")
        )
        if files:
            return {"decoder": kind(files[-1], device), **told}
        if (place / JIT).is_file():
            check_trust(place, trust)
            return {"decoder": JitDecoder(place / JIT, device), **told}
    wanted = "movqgan_270M.ckpt" if layout == "lumina2" else "vqgan.ckpt"
    raise SoonerError(
        f"model '{folder}' is a Chameleon, whose codes transformers can't turn into pixels; give "
        f"its {wanted} with --tokenizer"
    )


def _places(root: Path) -> list[Path]:
    """Where a decoder is looked for: as in the published repositories."""
    below = ("tokenizer", "movqgan/270M", "ckpts/chameleon/tokenizer")
    return [root, *(root / name for name in below)]


def find_chameleon(model: str, layout: str | None) -> str:
    """The folder of a Lumina-mGPT, fetched if that is a hub id; others as they are.

    Its files are not quite what transformers expects, so they have to be at hand.
    """
    if layout not in LUMINA or Path(model).is_dir():
        return model
    return snapshot_download(model, allow_patterns=FILES)


def load_chameleon(folder: str, dtype: Any, layout: str | None) -> Any:
    """The model; Lumina-mGPT's files in a folder are read as they were published."""
    if layout in LUMINA:
        return load_lumina(folder, None if dtype == "auto" else dtype)
    return ChameleonForConditionalGeneration.from_pretrained(
        folder, dtype=dtype, attn_implementation="sdpa"
    )


def load_processor(folder: str) -> Any:
    """What makes a model's prompts; Lumina-mGPT is published with a tokenizer alone.

    Raises:
        SoonerError: the tokenizer does not know the end of a turn.
    """
    place, names = Path(folder), ("processor_config.json", "preprocessor_config.json")
    if not place.is_dir() or any((place / name).is_file() for name in names):
        return AutoProcessor.from_pretrained(folder)
    return WordsOnly(AutoTokenizer.from_pretrained(folder))


class WordsOnly:
    """Makes prompts as Lumina-mGPT's own code does: the begin, the words, the end of the turn.

    Args:
        tokenizer: the model's.

    Raises:
        SoonerError: it does not know the end of a turn.
    """

    chat_template = None

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        if SEPARATOR not in tokenizer.get_vocab():
            raise SoonerError(
                f"the tokenizer has no '{SEPARATOR}', which ends a prompt of Chameleon; give the "
                "model's own tokenizer.json"
            )
        # Without a begin the end stands for it (`Tokenizer` in the published code).
        begin = tokenizer.bos_token_id
        self.begin = tokenizer.eos_token_id if begin is None else begin

    def __call__(self, text: list[str], **_: Any) -> dict[str, Tensor]:
        """Prompts `[rows, width]`, padded on the left, and their mask."""
        encoded = self.tokenizer([one + SEPARATOR for one in text], add_special_tokens=False)
        begin = [] if self.begin is None else [self.begin]
        rows = [[*begin, *ids] for ids in encoded["input_ids"]]
        width = max(map(len, rows))
        padding = self.tokenizer.pad_token_id or 0  # masked
        return {
            "input_ids": torch.tensor([[padding] * (width - len(row)) + row for row in rows]),
            "attention_mask": torch.tensor(
                [[0] * (width - len(row)) + [1] * len(row) for row in rows]
            ),
        }
