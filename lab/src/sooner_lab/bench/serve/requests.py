"""What is asked: chats about clips of the miniature's world, and chats without one."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..clips import rendered
from .load import HttpRequest
from .settings import ServeBenchSettings

PATH = "/v1/chat/completions"
SCENES = (2, 3, 4)
"""Scenes of the clips, by turns: answers of 46 to 92 tokens."""


@dataclass(frozen=True)
class ServeQuestion:
    """A request, whatever it is asked of.

    Attributes:
        text: of the message.
        max_tokens: new tokens at most.
        clip: a file that it is about; `None` is text alone.
    """

    text: str
    max_tokens: int
    clip: Path | None = None
    content: bytes = field(default=b"", repr=False)

    def http(self, number: int, copy: int, origins: bool = False) -> HttpRequest:
        """The request to a server.

        Args:
            number: of this question.
            copy: the clip goes under bytes of its own for each, so that no server knows it.
            origins: ask for the ids of the tokens.
        """
        content: Any = self.text
        if self.clip is not None:
            data = base64.b64encode(self.content + free_box(copy)).decode()
            content = [
                {"type": "video_url", "video_url": {"url": f"data:video/mp4;base64,{data}"}},
                {"type": "text", "text": self.text},
            ]
        body = {
            "messages": [{"role": "user", "content": content}],
            "max_tokens": self.max_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if origins:
            body["return_token_origins"] = True
        return HttpRequest(number, PATH, json.dumps(body).encode())


def free_box(number: int) -> bytes:
    """A box of MP4 that means nothing to a decoder, other bytes for each number (ISO 14496-12)."""
    return struct.pack(">I4sQ", 16, b"free", number)


class Copies:
    """Numbers of copies of clips: each is given once in a run."""

    def __init__(self) -> None:
        self.next_copy = 0

    def http(
        self, questions: Sequence[ServeQuestion], order: Sequence[int], origins: bool = False
    ) -> list[HttpRequest]:
        """The requests of an order, each clip under bytes that no server has seen."""
        first = self.next_copy
        self.next_copy += len(order)
        return [
            questions[number].http(number, first + place, origins)
            for place, number in enumerate(order)
        ]


def questions(settings: ServeBenchSettings, folder: Path) -> list[ServeQuestion]:
    """The mix: clips of `SCENES` scenes each with a question, and questions without a clip.

    Args:
        folder: where the clips are written.
    """
    from ...worlds.video.world import PROMPT, PROMPTS

    made = []
    for place in range(settings.clips):
        scenes = SCENES[place % len(SCENES)]
        (file,) = rendered(_made(folder / f"{place}"), 1, settings.seed + place, scenes).files
        made.append(ServeQuestion(PROMPT, settings.clip_tokens, file, file.read_bytes()))
    for place in range(settings.texts):
        text = PROMPTS[1 + place % (len(PROMPTS) - 1)]
        made.append(ServeQuestion(text, settings.text_tokens))
    return made


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder
