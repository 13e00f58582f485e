"""A discrete video tokenizer, causal in time as Cosmos' is: the first frame alone, then groups.

Frames 1 + g * n become 1 + n latent frames of `height / s` x `width / s` codes (here g = 4 and
s = 4). A code says what happens in its own block of s x s x g pixels and nothing else, so that a
shape that moves by a block moves its codes along unchanged. The decoder sees a group, its
surroundings and the groups before it. So neither a code nor a pixel hangs on later frames: the
first nine frames encode alone to what they encode to inside a longer clip, and a clip can be
decoded as it is generated.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional
from transformers import PretrainedConfig, PreTrainedModel

from sooner.errors import SoonerError


class MotionTokenizerConfig(PretrainedConfig):
    """The sizes that a tokenizer has.

    Args:
        height, width: of a frame, in pixels; multiples of `spatial`.
        spatial: pixels along each side of a token.
        group: frames of a latent frame after the first.
        channels: of both towers.
        blocks: residual blocks of each tower.
        codes: size of the codebook, the AR model's vocabulary.
        code_width: channels of a code.
        fps: frames a second of the clips that it was trained on.
    """

    model_type = "sooner_motion_tokenizer"

    def __init__(
        self,
        height: int = 40,
        width: int = 48,
        spatial: int = 4,
        group: int = 4,
        channels: int = 96,
        blocks: int = 3,
        codes: int = 768,
        code_width: int = 16,
        fps: float = 12.0,
        **kwargs: object,
    ) -> None:
        self.height, self.width = height, width
        self.spatial, self.group = spatial, group
        self.channels, self.blocks = channels, blocks
        self.codes, self.code_width = codes, code_width
        self.fps = fps
        super().__init__(**kwargs)  # type: ignore[arg-type]

    def latent_shape(self, frames: int) -> tuple[int, int, int]:
        """Returns latent frames, rows and columns of a clip; SoonerError unless frames = 1
        + g * n.
        """
        if frames < 1 or (frames - 1) % self.group:
            raise SoonerError(
                f"a clip of {frames} frames can't be tokenized: "
                f"give 1 + {self.group} * n frames, such as {1 + 2 * self.group}"
            )
        return (
            1 + (frames - 1) // self.group,
            self.height // self.spatial,
            self.width // self.spatial,
        )


class Norm(nn.LayerNorm):
    """Normalises each block's channels, for [rows, channels, h, w]."""

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return super().forward(hidden.movedim(1, -1)).movedim(-1, 1)


