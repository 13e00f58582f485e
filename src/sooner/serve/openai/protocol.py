"""Requests of OpenAI's API, and of vLLM's where it has more, as pydantic models.

Types are strict, so a wrong one is refused with its path. Fields that are not listed are ignored:
clients send many (`user`, `store`, `metadata`, ...) that change nothing here. Those that would
change the answer and can't be honoured are listed, and refused by name (`check`).
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Discriminator, Field, Tag

from .errors import BadRequestError
from .messages import (
    MOST_MESSAGES,
    MOST_PARTS,
    MOST_TOOLS,
    ApiFields,
    AudioPart,
    Message,
    Text,
    TextPart,
    Tool,
    kind_of,
    text_or,
)

MOST_CHOICES, MOST_STOPS, MOST_BIASES, MOST_PROMPTS, MOST_DRAFT = 128, 16, 4096, 256, 1024
INT64 = 1 << 63

Finite = Field(allow_inf_nan=False)


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
    content: text_or(Annotated[list[TextPart], Field(max_length=MOST_PARTS, fail_fast=True)])  # type: ignore[valid-type]

    @property
    def text(self) -> str:
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content)


class GenerationRequest(ApiFields):
    """What both completions have. Sampling that is not set follows `generation_config.json`."""

    model: str | None = None
    n: Annotated[int, Field(ge=1, le=MOST_CHOICES)] | None = None
    max_tokens: Annotated[int, Field(ge=1, lt=INT64)] | None = None
    seed: Annotated[int, Field(ge=-INT64, lt=INT64)] | None = None
    stop: text_or(Annotated[list[Text], Field(max_length=MOST_STOPS, fail_fast=True)]) | None = None  # type: ignore[valid-type]
    temperature: Annotated[float, Field(ge=0, le=2), Finite] | None = None
    top_p: Annotated[float, Field(ge=0, le=1), Finite] | None = None
    top_k: Annotated[int, Field(ge=-1, lt=INT64)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1), Finite] | None = None
    repetition_penalty: Annotated[float, Field(gt=0, le=10), Finite] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2), Finite] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2), Finite] | None = None
    logit_bias: (
        Annotated[
            dict[
                Annotated[str, Field(pattern=r"^[0-9]{1,9}$")],
                Annotated[float, Field(ge=-100, le=100), Finite],
            ],
            Field(max_length=MOST_BIASES),
        ]
        | None
    ) = None
    stop_token_ids: (
        Annotated[
            list[Annotated[int, Field(ge=0, lt=INT64)]],
            Field(max_length=MOST_BIASES, fail_fast=True),
        ]
        | None
    ) = None
    ignore_eos: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    prediction: PredictedContent | None = None
    response_format: ResponseFormat | None = None
    return_token_origins: bool | None = None
    num_draft_tokens: Annotated[int, Field(ge=0, le=MOST_DRAFT)] | None = None
    deadline_ms: Annotated[float, Field(gt=0), Finite] | None = None

    prompt_field: ClassVar[str] = "prompt"

    @property
    def choices(self) -> int:
        return self.n or 1

    @property
    def limit(self) -> int | None:
        """New tokens at most, as the request has it."""
        return self.max_tokens

    @property
    def num_logprobs(self) -> int | None:
        """As `JobSampling.logprobs`."""
        return None

    @property
    def stops(self) -> list[str]:
        """Strings that end the text and are not part of it."""
        stop: Any = self.stop
        return [one for one in ([stop] if isinstance(stop, str) else stop or []) if one]

    @property
    def wants_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)

    def check(self) -> None:
        """Require what no single field's type can say.

        Raises:
            BadRequestError: names the field.
        """
        if self.stream_options is not None and not self.stream:
            raise BadRequestError("stream_options", "stream_options goes with stream: true alone")
        wanted = self.response_format
        if wanted is None or wanted.type != "json_schema":
            return
        if wanted.json_schema is None or wanted.json_schema.schema_ is None:
            raise BadRequestError(
                "response_format.json_schema",
                "response_format is of type json_schema and has no json_schema.schema",
            )


class ChatRequest(GenerationRequest):
    """The body of `POST /v1/chat/completions`."""

    prompt_field: ClassVar[str] = "messages"

    messages: Annotated[
        list[Message], Field(min_length=1, max_length=MOST_MESSAGES, fail_fast=True)
    ]
    max_completion_tokens: Annotated[int, Field(ge=1, lt=INT64)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    tools: Annotated[list[Tool], Field(max_length=MOST_TOOLS, fail_fast=True)] | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    modalities: list[str] | None = None
    functions: Any | None = None
    function_call: Any | None = None
    audio: Any | None = None

    @property
    def limit(self) -> int | None:
        return self.max_completion_tokens or self.max_tokens

    @property
    def num_logprobs(self) -> int | None:
        return (self.top_logprobs or 0) if self.logprobs else None

    @property
    def template_tools(self) -> list[dict[str, Any]] | None:
        """Tools for the chat template; none where the model is told to call none."""
        if not self.tools or self.tool_choice == "none":
            return None
        return [tool.model_dump(exclude_none=True) for tool in self.tools]

    def check(self) -> None:
        super().check()
        for name in ("functions", "function_call", "audio"):
            if getattr(self, name) is not None:
                hint = "; send tools and tool_choice" if name.startswith("function") else ""
                raise BadRequestError(name, f"{name} is not supported here{hint}")
        if self.modalities is not None and self.modalities != ["text"]:
            raise BadRequestError("modalities", 'modalities may be ["text"] only')
        if self.top_logprobs and not self.logprobs:
            raise BadRequestError("top_logprobs", "top_logprobs goes with logprobs: true alone")
        self._check_tools()
        for index, message in enumerate(self.messages):
            self._check_message(f"messages[{index}]", message)

    def _check_tools(self) -> None:
        names = [tool.function.name for tool in self.tools or ()]
        if len(set(names)) < len(names):
            raise BadRequestError("tools", "two tools have the same name; give each its own")
        choice = self.tool_choice
        if choice is None or choice in ("none", "auto"):
            return
        if not names:
            raise BadRequestError("tool_choice", "tool_choice asks for a call, and tools are none")
        if isinstance(choice, NamedTool) and choice.function.name not in names:
            raise BadRequestError(
                "tool_choice.function.name",
                f"tool_choice names '{choice.function.name[:64]}', which is none of the tools",
            )
        if self.response_format is not None and self.response_format.type != "text":
            raise BadRequestError(
                "response_format", "response_format and a forced tool_choice exclude each other"
            )

    def _check_message(self, path: str, message: Message) -> None:
        has_calls = message.role == "assistant" and bool(message.tool_calls)
        if message.content is None and message.role != "assistant":
            raise BadRequestError(
                f"{path}.content", f"{path}.content is missing; send a string or a list of parts"
            )
        if message.content is None and not has_calls:
            raise BadRequestError(
                f"{path}.content", f"{path} is an assistant's with neither content nor tool_calls"
            )
        if isinstance(message.content, list):
            for index, part in enumerate(message.content):
                if isinstance(part, AudioPart):
                    raise BadRequestError(
                        f"{path}.content[{index}]", "input_audio is not supported; send text, "
                        "image_url, video_url or file parts",
                    )  # fmt: skip


class CompletionRequest(GenerationRequest):
    """The body of `POST /v1/completions`."""

    prompt: text_or(  # type: ignore[valid-type]
        Annotated[
            list[
                Annotated[
                    Annotated[Text, Tag("text")]
                    | Annotated[int, Field(ge=0, lt=INT64), Tag("token")]
                    | Annotated[
                        list[Annotated[int, Field(ge=0, lt=INT64)]],
                        Field(fail_fast=True),
                        Tag("list"),
                    ],
                    Discriminator(
                        lambda value: "token" if isinstance(value, int) else kind_of(value)
                    ),
                ]
            ],
            Field(min_length=1, max_length=1 << 20, fail_fast=True),
        ]
    )
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    echo: bool | None = None
    suffix: str | None = None
    best_of: int | None = None

    @property
    def num_logprobs(self) -> int | None:
        return self.logprobs

    @property
    def prompts(self) -> list[str | list[int]]:
        """Each prompt, as text or as token ids."""
        told: Any = self.prompt
        if isinstance(told, str) or isinstance(told[0], int):
            return [told]
        return list(told)

    def check(self) -> None:
        super().check()
        if self.echo and self.logprobs is not None:
            raise BadRequestError(
                "echo", "echo goes without logprobs: those of prompts are not kept; leave one out"
            )
        if self.suffix:
            raise BadRequestError("suffix", "suffix is not supported; put it into the prompt")
        if self.best_of is not None and self.best_of != self.choices:
            raise BadRequestError("best_of", "best_of must be n; no choice is thrown away here")
        told: Any = self.prompt
        if isinstance(told, list):
            kinds = {type(one) for one in told}
            if len(kinds) > 1:
                raise BadRequestError("prompt", "prompt mixes texts and token ids; send one kind")
            if int not in kinds and len(told) * self.choices > MOST_PROMPTS:
                raise BadRequestError(
                    "prompt",
                    f"{len(told)} prompts of {self.choices} choices are more than {MOST_PROMPTS}; "
                    "send several requests",
                )
