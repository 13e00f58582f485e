"""Models that draw: from a hub id, a folder, or an installed miniature."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import torch
from huggingface_hub import snapshot_download
from transformers import AutoModelForImageTextToText, AutoProcessor, AutoTokenizer

from ... import miniatures
from ...checks import check_choice
from ...errors import SoonerError, did_you_mean
from ...methods.threads import Threads
from ...models.chameleon import LAYOUTS
from ...models.chameleon_files import VQGANDecoder, load_lumina
from ...models.cosmos_ar.checkpoint import load_published
from ...models.cosmos_ar.model import CosmosARForCausalLM
from ...models.cosmos_ar.tokenizer import SPATIAL, TEMPORAL, PublishedTokenizer
from ...models.model_types import config_dict
from ...models.silent import as_run
from ..identity import model_names
from ..loading import explained, pick_device, pick_dtype
from .drawing_model import LUMINA, DrawingModel, Kind, VideoTokenizer

FILES = ["*.json", "*.safetensors", "*.txt", "*.model"]
"""What is fetched of a hub id."""

SEPARATOR = "<reserved08706>"
"""Ends a turn of a conversation (`Conversation.sep_token` in Lumina-mGPT's code)."""

DECODER_FOLDERS = ("tokenizer", "ckpts/chameleon/tokenizer")
"""Where the published repositories have the decoder of codes."""

PREFIX_FRAMES = 9
"""Frames that Cosmos continues by default; the miniature does as it does."""

PUBLISHED_FPS = 25.0
JIT = ("encoder.jit", "decoder.jit")


def tokenizer_of(model: str, given: str | None) -> str | None:
    """Returns the tokenizer of codes that is given, or the folder of one in or beside a model's."""
    root = Path(model)
    places = *(root / below for below in DECODER_FOLDERS), root.parent / "tokenizer"
    return given or next((str(place) for place in places if place.is_dir()), None)


def chameleon_options(
    folder: str, device: torch.device, tokenizer: str | None, layout: str | None
) -> dict[str, Any]:
    """Returns options of a Chameleon's canvas: its layout, and the decoder that makes pixels of its
    codes, Meta's `vqgan.ckpt`.

    Args:
        tokenizer: the decoder's file or its folder, where it is not in the model's.

    Raises:
        SoonerError: no decoder; an unknown layout.
    """
    if layout is not None:
        check_choice("layout", layout, LAYOUTS)
    extra = {} if layout is None else {"layout": layout}
    root = Path(folder if tokenizer is None else tokenizer)
    for place in (root, *(root / below for below in DECODER_FOLDERS)):
        files = [place] if place.is_file() else []
        for end in ("ckpt", "safetensors"):
            files += place.glob(f"vqgan.{end}")
        if files:
            return {"decoder": VQGANDecoder(max(files), device), **extra}
    raise SoonerError(
        f"model '{folder}' is a Chameleon, whose codes transformers can't turn into pixels; give "
        "its vqgan.ckpt with --tokenizer"
    )


def load_processor(folder: str) -> Any:
    """Returns what makes a Chameleon's prompts; Lumina-mGPT is published with a tokenizer alone.

    Raises:
        SoonerError: the tokenizer does not know the end of a turn.
    """
    place, names = Path(folder), ("processor_config.json", "preprocessor_config.json")
    if not place.is_dir() or any((place / name).is_file() for name in names):
        return AutoProcessor.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    if SEPARATOR not in tokenizer.get_vocab():
        raise SoonerError(
            f"the tokenizer has no '{SEPARATOR}', which ends a prompt of Chameleon; give the "
            "model's own tokenizer.json"
        )
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    # Without a begin the end stands for it (`Tokenizer` in the published code).
    begin = tokenizer.bos_token or tokenizer.eos_token or ""

    def process(text: list[str], **options: Any) -> Any:
        whole = [begin + line + SEPARATOR for line in text]
        return tokenizer(whole, add_special_tokens=False, **options)

    return process


DRAWS = ("chameleon", "emu3", "janus")
"""Types that draw pictures from prompts."""

CONTINUES = "cosmos_ar"

MINIATURES = {"image": "image", "video": "motion"}


def load_drawing_model(
    model: str | None = None, kind: Kind = "image", *, device: str = "auto", dtype: str = "auto",
    threads: int | None = None, tokenizer: str | None = None, layout: str | None = None,
    trust_remote_code: bool = False,
) -> DrawingModel:  # fmt: skip
    """Load a model that draws.

    Args:
        model: hub id or folder; `None` takes the bundled miniature of the kind.
        kind: `"image"` for pictures from prompts, `"video"` to continue clips.
        device: `auto` (CUDA if there is any), `cpu`, `cuda`, `cuda:1`, ...
        dtype: `auto` (float32 on a CPU and for miniatures, else the checkpoint's own), or a name.
        threads: torch threads of this process, see `sooner.methods.threads.Threads`.
        tokenizer: folder of a video model's tokenizer, where it is not in or beside the model's;
            for Chameleon, what makes pixels of its codes (`vqgan.ckpt`).
        layout: how a Chameleon writes pictures as tokens, see `ChameleonCanvas`.
        trust_remote_code: run the code in a tokenizer's TorchScript files.

    Raises:
        SoonerError: an unknown model, type, device or dtype; says what can be had.
    """
    check_choice("kind", kind, get_args(Kind))
    planned = Threads.plan(threads, is_miniature=model is None)
    where = pick_device(device)
    precision = pick_dtype(dtype, where, is_small=model is None)
    folder = name = model_names(model, None, MINIATURES[kind])[0]
    clips = tokenizer
    if model is None:
        small = miniatures.find(MINIATURES[kind])
        name = f"miniature {small.name}"
        clips = tokenizer or (str(small.tokenizer) if small.tokenizer else None)
    planned.apply()
    if kind == "image":
        made = _load_image_model(folder, where, precision, tokenizer, layout)
    else:
        made = _load_video_model(folder, where, precision, clips, trust_remote_code)
    return DrawingModel(
        name, **made, dtype=dtype, miniature=model is None, folder=folder, tokenizer=tokenizer,
    )  # fmt: skip


def _load_image_model(
    folder: str, device: torch.device, dtype: Any, tokenizer: str | None, layout: str | None
) -> dict[str, Any]:
    kind = config_dict(folder)["model_type"]
    if kind not in DRAWS:
        hint = "; continue clips with it (--continue)" if kind == CONTINUES else ""
        raise SoonerError(
            f"model '{folder}' is of type '{kind}', which draws no pictures from prompts"
            f"{did_you_mean(kind, DRAWS)}{hint}; supported: {', '.join(DRAWS)}"
        )
    options: dict[str, Any] = {}
    with explained(folder, device):
        if kind == "chameleon":
            options = chameleon_options(folder, device, tokenizer, layout)
        if kind == "chameleon" and layout == LUMINA:
            # Its config has to be adapted for transformers, which needs the files in a folder.
            if not Path(folder).is_dir():
                folder = snapshot_download(folder, allow_patterns=FILES)
            model: Any = load_lumina(folder, None if dtype == "auto" else dtype)
        else:
            model = AutoModelForImageTextToText.from_pretrained(
                folder, dtype=dtype, attn_implementation="sdpa"
            )
        model = as_run(model, folder).to(device).eval()
        load = load_processor if kind == "chameleon" else AutoProcessor.from_pretrained
        return {"model": model, "processor": load(folder), "options": options}


def _load_video_model(
    folder: str, device: torch.device, dtype: Any, tokenizer: str | None, trust_remote_code: bool
) -> dict[str, Any]:
    with explained(folder, device):
        if _is_published(Path(folder)):
            model: Any = load_published(folder, None if dtype == "auto" else dtype)
        else:
            kind = config_dict(folder)["model_type"]
            if kind != CONTINUES:
                raise SoonerError(
                    f"model '{folder}' is of type '{kind}', which continues no clips; supported: "
                    f"{CONTINUES} (a folder as published, or saved by transformers)"
                )
            model = CosmosARForCausalLM.from_pretrained(folder, dtype=dtype)
        model = model.to(device).eval()
        clips = load_video_tokenizer(model, Path(folder), tokenizer, device, trust_remote_code)
        return {"model": model, "video_tokenizer": clips}


def _is_published(folder: Path) -> bool:
    """Returns weights under NVIDIA's names, whose config has no model type of transformers."""
    if (folder / "model.pt").is_file():
        return True
    if not (folder / "model.safetensors").is_file():
        return False
    config = folder / "config.json"
    try:
        return not config.is_file() or "model_type" not in json.loads(config.read_text())
    except ValueError as error:
        raise SoonerError(f"'{config}' is not JSON ({error}); fetch it again") from error


def load_video_tokenizer(
    model: Any, folder: Path, name: str | None, device: torch.device, trust_remote_code: bool
) -> VideoTokenizer:
    """Returns the tokenizer of a Cosmos model.

    Args:
        folder: of the model, in or beside which the tokenizer is looked for.
        name: folder of the tokenizer, if it is elsewhere.
        trust_remote_code: run the code in TorchScript files.

    Raises:
        SoonerError: none there; TorchScript that is not trusted, or sizes that are not the model's.
    """
    places = [folder, folder / "tokenizer", folder.parent / "tokenizer"]
    for place in places if name is None else [Path(name)]:
        is_published = all((place / file).is_file() for file in JIT)
        if is_published or (place != folder and (place / "config.json").is_file()):
            break
    else:
        raise SoonerError(
            f"'{name or folder}' holds no video tokenizer; give a folder with {' and '.join(JIT)} "
            "with --tokenizer"
        )
    latents, rows, columns = model.config.latent_shape
    if is_published:
        if not trust_remote_code:
            raise SoonerError(
                f"'{place}' holds TorchScript, which runs the code inside it; add "
                "--trust-remote-code if you trust these files"
            )
        dtype = torch.float32 if device.type == "cpu" else torch.bfloat16
        encoder, decoder = (place / file for file in JIT)
        tokenizer: Any = PublishedTokenizer(encoder, decoder, device=device, dtype=dtype)
        side, group, fps = SPATIAL, TEMPORAL, PUBLISHED_FPS
    else:
        try:
            from sooner_miniatures.motion_tokenizer import MotionTokenizer
        except ImportError as error:
            raise SoonerError(
                f"'{place}' is the tokenizer of a miniature; pip install ./miniatures"
            ) from error
        tokenizer = MotionTokenizer.from_pretrained(place, dtype=torch.float32)
        tokenizer = tokenizer.to(device).eval()
        config, codes = tokenizer.config, model.config.vocab_size
        side, group, fps = config.spatial, config.group, config.fps
        if (config.height, config.width, config.codes) != (rows * side, columns * side, codes):
            raise SoonerError(
                f"tokenizer '{place}' makes clips of {config.height}x{config.width} pixels with "
                f"{config.codes} codes, the model those of {rows * side}x{columns * side} with "
                f"{codes}; give its own"
            )
    prefix = 1 + (PREFIX_FRAMES - 1) // group
    return VideoTokenizer(tokenizer, rows * side, columns * side, group, latents, prefix, fps)
