"""Parts of requests: messages, tools, vLLM's structures, fields that are refused by name; and how a
body is read, each error with the path of its field.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError

from ...tasks.act.observation import brief
from ..refusal import BadRequestError

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


MAX_OPTIONS = 4096
"""Texts of a `guided_choice`."""

REFUSED = {
    "add_special_tokens": "texts get the tokenizer's own; send prompt as token ids for others",
    "allowed_token_ids": "use logit_bias, or structured_outputs",
    "audio": "no model here speaks",
    "bad_words": "use logit_bias, or structured_outputs",
    "cache_salt": "all requests share one prefix cache; --no-prefix-caching turns it off",
    "chat_template": "a request can't bring a template; put it into the checkpoint's folder",
    "documents": "put them into a message",
    "function_call": "send tools and tool_choice",
    "functions": "send tools and tool_choice",
    **dict.fromkeys(
        ("guided_choice", "guided_grammar", "guided_json", "guided_regex"),
        "send response_format or structured_outputs, as newer vLLM takes them",
    ),
    "kv_transfer_params": "keys and values stay in this process",
    "logits_processors": "no code by name; use logit_bias",
    "logprob_token_ids": "use top_logprobs",
    "media_io_kwargs": "frames and pixels are those that the model's processor takes",
    "mm_processor_kwargs": "frames and pixels are those that the model's processor takes",
    "prompt_embeds": "send prompt as text or token ids",
    "prompt_logprobs": "log-probabilities of prompts are not kept",
    "repetition_detection": "use frequency_penalty or repetition_penalty",
    **dict.fromkeys(
        ("return_token_ids", "return_tokens_as_token_ids"),
        "return_token_origins has the ids of the answer",
    ),
    "structural_tag": "use structured_outputs or tools",
    "suffix": "put it into the prompt",
    "thinking_token_budget": "use max_tokens",
    **dict.fromkeys(
        ("truncate_prompt_tokens", "truncation_side"), "prompts are not cut; send a shorter one"
    ),
    "use_beam_search": "speculation follows one sequence",
    "vllm_xargs": "there are no such extensions",
    "web_search_options": "this server searches nothing",
}
"""Fields that would change the answer, and why they can't be honoured or what does the same."""


def check_extras(extras: Mapping[str, Any]) -> None:
    """Refuse a field of `REFUSED` that asks for something.

    Raises:
        BadRequestError: names the field.
    """
    for name, reason in REFUSED.items():
        value = extras.get(name)
        if value is not None and value is not False and value not in ("", [], {}):
            raise BadRequestError(name, f"{name} is not supported: {reason}")


@dataclass(frozen=True)
class Structure:
    """What the text of an answer has to match.

    Attributes:
        field: the request's field that asks for it, by its path.
        kind: of the text.
        text: a JSON schema, a regular expression, a JSON list of texts, or a grammar (Lark, GBNF).
    """

    field: str
    kind: Literal["json", "regex", "choice", "grammar"]
    text: str


class StructuredOutputs(ApiFields):
    """vLLM's field for a structure; one of `json`, `regex`, `choice`, `grammar` and `json_object`
    is set."""

    model_config = ConfigDict(strict=True, extra="allow")

    json_: Annotated[dict[str, Any] | bool | Text | None, Field(alias="json")] = None
    regex: Text | None = None
    choice: Annotated[list[Text], Field(min_length=1, max_length=MAX_OPTIONS)] | None = None
    grammar: Text | None = None
    json_object: bool | None = None

    @property
    def structure(self) -> Structure | None:
        """Returns what is asked for.

        Raises:
            BadRequestError: more than one structure, or a schema that is no JSON.
        """
        path, extras = "structured_outputs", self.model_extra or {}
        for name in ("structural_tag", "whitespace_pattern"):
            if extras.get(name) is not None:
                text = f"{name} is not supported; use structured_outputs without it, or tools"
                raise BadRequestError(f"{path}.{name}", text)
        schemas = {"json": self.json_, "json_object": {"type": "object"}}
        if not self.json_object:
            del schemas["json_object"]
        structures = [
            Structure(f"{path}.{name}", "json", schema_text(f"{path}.{name}", schema))
            for name, schema in schemas.items()
            if schema is not None
        ]
        for kind in ("regex", "choice", "grammar"):
            if (value := getattr(self, kind)) is not None:
                text = value if isinstance(value, str) else json.dumps(value)
                structures.append(Structure(f"{path}.{kind}", kind, text))
        if len(structures) > 1:
            names = " and ".join(structure.field for structure in structures)
            raise BadRequestError(structures[1].field, f"{names} exclude each other; send one")
        return next(iter(structures), None)


