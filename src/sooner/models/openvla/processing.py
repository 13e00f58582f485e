"""From pictures and instructions to a policy's inputs, as OpenVLA's published processor does.

Known from `predict_action` and `processing_prismatic.py` of the published code: the prompt's form,
patches behind the first token, and Llama's lone space at the end, which its tokenizer does not
write behind a colon but which every training prompt had.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from transformers import LlamaTokenizer, PreTrainedTokenizerFast

from ...checks import check_keys, check_picture_size, check_pixels, check_whole
from ...errors import SoonerError, UnsupportedError
from ..canvas import left_padded
from ..checkpoint import read_object
from .config import OpenVLAConfig

FILE = "openvla_processor.json"
PUBLISHED_FILE = "preprocessor_config.json"
PROMPT = "In: What action should the robot take to {instruction}?\nOut:"
LONGEST = 4096
Triple = tuple[float, float, float]


@dataclass(frozen=True)
class PictureForm:
    """Says which size and normalisation pictures have.

    A picture is stretched to the square by PIL's bicubic filter, which is "resize-naive" in
    OpenVLA's code, divided by 255 and normalised. The defaults are timm's for the two towers; a
    published `preprocessor_config.json` may say otherwise (OpenVLA's was rounded to bfloat16).

    Args:
        side: of the square, in pixels.
        means, stds: by channel, of DINOv2 and of SigLIP.

    Raises:
        SoonerError: a side below 1, or a triple that is none.
    """

    side: int = 224
    means: tuple[Triple, Triple] = ((0.485, 0.456, 0.406), (0.5, 0.5, 0.5))
    stds: tuple[Triple, Triple] = ((0.229, 0.224, 0.225), (0.5, 0.5, 0.5))

    def __post_init__(self) -> None:
        check_whole("side", self.side)
        for name in ("means", "stds"):
            object.__setattr__(self, name, _pair(name, getattr(self, name)))
        if min(value for triple in self.stds for value in triple) <= 0:
            raise SoonerError(f"stds {list(self.stds)} are not all above 0; check the processor")

    @classmethod
    def published(cls, config: Mapping[str, Any], side: int) -> PictureForm:
        """Reads the form from a published `preprocessor_config.json`.

        Raises:
            UnsupportedError: another resizing than "resize-naive", or bicubic.
        """
        strategy = config.get("image_resize_strategy", "resize-naive")
        if strategy != "resize-naive":
            raise UnsupportedError(
                f"image_resize_strategy '{strategy}' is not built in; only 'resize-naive' is"
            )
        for name in config.get("interpolations") or ():
            if name != "bicubic":
                raise UnsupportedError(f"interpolation '{name}' is not built in; only 'bicubic' is")
        fields = {name: config[name] for name in ("means", "stds") if config.get(name)}
        return cls(side, **fields)

    def __call__(self, picture: Any) -> Tensor:
        """A picture to `[6, side, side]`, float32: DINOv2's channels, then SigLIP's.

        Args:
            picture: PIL, or `[height, width, 3]` uint8.

        Raises:
            SoonerError: as `as_image`.
        """
        square = np.array(self.fitted(picture))  # [side, side, 3]
        pixels = torch.from_numpy(square).permute(2, 0, 1).float() / 255  # [3, side, side]
        means, stds = (torch.tensor(each)[..., None, None] for each in (self.means, self.stds))
        return torch.cat([*(pixels - means) / stds])  # of [2, 3, side, side]

    def fitted(self, picture: Any) -> Image.Image:
        """Returns a picture as the RGB square that the towers see; such a square stays as it is.

        Raises:
            SoonerError: as `as_image`.
        """
        image = as_image(picture).convert("RGB")
        return image.resize((self.side, self.side), Image.Resampling.BICUBIC)


def as_image(picture: Any) -> Image.Image:
    """A picture as PIL has it, checked.

    Raises:
        SoonerError: neither PIL nor `[height, width, 3]` uint8; empty; more than 25 megapixels.
    """
    if isinstance(picture, Image.Image):
        check_picture_size(picture.width, picture.height)
        return picture
    if isinstance(picture, Tensor):
        picture = picture.detach().cpu().numpy()
    if not isinstance(picture, np.ndarray):
        raise SoonerError(
            f"a picture is a {type(picture).__name__}; give PIL or a uint8 array [height, width, 3]"
        )
    check_pixels(str(picture.dtype), list(picture.shape))
    return Image.fromarray(np.ascontiguousarray(picture))


def _pair(name: str, values: Any) -> tuple[Triple, Triple]:
    try:
        first, second = (tuple(float(value) for value in triple) for triple in values)
    except (TypeError, ValueError):
        first = second = ()
    if len(first) != 3 or len(second) != 3:
        raise SoonerError(f"{name} {values!r} are not three numbers for each of two towers")
    return first, second


class OpenVLAProcessor:
    """Makes `input_ids`, `attention_mask` and `pixel_values`.

    Args:
        tokenizer: of the decoder; it has to know a first token (BOS).
        form: size and normalisation of pictures.
        patches: of a picture; so many placeholders stand behind the first token.
        image_token_id, trailing_token_id: as in `OpenVLAConfig`.
        prompt: with `{instruction}`, which is written in lower case.

    Raises:
        SoonerError: a tokenizer without BOS; a prompt without `{instruction}`.
    """

    def __init__(
        self,
        tokenizer: Any,
        form: PictureForm,
        patches: int,
        image_token_id: int = 32_001,
        trailing_token_id: int = 29_871,
        prompt: str = PROMPT,
    ) -> None:
        if tokenizer.bos_token_id is None:
            raise SoonerError(
                "the tokenizer has no BOS token, behind which OpenVLA puts the picture; give the "
                "policy's own tokenizer"
            )
        if "{instruction}" not in prompt:
            raise SoonerError(f"prompt {prompt!r} has no place for the {{instruction}}; add it")
        self.tokenizer = tokenizer
        self.form = form
        self.patches = patches
        self.image_token_id = image_token_id
        self.trailing_token_id = trailing_token_id
        self.prompt = prompt

    @classmethod
    def of(
        cls, tokenizer: Any, config: OpenVLAConfig, form: PictureForm | None = None
    ) -> OpenVLAProcessor:
        """Returns the processor of a policy; the picture's size is the towers'."""
        return cls(
            tokenizer,
            PictureForm(config.image_size) if form is None else form,
            config.siglip_patches,
            config.image_token_id,
            config.trailing_token_id,
        )

    def __call__(self, pictures: Any, instructions: str | Sequence[str]) -> dict[str, Tensor]:
        """Returns inputs of one observation, or of several at once.

        Args:
            pictures: one for each instruction: PIL or `[height, width, 3]` uint8, RGB.
            instructions: one, or a list of them.

        Returns:
            `input_ids` and `attention_mask` `[rows, width]`, padded on the left, and
            `pixel_values [rows, 6, side, side]`.

        Raises:
            SoonerError: a picture of another kind, an empty instruction, or unequal numbers.
        """
        if isinstance(instructions, str):
            instructions = [instructions]
        # One, several, or the rows of `[rows, height, width, 3]`.
        is_many = isinstance(pictures, (list, tuple)) or getattr(pictures, "ndim", 0) == 4
        pictures = list(pictures) if is_many else [pictures]
        if len(pictures) != len(instructions) or not instructions:
            raise SoonerError(
                f"{len(pictures)} pictures and {len(instructions)} instructions do not pair; give "
                "one picture for each instruction"
            )
        prompts = [self.ids(instruction) for instruction in instructions]
        pixels = torch.stack([self.form(picture) for picture in pictures])
        return {**left_padded(prompts, self.tokenizer.pad_token_id or 0), "pixel_values": pixels}

    def fitted(self, picture: Any) -> np.ndarray:
        """Returns a picture as the towers' square, uint8 `[side, side, 3]`.

        Inputs of that square are those of the picture, so resizing can be done ahead, in another
        thread than the model's.

        Raises:
            SoonerError: a picture of another kind or shape.
        """
        return np.array(self.form.fitted(picture))

    def ids(self, instruction: str) -> list[int]:
        """Returns ids of one prompt: BOS, the patches, the words, the trailing token.

        Raises:
            SoonerError: no text, an empty one, or one of more than 4,096 characters.
        """
        ids = self.tokenizer(self.text(instruction), add_special_tokens=False).input_ids
        if not ids or ids[-1] != self.trailing_token_id:
            ids = [*ids, self.trailing_token_id]
        return [self.tokenizer.bos_token_id, *[self.image_token_id] * self.patches, *ids]

    def text(self, instruction: str) -> str:
        """Returns the prompt as a text."""
        if not isinstance(instruction, str):
            kind = type(instruction).__name__
            raise SoonerError(f"instruction is a {kind}; give a text such as 'open the drawer'")
        if not instruction.strip():
            raise SoonerError("instruction is empty; say what the robot is to do")
        if len(instruction) > LONGEST:
            raise SoonerError(
                f"instruction has {len(instruction)} characters; at most {LONGEST} are read"
            )
        return self.prompt.replace("{instruction}", instruction.lower())

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the tokenizer, and beside it `openvla_processor.json`."""
        self.tokenizer.save_pretrained(folder)
        data = {
            "patches": self.patches,
            "image_token_id": self.image_token_id,
            "trailing_token_id": self.trailing_token_id,
            "prompt": self.prompt,
            "pictures": asdict(self.form),
        }
        (Path(folder) / FILE).write_text(json.dumps(data, indent=2) + "\n")

    @classmethod
    def from_pretrained(
        cls, folder: str | Path, config: OpenVLAConfig | None = None
    ) -> OpenVLAProcessor:
        """Read what `save_pretrained` wrote, or, with the policy's config, a published checkpoint.

        Raises:
            SoonerError: the file is no JSON, or has an unknown key; neither file nor config.
        """
        folder = Path(folder)
        data = read_object(folder / FILE)
        if data is None and config is None:
            raise SoonerError(f"'{folder}' has no {FILE}; give the policy's config as well")
        tokenizer = read_tokenizer(folder)
        if data is not None:
            return cls(tokenizer, **_checked(data))
        assert config is not None
        published = read_object(folder / PUBLISHED_FILE) or {}
        form = PictureForm.published(published, config.image_size)
        return cls.of(tokenizer, config, form)


def read_tokenizer(folder: Path) -> Any:
    """Returns the tokenizer in a folder, by class.

    transformers' `AutoTokenizer` would ask to run the Python files that a published config names.

    Raises:
        SoonerError: there is none.
    """
    if (folder / "tokenizer.json").is_file():
        return PreTrainedTokenizerFast.from_pretrained(folder)
    if (folder / "tokenizer.model").is_file():
        return LlamaTokenizer.from_pretrained(folder)
    raise SoonerError(f"'{folder}' has no tokenizer.json; save the policy's tokenizer there")


def _checked(raw: Mapping[str, Any]) -> dict[str, Any]:
    known = ("patches", "image_token_id", "trailing_token_id", "prompt", "pictures")
    check_keys(f"key in {FILE}", raw, known)
    for key in ("patches", "pictures"):
        if key not in raw:
            raise SoonerError(f"{FILE} has no '{key}'; save the processor again")
    check_keys("key of a picture form", raw["pictures"], PictureForm)
    fields = {key: value for key, value in raw.items() if key != "pictures"}
    return {"form": PictureForm(**raw["pictures"]), **fields}
