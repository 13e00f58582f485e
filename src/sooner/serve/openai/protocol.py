"""Requests of OpenAI's chats, and of vLLM's where it has more, as pydantic models.

Types are strict, so a wrong one is refused with its path. Fields that are not listed are ignored:
clients send many (`user`, `store`, `metadata`, ...) that change nothing here. Those that would
change the answer and can't be honoured are refused by name (`REFUSED`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, ConfigDict, Discriminator, Field, Json, Tag

from ..http import ApiFields

MAX_TOOLS, MAX_MESSAGES, MAX_PARTS = 128, 4096, 1024
MAX_CHOICES, MAX_STOPS, MAX_BIASES = 128, 16, 4096
INT64 = 1 << 63
ANY: dict[str, Any] = {"type": "object"}
"""A schema of any object."""

Finite = Field(allow_inf_nan=False)

Text = Annotated[str, Field(max_length=1 << 28)]


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


Part = Annotated[
    TextPart | RefusalPart | ImagePart | VideoPart | FilePart, Field(discriminator="type")
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


def text_of(content: str | Sequence[Any] | None) -> str:
    """Returns the text of a content, without its other parts."""
    if isinstance(content, str):
        return content
    return "".join(part.text for part in content or () if isinstance(part, TextPart))


class FunctionCall(ApiFields):
    """A call as an assistant's earlier message has it. Its arguments are JSON, read here."""

    name: Annotated[str, Field(max_length=256)]
    arguments: Annotated[Json[Any], BeforeValidator(lambda text: text or "{}")] = Field(
        default_factory=dict
    )


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


REFUSED = (
    "add_special_tokens", "allowed_token_ids", "audio", "bad_words", "best_of", "cache_salt",
    "chat_template", "continue_final_message", "documents", "echo", "function_call",
    "functions", "guided_choice", "guided_grammar", "guided_json", "guided_regex",
    "include_stop_str_in_output", "kv_transfer_params", "logits_processors",
    "logprob_token_ids", "media_io_kwargs", "mm_processor_kwargs", "num_draft_tokens",
    "prompt_embeds", "prompt_logprobs", "repetition_detection", "return_token_ids",
    "return_tokens_as_token_ids", "structural_tag", "structured_outputs", "suffix",
    "thinking_token_budget", "truncate_prompt_tokens", "truncation_side", "use_beam_search",
    "vllm_xargs", "web_search_options",
)  # fmt: skip
"""Fields that change the answer and can't be honoured; docs/serve.md says what does the same."""


class AnswerSchema(NamedTuple):
    """What the text of an answer has to match.

    Attributes:
        field: the request's field that asks for it, by its path.
        text: a JSON schema.
    """

    field: str
    text: str


class FunctionName(ApiFields):
    name: str


class NamedTool(ApiFields):
    type: Literal["function"]
    function: FunctionName


ToolChoice = Annotated[
    Annotated[Literal["none", "auto", "required"], Tag("text")] | Annotated[NamedTool, Tag("list")],
    Discriminator(kind_of),
]


class JsonSchema(ApiFields):
    name: str | None = None
    description: str | None = None
    schema_: Annotated[dict[str, Any] | None, Field(alias="schema")] = None
    strict: bool | None = None