def schema_text(field: str, schema: Any) -> str:
    """Returns a JSON schema, given as an object, `True` or JSON, as llguidance takes it.

    Raises:
        BadRequestError: it is no JSON.
    """
    if isinstance(schema, str):
        try:
            schema = json.loads(schema)
        except (ValueError, RecursionError) as error:
            raise BadRequestError(field, f"{field} is no JSON: {error}") from error
    return json.dumps(schema)


class Checked(ApiFields):
    """A request that checks what its fields' types can't."""

    def check(self) -> None:
        """Refuse fields that go against each other.

        Raises:
            BadRequestError: names the field.
        """


Request = TypeVar("Request", bound=Checked)
TYPES = {
    "messages": 'a list of objects such as {"role": "user", "content": "hello"}',
    "image_url": 'an object such as {"url": "data:image/png;base64,..."}',
    "video_url": 'an object such as {"url": "data:video/mp4;base64,..."}',
    "file": 'an object such as {"file_data": "data:application/pdf;base64,..."}',
    "stop": "a string or a list of strings",
    "content": "a string or a list of parts",
    "prompt": "a string, a list of strings, or token ids",
    "tool_choice": '"none", "auto", "required", or the name of a function as an object',
}
"""What fields take, where pydantic would name a type, or one member of a union alone."""
UNTAGGED = ("union_tag_invalid", "union_tag_not_found")
"""pydantic's errors of an object whose `type` is none that it knows, or missing."""
SMALL = 8 << 20
"""Bytes of a body that is read once more to tell the path of a wrong field, not only its first
name; in a larger one that would hold up everybody else's tokens."""


def parse(kind: type[Request], body: bytes) -> Request:
    """Read a request.

    Raises:
        BadRequestError: the body is no JSON, or a field is wrong; names its path.
    """
    try:
        request = kind.model_validate_json(body)
    except ValidationError as error:
        raise _refusal(error, body) from None
    except RecursionError:
        raise BadRequestError(None, "the body is nested too deeply") from None
    request.check()
    return request


def path_of(location: tuple[int | str, ...], value: Any) -> str:
    """Returns a field's path in the body, such as `messages[0].content`.

    pydantic names the members of unions in between; what is no key of the body is left out.
    """
    path = ""
    for index, key in enumerate(location):
        is_last = index == len(location) - 1
        if isinstance(key, int):
            path += f"[{key}]"
            value = value[key] if isinstance(value, list) and key < len(value) else None
        elif isinstance(value, Mapping) and (key in value or is_last):
            path += f".{key}" if path else key
            value = value.get(key)
    return path


def _refusal(error: ValidationError, body: bytes) -> BadRequestError:
    detail = error.errors(include_url=False)[0]
    if detail["type"] == "json_invalid":
        text = detail["msg"].partition(": ")[2] if body.strip() else "it is empty"
        return BadRequestError(None, f"the body is no JSON: {text}")
    if not detail["loc"]:
        return BadRequestError(None, f"the body is {brief(detail['input'])}; send an object")
    is_small = len(body) <= SMALL
    path = path_of(detail["loc"], json.loads(body)) if is_small else str(detail["loc"][0])
    name = path.rpartition(".")[2]
    if detail["type"] == "missing":
        return BadRequestError(path, f"{path} is missing")
    if detail["type"] in UNTAGGED:
        context = detail["ctx"]
        path = f"{path}.type"
        if "tag" not in context:
            return BadRequestError(path, f"{path} is missing")
        text = f"{path} is {brief(context['tag'])}; it should be one of {context['expected_tags']}"
        return BadRequestError(path, text)
    if name in TYPES and detail["type"].endswith("_type"):
        return BadRequestError(path, f"{path} is {brief(detail['input'])}; send {TYPES[name]}")
    expected = detail["msg"].replace("Input", "it", 1).replace("a valid array", "a list")
    expected = expected[0].lower() + expected[1:]
    return BadRequestError(path, f"{path} is {brief(detail['input'])}; {expected}")
