"""What a target is asked while it is recorded: a user's files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from PIL import Image, UnidentifiedImageError

from ... import miniatures
from ...checks import check_keys
from ...errors import SoonerError, reason_of
from ...models import adapt
from ...models.openvla.config import OpenVLAConfig
from ...models.openvla.processing import OpenVLAProcessor
from ...models.openvla.statistics import ActionStatistics
from ..clip import prepare
from ..identity import find
from ..loading import ModelPair
from ..prompting import GENERAL_PROMPT, chat
from ..settings import CaptionSettings
from .dataset import DataSet
from .recording import OnBatch, record
from .settings import PromptSource, Recipe

KEYS = ("image", "prompt", "video")
LONGEST = 256
"""Tokens of an answer in words."""


@dataclass(frozen=True)
class FilePrompt:
    """A file and what is asked about it.

    Attributes:
        path: of a video or an image.
        is_image: which of them.
        prompt: `None` is the model's usual one.
    """

    path: Path
    is_image: bool = False
    prompt: str | None = None


def read_questions(source: Path | str) -> list[FilePrompt]:
    """Returns the questions of a JSONL file of `{"video" or "image": path, "prompt": text}`, whose
    paths are relative to it, or of a folder of videos.

    Raises:
        SoonerError: nothing there; a line that is no question, by its number; a file that is not
            there.
    """
    root = Path(source)
    if root.suffix.lower() not in (".jsonl", ".json"):
        return [FilePrompt(path) for path in find([root])]
    try:
        lines = root.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SoonerError(f"'{root}' can't be read: {reason_of(error)}") from error
    questions = [
        _question(line, f"'{root}' line {number}", root.parent)
        for number, line in enumerate(lines, start=1)
        if line.strip()
    ]
    if not questions:
        raise SoonerError(f"'{root}' is empty; give one question a line")
    return questions


def _question(line: str, where: str, home: Path) -> FilePrompt:
    try:
        data = json.loads(line)
    except ValueError as error:
        raise SoonerError(f"{where} is no JSON: {error}") from error
    if not isinstance(data, dict) or ("video" in data) == ("image" in data):
        raise SoonerError(f"{where} needs either 'video' or 'image', and may have 'prompt'")
    check_keys(f"key in {where}", data, KEYS)
    path = home / str(data.get("video", data.get("image")))
    if not path.is_file():
        raise SoonerError(f"{where}: file '{path}' does not exist; check the path")
    return FilePrompt(path, "image" in data, data.get("prompt"))


def ask(
    questions: list[FilePrompt], pair: ModelPair, settings: CaptionSettings
) -> Iterator[dict[str, Any]]:
    """Yields processed inputs of each question, a batch of one.

    Args:
        questions: in order.
        pair: its target is asked.
        settings: frames and the general prompt.

    Raises:
        SoonerError: a file that can't be read, or is too long for the model.
    """
    for question in questions:
        if question.is_image:
            yield _image_inputs(question, pair, settings)
        else:
            options = replace(settings, prompt=question.prompt or settings.prompt)
            yield prepare(question.path, pair, options).inputs


def _image_inputs(
    question: FilePrompt, pair: ModelPair, settings: CaptionSettings
) -> dict[str, Any]:
    target = pair.target
    try:
        picture = Image.open(question.path).convert("RGB")
    except (OSError, UnidentifiedImageError) as error:
        raise SoonerError(f"image '{question.path}' can't be read: {reason_of(error)}") from error
    prompt = question.prompt or settings.prompt or pair.prompt or GENERAL_PROMPT
    if isinstance(target.processor, OpenVLAProcessor):  # the prompt is the instruction
        batch = target.processor([picture], [prompt])
    else:
        text = chat(target.processor, prompt, "image")
        batch = target.processor(text=[text], images=[picture], return_tensors="pt")
    return {
        name: value.to(target.model.dtype) if name.startswith("pixel_values") else value
        for name, value in batch.items()
    }


def record_answers(
    pair: ModelPair,
    folder: Path,
    source: PromptSource,
    recipe: Recipe,
    on_batch: OnBatch | None = None,
) -> DataSet:
    """Returns the recording to train on, made in `folder` or continued there if need be.

    Raises:
        SoonerError: nothing to ask the model, or files that can't be read.
    """
    if source.data is not None and (source.data / "index.json").is_file():
        return DataSet.open(source.data)
    longest = source.max_new_tokens or _answer(pair.target.model)
    settings = CaptionSettings(prompt=source.prompt, frames=source.frames, max_new_tokens=longest)
    if source.data is not None:
        batches = ask(read_questions(source.data), pair, settings)
    elif pair.miniature is not None:
        batches = miniatures.find(pair.miniature).function("ask")(pair, source.samples)
    else:
        raise SoonerError(
            f"model '{pair.target.name}' needs --data: a folder of videos, or JSONL of "
            "{video|image, prompt}"
        )
    target = adapt(pair.target.model)
    layers = recipe.recorded_layers(target.layers)
    return record(target.model, batches, folder, longest, layers=layers, on_batch=on_batch)


def _answer(model: Any) -> int:
    """Returns tokens of an answer: a policy's are counted, since no token ends them."""
    if not isinstance(model.config, OpenVLAConfig):
        return LONGEST
    known = model.config.norm_stats or {}
    dims = {ActionStatistics.choose(known, key).dims for key in known}
    return int(model.config.action_horizon * max(dims))
