"""Cosmos' own video tokenizer, which is published as TorchScript: pixels to codes and back.

It compresses causally: the first frame alone, then every 8 frames, 16 x 16 pixels each.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from ...errors import SoonerError

TEMPORAL, SPATIAL = 8, 16


class PublishedTokenizer:
    """Runs `encoder.jit` and `decoder.jit` of Cosmos-1.0-Tokenizer-DV8x16x16.

    TorchScript files run the code inside them: load only files that you trust.

    Args:
        encoder_path: called with pixels, returns (ids, FSQ codes `[rows, levels, t, h, w]`, loss).
        decoder_path: called with ids, returns pixels.
        device, dtype: where and how both run; bf16 as published.
        levels: FSQ levels; an id counts them with the first as the lowest digit.
        rows_at_once: clips that go through together, which bounds the memory.

    Raises:
        SoonerError: no such file.
    """

    def __init__(
        self,
        encoder_path: str | Path,
        decoder_path: str | Path,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.bfloat16,
        levels: tuple[int, ...] = (8, 8, 8, 5, 5, 5),
        rows_at_once: int = 4,
    ) -> None:
        self.device, self.dtype = torch.device(device), dtype
        self.levels, self.rows_at_once = levels, rows_at_once
        self.encoder = self._load(Path(encoder_path))
        self.decoder = self._load(Path(decoder_path))

    def _load(self, file: Path) -> torch.jit.ScriptModule:
        if not file.is_file():
            raise SoonerError(
                f"no TorchScript file at {file}; give encoder.jit and decoder.jit of "
                "Cosmos-1.0-Tokenizer-DV8x16x16"
            )
        return torch.jit.load(file, map_location=self.device).eval().to(self.dtype)

    @torch.no_grad()
    def encode(self, pixels: Tensor) -> Tensor:
        """Returns codes of clips.

        Args:
            pixels: `[rows, 3, frames, height, width]` in -1..1; 1 + a multiple of 8 frames, sides
                that are multiples of 16.

        Returns:
            `[rows, 1 + (frames - 1) / 8, height / 16, width / 16]`, int64.

        Raises:
            SoonerError: pixels of another shape.
        """
        if pixels.ndim != 5 or pixels.shape[1] != 3:
            raise SoonerError(
                f"pixels are {list(pixels.shape)}; give [rows, 3, frames, height, width] in -1..1"
            )
        frames, height, width = pixels.shape[2:]
        if frames % TEMPORAL != 1 or height % SPATIAL or width % SPATIAL:
            raise SoonerError(
                f"a clip of {frames} frames, {height} x {width} can't be tokenized; give 1 + a "
                f"multiple of {TEMPORAL} frames and sides that are multiples of {SPATIAL}"
            )
        parts = []
        for part in pixels.to(self.device, self.dtype).split(self.rows_at_once):
            with torch.jit.optimized_execution(False):
                _, quantized, _ = self.encoder(part)
            parts.append(self._ids(quantized))
        return torch.cat(parts)

    @torch.no_grad()
    def decode(self, codes: Tensor) -> Tensor:
        """Decodes codes `[rows, t, h, w]`: `[rows, 3, 1 + 8 (t - 1), 16 h, 16 w]` in -1..1, fp32.

        Raises:
            SoonerError: codes of another shape.
        """
        if codes.ndim != 4:
            raise SoonerError(f"codes are {list(codes.shape)}; give [rows, t, h, w]")
        parts = []
        for part in codes.to(self.device).split(self.rows_at_once):
            with torch.jit.optimized_execution(False):
                parts.append(self.decoder(part).float())
        return torch.cat(parts).clamp(-1, 1)

    def _ids(self, quantized: Tensor) -> Tensor:
        """FSQ codes `[rows, levels, t, h, w]` in -1..1 to ids `[rows, t, h, w]`.

        As the published pipeline does, the encoder's own ids are unused: these are exact in bf16.
        """
        half = torch.tensor([level // 2 for level in self.levels], device=self.device)
        place = torch.tensor([1, *self.levels[:-1]], device=self.device).cumprod(0)
        digits = (quantized.float().movedim(1, -1) * half).round().long() + half
        return (digits * place).sum(-1)
