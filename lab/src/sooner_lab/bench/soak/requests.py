"""Well-formed requests whose answers are always the same, and what their answers say."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from typing import Any

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
PROMPT = "describe the scenes in order ."


@dataclass(frozen=True)
class SoakRequest:
    """One request; greedy or with a seed.

    Attributes:
        name: such as `chat clip`.
        path: where it is sent.
        body: without `stream`.
        media: names of `Media` of the user's message, in their order.
    """

    name: str
    path: str
    body: dict[str, Any] = field(repr=False)
    media: tuple[str, ...] = ()

    def encoded(self, urls: dict[str, str], **more: Any) -> bytes:
        """The body as it is sent.

        Args:
            urls: data URIs of its media.
            more: fields, such as `stream`.
        """
        body = {**self.body, **more}
        if self.path == CHAT:
            parts: list[dict[str, Any]] = []
            for name in self.media:
                kind = "video_url" if name.startswith("clip") else "image_url"
                parts.append({"type": kind, kind: {"url": urls[name]}})
            parts.append({"type": "text", "text": body.pop("text")})
            content: Any = parts if self.media else parts[0]["text"]
            body["messages"] = [{"role": "user", "content": content}]
        return json.dumps(body).encode()


@dataclass(frozen=True)
class SoakAnswer:
    """What an answer says: of each choice its text and why it ended."""

    choices: tuple[tuple[str, str], ...]

    @staticmethod
    def of(data: dict[str, Any]) -> SoakAnswer:
        """Reads an answer that came whole."""
        choices = []
        for choice in sorted(data["choices"], key=lambda choice: choice["index"]):
            text = choice["message"]["content"] if "message" in choice else choice["text"]
            choices.append((text or "", choice["finish_reason"]))
        return SoakAnswer(tuple(choices))

    @staticmethod
    def of_stream(raw: bytes) -> SoakAnswer:
        """Reads a stream.

        Raises:
            ValueError: it is none, has no end, or tells of an error.
        """
        frames = raw.split(b"\n\n")
        if frames[-2:] != [b"data: [DONE]", b""]:
            raise ValueError(f"the stream ends with {raw[-200:]!r}")
        texts: dict[int, str] = {}
        reasons: dict[int, str] = {}
        for frame in frames[:-2]:
            if frame == b": ping":
                continue
            data = json.loads(frame.removeprefix(b"data: "))
            if "error" in data:
                raise ValueError(f"the stream ends with {data['error']}")
            for choice in data["choices"]:
                piece = choice["delta"].get("content") if "delta" in choice else choice["text"]
                texts[choice["index"]] = texts.get(choice["index"], "") + (piece or "")
                if choice.get("finish_reason"):
                    reasons[choice["index"]] = choice["finish_reason"]
        return SoakAnswer(tuple((texts[index], reasons.get(index, "")) for index in sorted(texts)))


def requests() -> list[SoakRequest]:
    """All that a soak asks for, of a model that sees clips and pictures."""
    drawn: dict[str, Any] = {"temperature": 1.0}
    made: list[SoakRequest] = []

    def chat(name: str, media: tuple[str, ...] = (), text: str = PROMPT, **more: Any) -> None:
        made.append(SoakRequest(name, CHAT, {"text": text, "max_tokens": 40, **more}, media))

    def complete(name: str, prompt: Any, **more: Any) -> None:
        made.append(SoakRequest(name, TEXT, {"prompt": prompt, "max_tokens": 40, **more}))

    chat("chat")
    chat("chat", text="what happens in every scene ?")
    chat("chat long", text="describe the red circle and the blue star " * 40, max_tokens=12)
    chat("chat stop", stop=["moves", "on"])
    for seed in (1, 2):
        chat("chat seed", **drawn, seed=seed)
    chat("chat n", **drawn, seed=3, n=3)
    for number in range(CLIPS):
        chat("chat clip", (f"clip-{number}",), max_tokens=120)
    chat("chat clip seed", ("clip-0",), **drawn, seed=4, n=2)
    chat("chat clip what", ("clip-1",), "what happens in every scene ?", max_tokens=60)
    for number in range(PICTURES):
        chat("chat picture", (f"picture-{number}",), "describe this", max_tokens=20)
    chat("chat pictures", ("picture-0", "picture-1"), "describe this", max_tokens=20)
    chat("chat both", ("picture-1", "clip-1"), max_tokens=30)
    complete("completion", "the red circle moves")
    complete("completion", ["the blue star", "a green square on a white background"])
    complete("completion ids", [6, 7, 8, 9, 10])
    complete("completion seed", "scene one", **drawn, seed=5, n=2)
    return made


CLIPS, PICTURES = 3, 3


def data_uri(kind: str, content: bytes) -> str:
    """Content as a URL."""
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"
