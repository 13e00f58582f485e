"""Types that also draw: pictures are codes of a vocabulary, or embeddings of a tower."""

from __future__ import annotations

from . import words
from .plain import IDS, LLAMA, PATCHES, PICTURES, SIDE, TEXT
from .species import Species
from .tiny import tiny

CODES, FIRST = 24, 100
"""Ids of codes of pictures, and where they begin."""
BOI, EOI, EOL, EOF, PICTURE = 158, 157, 140, 141, 142
"""The first is said in none of the texts: Chameleon would go on with a whole picture, where its own
forward never says a code."""


def letters(code: int) -> str:
    return "".join(chr(ord("A") + int(digit)) for digit in str(code))


SHARED = {"embed_dim": 8, "base_channels": 32, "num_res_blocks": 1}
CHAMELEON = {
    "<s>": words.BOS, "<pad>": words.PAD, "</s>": words.EOS, "<image>": words.IMAGE,
    "<racm3:break>": BOI, "<eoss>": EOI,
    **{f"IMGIMG{letters(code)}Z": FIRST + code for code in range(CODES)},
}  # fmt: skip
chameleon = tiny(
    "chameleon",
    vq_config={
        **SHARED, "num_embeddings": CODES, "latent_channels": 32, "resolution": 16,
        "channel_multiplier": [1, 1, 1],
    },
    vocabulary_map=CHAMELEON,
    **TEXT,
)  # fmt: skip
EMU3 = {
    "<|extra_203|>": words.BOS, "<|extra_204|>": words.EOS, "<|image token|>": PICTURE,
    "<|image start|>": BOI, "<|image end|>": EOI, "<|extra_200|>": EOL, "<|extra_201|>": EOF,
    "<image>": words.IMAGE, "<|endoftext|>": words.PAD,
    **{f"<|visual token {code:06d}|>": FIRST + code for code in range(CODES)},
}  # fmt: skip
emu3 = tiny(
    "emu3",
    text_config={**TEXT, "attention_dropout": 0.0},
    vq_config={
        **SHARED, "codebook_size": CODES, "latent_channels": 8, "channel_multiplier": [1, 1],
        "attn_resolutions": [], "hidden_size": 32, "temporal_downsample_factor": 1,
    },
    vocabulary_map=EMU3,
)  # fmt: skip
WIDTH = TEXT["hidden_size"]
janus = tiny(
    "janus",
    text_config=LLAMA,
    vision_config={
        "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": SIDE,
        "patch_size": 7, "num_image_tokens": PATCHES, "projection_dim": WIDTH,
    },
    vq_config={
        **SHARED, "num_embeddings": CODES, "latent_channels": 32, "channel_multiplier": [1, 1, 1],
        "projection_dim": WIDTH, "image_token_embed_dim": WIDTH,
    },
    **IDS,
)  # fmt: skip

coded = words.picture_inputs([BOI, *[words.IMAGE] * 16, EOI], 3, 16, 16)
"""A picture is 4 x 4 codes."""
measured = words.picture_inputs(
    [BOI, 7, 9, 7, PICTURE, *[words.IMAGE] * 4 * 5, EOF, EOI], 3, 8, 8, image_sizes=[8, 8]
)
"""A picture is its size in words, and 4 lines of 4 codes, each with its end."""
embedded = words.picture_inputs([BOI, *[words.IMAGE] * PATCHES, EOI], 3, SIDE, SIDE)

SPECIES = (
    Species("chameleon", chameleon, coded, kinds=PICTURES),
    Species("emu3", emu3, measured, kinds=PICTURES),
    Species("janus", janus, embedded, kinds=PICTURES),
)
