"""From pictures and instructions to a policy's inputs, as OpenVLA's published processor does.

Known from `predict_action` and `processing_prismatic.py` of the published code: the prompt's form,
patches behind the first token, and Llama's lone space at the end, which its tokenizer does not
write behind a colon but which every training prompt had.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import LlamaTokenizer, PreTrainedTokenizerFast

from ...errors import SoonerError, unknown
from .config import OpenVLAConfig, read_object
from .pictures import PictureForm

FILE = "openvla_processor.json"
PUBLISHED_FILE = "preprocessor_config.json"
PROMPT = "In: What action should the robot take to {instruction}?\nOut:"
LONGEST = 4096


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
            SoonerError: a picture of another kind or shape, an empty instruction, or not as many
                of one as of the other.
        """
        if isinstance(instructions, str):
            pictures, instructions = _only(pictures), [instructions]
        pictures = _listed(pictures)
        if len(pictures) != len(instructions) or not instructions:
            raise SoonerError(
                f"{len(pictures)} pictures and {len(instructions)} instructions do not pair; give "
                "one picture for each instruction"
            )
        ids, mask = self._padded([self.ids(instruction) for instruction in instructions])
        pixels = torch.stack([self.form(picture) for picture in pictures])
        return {"input_ids": ids, "attention_mask": mask, "pixel_values": pixels}

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

    def _padded(self, rows: list[list[int]]) -> tuple[Tensor, Tensor]:
        width = max(len(row) for row in rows)
        pad = self.tokenizer.pad_token_id or 0
        ids = [[pad] * (width - len(row)) + row for row in rows]
        mask = [[0] * (width - len(row)) + [1] * len(row) for row in rows]
        return torch.tensor(ids), torch.tensor(mask)

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the tokenizer, and beside it `openvla_processor.json`."""
        self.tokenizer.save_pretrained(folder)
        data = {
            "patches": self.patches,
            "image_token_id": self.image_token_id,
            "trailing_token_id": self.trailing_token_id,
            "prompt": self.prompt,
            "pictures": self.form.plain(),
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
    for key in raw:
        if key not in known:
            raise unknown(f"key in {FILE}", key, known)
    for key in ("patches", "pictures"):
        if key not in raw:
            raise SoonerError(f"{FILE} has no '{key}'; save the processor again")
    form = PictureForm.read(raw["pictures"])
    return {"form": form, **{key: value for key, value in raw.items() if key != "pictures"}}


def _only(pictures: Any) -> list[Any]:
    """Returns one picture as a list; a list of one stays."""
    return list(pictures) if isinstance(pictures, (list, tuple)) else [pictures]


def _listed(pictures: Any) -> list[Any]:
    if isinstance(pictures, (list, tuple)):
        return list(pictures)
    if getattr(pictures, "ndim", 0) == 4:  # [rows, height, width, 3]
        return list(pictures)
    return [pictures]
