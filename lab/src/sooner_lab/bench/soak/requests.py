"""Well-formed requests whose answers are always the same, the files that they show, and answers."""

from __future__ import annotations

import base64
import io
import json
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CHAT = "/v1/chat/completions"
PROMPT = "describe the scenes in order ."
CLIPS, PICTURES = 3, 3
VARIANTS = 24
"""Contents of each file that show the same: so few that caches have all of them before half of a
soak is over, as what they keep is not what is looked for."""

Answer = tuple[tuple[str, str], ...]
"""What an answer says: of each choice its text and why it ended."""


@dataclass(frozen=True)
class SoakRequest:
    """One request; greedy or with a seed.

    Attributes:
        name: such as `chat clip`.
        body: without `stream`.
        media: names of files of the user's message, in their order.
    """

    name: str
    body: dict[str, Any] = field(repr=False)
    media: tuple[str, ...] = ()

    def encoded(self, urls: dict[str, str], **more: Any) -> bytes:
        """Return the body as it is sent.

        Args:
            urls: data URIs of its media.
            more: fields, such as `stream`.
        """
        body = {**self.body, **more}
        parts = [media_part(name, urls[name]) for name in self.media]
        parts.append({"type": "text", "text": body.pop("text")})
        content: Any = parts if self.media else parts[0]["text"]
        body["messages"] = [{"role": "user", "content": content}]
        return json.dumps(body).encode()


def media_part(name: str, url: str) -> dict[str, Any]:
    """Return the part of a message that shows a file."""
    kind = "video_url" if name.startswith("clip") else "image_url"
    return {"type": kind, kind: {"url": url}}


def read_answer(data: dict[str, Any]) -> Answer:
    """Read an answer that came whole."""
    choices = sorted(data["choices"], key=lambda choice: choice["index"])
    texts = [choice["message"]["content"] for choice in choices]
    reasons = [choice["finish_reason"] for choice in choices]
    return tuple((text or "", reason) for text, reason in zip(texts, reasons, strict=True))


def read_stream(raw: bytes) -> Answer:
    """Read a stream.

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
            piece = choice["delta"].get("content")
            texts[choice["index"]] = texts.get(choice["index"], "") + (piece or "")
            if choice.get("finish_reason"):
                reasons[choice["index"]] = choice["finish_reason"]
    return tuple((texts[index], reasons.get(index, "")) for index in sorted(texts))


def requests() -> list[SoakRequest]:
    """Return all that a soak asks for, of a model that sees clips and pictures."""
    drawn: dict[str, Any] = {"temperature": 1.0}
    made: list[SoakRequest] = []

    def chat(name: str, media: tuple[str, ...] = (), text: str = PROMPT, **more: Any) -> None:
        made.append(SoakRequest(name, {"text": text, "max_tokens": 40, **more}, media))

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
    return made


def contents(sample: Path, seed: int) -> dict[str, bytes]:
    """Return the files that requests show, by name.

    Args:
        sample: the miniature's own clip, which is the first.
        seed: of the others.
    """
    from ..clips import rendered

    with tempfile.TemporaryDirectory() as folder:
        more = [path.read_bytes() for path in rendered(Path(folder), CLIPS - 1, seed, 4).files]
    made = {f"clip-{number}": clip for number, clip in enumerate([sample.read_bytes(), *more])}
    for number in range(PICTURES):
        made[f"picture-{number}"] = png(96 + 16 * number, seed + number)
    return made


def png(side: int, seed: int, noise: bool = True) -> bytes:
    """Return a square picture of noise, or of one colour, which is a small file at any size."""
    import numpy as np
    from PIL import Image

    draw = np.random.default_rng(seed)
    if noise:
        picture = Image.fromarray(draw.integers(0, 256, (side, side, 3), dtype=np.uint8))
    else:
        picture = Image.new("RGB", (side, side), tuple(draw.integers(0, 256, 3).tolist()))
    stream = io.BytesIO()
    picture.save(stream, "PNG")
    return stream.getvalue()


def url_of(name: str, content: bytes, variant: int = 0) -> str:
    """Return a data URI.

    Args:
        variant: above 0 the content has bytes behind it that decoders skip, so that it is another:
            a free box of MP4; what follows the end of a PNG is not read.
    """
    is_clip = name.startswith("clip")
    if variant:
        salt = variant.to_bytes(4, "big")
        content += (8 + len(salt)).to_bytes(4, "big") + b"free" + salt if is_clip else salt
    kind = "video/mp4" if is_clip else "image/png"
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"