class ResponseFormat(ApiFields):
    """`json_schema` and `json_object` mask every token that would leave the grammar."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


class StreamOptions(ApiFields):
    """`include_usage` asks for a last chunk with usage and metrics, and no choices."""

    include_usage: bool | None = None


class PredictedContent(ApiFields):
    """What the answer is likely to say: the draft. It never changes the answer."""

    type: Literal["content"]
    content: text_or(Annotated[list[TextPart], Field(max_length=MAX_PARTS, fail_fast=True)])  # type: ignore[valid-type]


TokenId = Annotated[int, Field(ge=0, lt=INT64)]
BiasedToken = Annotated[str, Field(pattern=r"^[0-9]{1,9}$")]
Bias = Annotated[float, Field(ge=-100, le=100), Finite]
TokenIds = Annotated[list[TokenId], Field(max_length=MAX_BIASES, fail_fast=True)]


class ChatRequest(ApiFields):
    """Holds the body of `POST /v1/chat/completions`.

    Sampling that is not set follows `generation_config.json`.
    """

    model_config = ConfigDict(strict=True, extra="allow")

    messages: Annotated[list[Message], Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True)]
    model: str | None = None
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = None
    max_tokens: Annotated[int, Field(ge=1, lt=INT64)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1, lt=INT64)] | None = None
    seed: Annotated[int, Field(ge=-INT64, lt=INT64)] | None = None
    stop: text_or(Annotated[list[Text], Field(max_length=MAX_STOPS, fail_fast=True)]) | None = None  # type: ignore[valid-type]
    temperature: Annotated[float, Field(ge=0, le=2), Finite] | None = None
    top_p: Annotated[float, Field(ge=0, le=1), Finite] | None = None
    top_k: Annotated[int, Field(ge=-1, lt=INT64)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1), Finite] | None = None
    repetition_penalty: Annotated[float, Field(gt=0, le=10), Finite] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2), Finite] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2), Finite] | None = None
    logit_bias: Annotated[dict[BiasedToken, Bias], Field(max_length=MAX_BIASES)] | None = None
    stop_token_ids: TokenIds | None = None
    ignore_eos: bool | None = None
    min_tokens: Annotated[int, Field(ge=0, lt=INT64)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    prediction: PredictedContent | None = None
    response_format: ResponseFormat | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    tools: Annotated[list[Tool], Field(max_length=MAX_TOOLS, fail_fast=True)] | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    reasoning_effort: Annotated[str, Field(max_length=64)] | None = None
    include_reasoning: bool | None = None
    modalities: list[Literal["text"]] | None = None
    add_generation_prompt: Literal[True] | None = None
    skip_special_tokens: Literal[True] | None = None
    return_token_origins: bool | None = None
    deadline_ms: Annotated[float, Field(gt=0), Finite] | None = None

    @property
    def choices(self) -> int:
        return self.n or 1

    @property
    def limit(self) -> int | None:
        """New tokens at most, as the request has it."""
        return self.max_completion_tokens or self.max_tokens

    @property
    def num_logprobs(self) -> int | None:
        """Returns how many likeliest tokens are told at each place; 0 is the token alone."""
        return (self.top_logprobs or 0) if self.logprobs else None

    @property
    def stops(self) -> list[str]:
        """Strings that end the text and are not part of it."""
        stop: Any = self.stop
        return [text for text in ([stop] if isinstance(stop, str) else stop or []) if text]

    @property
    def wants_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)

    @property
    def schema_of_answer(self) -> AnswerSchema | None:
        """What the text of the answer has to match: forced calls, or what is asked for."""
        functions = {tool.function.name: tool.function for tool in self.tools or ()}
        if isinstance(self.tool_choice, NamedTool):
            named = functions.get(self.tool_choice.function.name)  # if it is a tool at all
            return AnswerSchema("tools", json.dumps((named and named.parameters) or ANY))
        if self.tool_choice == "required":
            schema = _calls_schema(functions, self.parallel_tool_calls is False)
            return AnswerSchema("tools", json.dumps(schema))
        form = self.response_format
        if form is None or form.type == "text":
            return None
        if form.type == "json_object":
            return AnswerSchema("response_format", json.dumps(ANY))
        assert form.json_schema is not None  # `faults` has seen to it
        path, schema = "response_format.json_schema.schema", form.json_schema.schema_ or {}
        return AnswerSchema(path, json.dumps(schema))

    @property
    def template_tools(self) -> list[dict[str, Any]] | None:
        """Tools for the chat template; none where the model is told to call none."""
        if not self.tools or self.tool_choice == "none":
            return None
        return [tool.model_dump(exclude_none=True) for tool in self.tools]

    def faults(self) -> Iterator[tuple[str, str]]:
        extras = self.model_extra or {}
        for name in REFUSED:
            value = extras.get(name)
            if value is not None and value is not False and value not in ("", [], {}):
                yield name, f"{name} is not supported; leave it out"
        extras.clear()  # nobody reads them, and they may be large
        if self.stream_options is not None and not self.stream:
            yield "stream_options", "stream_options goes with stream: true alone"
        minimum, maximum = self.min_tokens or 0, self.limit
        if maximum is not None and minimum > maximum:
            yield "min_tokens", f"min_tokens is {minimum}, and max_tokens {maximum}"
        form, name = self.response_format, "response_format"
        has_schema = form and form.json_schema and form.json_schema.schema_ is not None
        if form is not None and form.type == "json_schema" and not has_schema:
            text = f"{name} is of type json_schema and has no json_schema.schema"
            yield f"{name}.json_schema", text
        if (self.min_tokens or self.ignore_eos) and self.schema_of_answer is not None:
            name = "min_tokens" if self.min_tokens else "ignore_eos"
            text = "a grammar, behind whose end nothing may stand"
            yield name, f"{name} goes without {text}; leave one of them out"
        if self.top_logprobs and not self.logprobs:
            yield "top_logprobs", "top_logprobs goes with logprobs: true alone"
        yield from self._tool_faults()
        for index, message in enumerate(self.messages):
            if message.content is not None or (message.role == "assistant" and message.tool_calls):
                continue
            path = f"messages[{index}]"
            text = f"{path}.content is missing; send a string or a list of parts"
            if message.role == "assistant":
                text = f"{path} is an assistant's with neither content nor tool_calls"
            yield f"{path}.content", text

    def _tool_faults(self) -> Iterator[tuple[str, str]]:
        names = [tool.function.name for tool in self.tools or ()]
        if len(set(names)) < len(names):
            yield "tools", "two tools have the same name; give each its own"
        choice = self.tool_choice
        if choice is None or choice in ("none", "auto"):
            return
        if not names:
            yield "tool_choice", "tool_choice asks for a call, and tools are none"
        if isinstance(choice, NamedTool) and choice.function.name not in names:
            text = f"tool_choice names '{choice.function.name[:64]}', which is none of the tools"
            yield "tool_choice.function.name", text
        if self.response_format is not None and self.response_format.type != "text":
            name = "response_format"
            yield name, f"{name} and a forced tool_choice exclude each other"


def _calls_schema(functions: Mapping[str, Function], is_single: bool) -> dict[str, Any]:
    """Returns the schema of a list of calls, at most one of them if it `is_single`.

    Parameters have an `$id` each, by which references such as `#/$defs/X` stay within them.
    """
    calls = [
        {
            "type": "object",
            "properties": {
                "name": {"const": name},
                "parameters": {**(function.parameters or ANY), "$id": f"urn:function:{name}"},
            },
            "required": ["name", "parameters"],
            "additionalProperties": False,
        }
        for name, function in functions.items()
    ]
    limit = {"maxItems": 1} if is_single else {}
    return {"type": "array", "minItems": 1, **limit, "items": {"anyOf": calls}}
