"""Messages of a chat and their parts, and the tools that a model may call."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

MAX_TOOLS, MAX_MESSAGES, MAX_PARTS = 128, 4096, 1024

Text = Annotated[str, Field(max_length=1 << 28)]


class ApiFields(BaseModel):
    """Strict in types, deaf to names that it does not know."""

    model_config = ConfigDict(strict=True, extra="ignore")


class TextPart(ApiFields):
    type: Literal["text"]
    text: Text


class RefusalPart(ApiFields):
    """What an assistant said instead of an answer; read as text."""

    type: Literal["refusal"]
    refusal: Text


class MediaUrl(ApiFields):
    """A `data:` URI, `file://` below the server's media root, or http(s) if it allows that."""

    url: Text
    detail: str | None = None


class ImagePart(ApiFields):
    type: Literal["image_url"]
    image_url: MediaUrl


class VideoPart(ApiFields):
    type: Literal["video_url"]
    video_url: MediaUrl


class FileData(ApiFields):
    """A PDF: `file_data` is base64, or a `data:` URI."""

    file_data: Text | None = None
    file_id: str | None = None
    filename: str | None = None


class FilePart(ApiFields):
    type: Literal["file"]
    file: FileData


class AudioPart(ApiFields):
    """Refused: no model here hears."""

    type: Literal["input_audio"]


Part = Annotated[
    TextPart | RefusalPart | ImagePart | VideoPart | FilePart | AudioPart,
    Field(discriminator="type"),
]
Parts = Annotated[list[Part], Field(max_length=MAX_PARTS, fail_fast=True)]


def kind_of(value: Any) -> str:
    """Returns which member of a union with text a value is for."""
    return "text" if isinstance(value, str) else "list"


def text_or(items: Any) -> Any:
    """Returns a string, or `items`, a list; what is neither is told to be no list."""
    return Annotated[
        Annotated[Text, Tag("text")] | Annotated[items, Tag("list")], Discriminator(kind_of)
    ]


class FunctionCall(ApiFields):
    """A call as an assistant's earlier message has it."""

    name: Annotated[str, Field(max_length=256)]
    arguments: Text = "{}"


class ToolCall(ApiFields):
    id: str | None = None
    type: Literal["function"] = "function"
    function: FunctionCall


class Message(ApiFields):
    """Holds one message. ApiFields that only a model's chat template knows are kept."""

    model_config = ConfigDict(strict=True, extra="allow")

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: text_or(Parts) | None = None  # type: ignore[valid-type]
    name: str | None = None
    tool_calls: Annotated[list[ToolCall], Field(max_length=MAX_TOOLS, fail_fast=True)] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None


class Function(ApiFields):
    name: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_.-]{1,256}$")]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(ApiFields):
    type: Literal["function"]
    function: Function