class ResidualBlock(nn.Module):
    """A residual convolution that sees each block alone or, if `causal`, 3x3 now and 3x3 before."""

    def __init__(self, channels: int, causal: bool) -> None:
        super().__init__()
        self.norm = Norm(channels)
        side = 3 if causal else 1
        self.mix = nn.Conv2d(channels, channels, side, padding=side // 2)
        self.past = nn.Conv2d(channels, channels, 3, padding=1) if causal else None
        self.out = nn.Conv2d(channels, channels, 1)

    def forward(self, hidden: torch.Tensor, frames: int) -> torch.Tensor:
        """`hidden` is [rows * frames, channels, h, w]; so is what returns."""
        seen = self.norm(hidden)
        mixed = self.mix(seen)
        if self.past is not None:
            earlier = self.past(seen).unflatten(0, (-1, frames))[:, :-1]
            mixed = mixed + functional.pad(earlier, (0, 0, 0, 0, 0, 0, 1, 0)).flatten(0, 1)
        return hidden + self.out(functional.silu(mixed))


class MotionTokenizer(PreTrainedModel):
    """Encodes clips as codes and decodes them, with a codebook. Pixels are floats -1..1, codes are
    int64 0..codes-1."""

    config_class = MotionTokenizerConfig
    config: MotionTokenizerConfig
    main_input_name = "pixels"

    def __init__(self, config: MotionTokenizerConfig) -> None:
        super().__init__(config)
        patch, channels = 3 * config.spatial**2, config.channels
        self.first_in = nn.Linear(patch, channels)
        self.group_in = nn.Linear(patch * config.group, channels)
        self.encoder = nn.ModuleList(ResidualBlock(channels, False) for _ in range(config.blocks))
        self.to_code = nn.Conv2d(channels, config.code_width, 1)
        self.codebook = nn.Embedding(config.codes, config.code_width)
        self.from_code = nn.Conv2d(config.code_width, channels, 3, padding=1)
        self.decoder = nn.ModuleList(ResidualBlock(channels, True) for _ in range(config.blocks))
        self.first_out = nn.Linear(channels, patch)
        self.group_out = nn.Linear(channels, patch * config.group)
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        """Leave torch's own initialisation: HF's default is too quiet for convolutions."""

    @torch.no_grad()
    def encode(self, pixels: torch.Tensor) -> torch.Tensor:
        """Returns codes [rows, t, h, w] of pixels [rows, 3, frames, height, width].

        Raises:
            SoonerError: frames of another size or number than the tokenizer takes.
        """
        latent, book = self.embed(pixels), self.codebook.weight
        flat = latent.flatten(0, -2)  # [n, code_width]
        # |a - b|^2 without |a|^2, which is the same for every code
        distance = book.square().sum(1) - 2 * flat @ book.T  # [n, codes]
        return distance.argmin(1).unflatten(0, latent.shape[:-1])

    @torch.no_grad()
    def decode(self, codes: torch.Tensor) -> torch.Tensor:
        """Returns pixels [rows, 3, frames, height, width], -1..1, of codes [rows, t, h, w]."""
        config, frames = self.config, codes.shape[1]
        s = config.spatial
        latent = self.codebook(codes)  # [rows, t, h, w, code_width]
        hidden = self.from_code(latent.flatten(0, 1).permute(0, 3, 1, 2))
        for block in self.decoder:
            hidden = block(hidden, frames)
        hidden = hidden.permute(0, 2, 3, 1).unflatten(0, (-1, frames))  # [rows, t, h, w, channels]
        first = self.first_out(hidden[:, :1])
        groups = self.group_out(hidden[:, 1:]).unflatten(-1, (config.group, -1))
        groups = groups.permute(0, 1, 4, 2, 3, 5).flatten(1, 2)  # [rows, g * (t - 1), h, w, patch]
        cells = torch.cat([first, groups], dim=1).unflatten(-1, (3, s, s))
        return cells.permute(0, 4, 1, 2, 5, 3, 6).flatten(5, 6).flatten(3, 4).clamp(-1, 1)

    def embed(self, pixels: torch.Tensor) -> torch.Tensor:
        """Returns what the encoder says before quantisation: [rows, t, h, w, code_width]."""
        config = self.config
        if tuple(pixels.shape[-2:]) != (config.height, config.width):
            raise SoonerError(
                f"frames of {pixels.shape[-2]} x {pixels.shape[-1]} pixels can't be tokenized: "
                f"scale them to {config.height} x {config.width}"
            )
        frames, rows, columns = config.latent_shape(pixels.shape[2])
        s = config.spatial
        cells = pixels.unflatten(4, (columns, s)).unflatten(3, (rows, s))
        cells = cells.permute(0, 2, 3, 5, 1, 4, 6).flatten(4)  # [rows, frames, h, w, patch]
        groups = cells[:, 1:].unflatten(1, (frames - 1, config.group))
        groups = groups.permute(0, 1, 3, 4, 2, 5).flatten(4)  # [rows, t - 1, h, w, g * patch]
        hidden = torch.cat([self.first_in(cells[:, :1]), self.group_in(groups)], dim=1)
        hidden = hidden.flatten(0, 1).permute(0, 3, 1, 2)  # [rows * t, channels, h, w]
        for block in self.encoder:
            hidden = block(hidden, frames)
        return self.to_code(hidden).permute(0, 2, 3, 1).unflatten(0, (-1, frames))
