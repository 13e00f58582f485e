"""Responses of OpenAI's API as pydantic models: what is sent, and what the API's schema says.

Fields that are not set are not sent, but for those that OpenAI's clients require.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict
from typing_extensions import TypedDict  # pydantic wants this one before Python 3.12

FinishReason = Literal["stop", "length", "tool_calls"]


class PromptDetails(BaseModel):
    """Attributes:
    cached_tokens: of the prompt, not prefilled: their pages were there already.
    """

    cached_tokens: int = 0


class CompletionDetails(BaseModel):
    """Tokens of `prediction` that are in the answer, and those that are not."""

    accepted_prediction_tokens: int = 0
    rejected_prediction_tokens: int = 0


class TokenUsage(BaseModel):
    """Tokens behind a stop string are not counted; the prompt is counted once for all choices."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails
    completion_tokens_details: CompletionDetails


class SpeculativeDecoding(BaseModel):
    """What drafting did, over all choices, under vLLM's names; rounds count whole.

    Attributes:
        mode: `exact`, `relaxed` or `approximate`.
        num_spec_steps: decoding rounds.
        num_draft_tokens: that were verified; all nodes of a tree.
        acceptance_histogram: at `j` the rounds that accepted `j` draft tokens.
    """

    mode: str
    num_spec_steps: int
    num_draft_tokens: int
    num_accepted_draft_tokens: int
    draft_acceptance_rate: float
    mean_acceptance_length: float
    acceptance_histogram: list[int]


class AnswerMetrics(BaseModel):
    """Attributes:
    notes: what of the request was left out, such as `enable_thinking` where no template reads it.
    """

    speculative_decoding: SpeculativeDecoding
    notes: list[str] | None = None


class TopLogprob(TypedDict):
    """A plain dict, as twenty of them a token are many."""

    token: str
    logprob: float
    bytes: list[int] | None


class ContentLogprob(TopLogprob):
    top_logprobs: list[TopLogprob]


class ChatLogprobs(BaseModel):
    content: list[ContentLogprob]
    refusal: None = None


class TextLogprobs(BaseModel):
    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


class TokenOrigin(TypedDict):
    """Where a token came from, if `return_token_origins` was asked."""

    id: int
    token: str
    origin: Literal["draft", "target"]


class CalledFunction(BaseModel):
    name: str | None = None
    arguments: str


class AnsweredCall(BaseModel):
    """Holds a call of a tool; in a stream `id` and `name` come with its first piece."""

    index: int | None = None
    id: str | None = None
    type: Literal["function"] | None = None
    function: CalledFunction


class AnswerMessage(BaseModel):
    """An assistant's message; in a stream, what was added to it.

    Attributes:
        refusal: always null: no model here refuses in a field of its own.
    """

    role: Literal["assistant"] | None = None
    content: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[AnsweredCall] | None = None


class ChatChoice(BaseModel):
    index: int
    message: AnswerMessage
    logprobs: ChatLogprobs | None = None
    finish_reason: FinishReason
    token_origins: list[TokenOrigin] | None = None


class ChatDelta(BaseModel):
    index: int
    delta: AnswerMessage
    logprobs: ChatLogprobs | None = None
    finish_reason: FinishReason | None = None
    token_origins: list[TokenOrigin] | None = None


class TextChoice(BaseModel):
    index: int
    text: str
    logprobs: TextLogprobs | None = None
    finish_reason: FinishReason | None = None
    token_origins: list[TokenOrigin] | None = None


class Answered(BaseModel):
    """What whole answers and chunks have; the last chunk has usage, and no choices.

    Attributes:
        system_fingerprint: of model, number format and version: while it stays, so does what a
            `seed` gives.
    """

    id: str
    created: int
    model: str
    system_fingerprint: str | None = None
    usage: TokenUsage | None = None
    metrics: AnswerMetrics | None = None


class ChatCompletion(Answered):
    object: Literal["chat.completion"] = "chat.completion"
    choices: list[ChatChoice]


class ChatCompletionChunk(Answered):
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    choices: list[ChatDelta]


class TextCompletion(Answered):
    """Holds the whole answer of `/v1/completions`, and its chunks."""

    object: Literal["text_completion"] = "text_completion"
    choices: list[TextChoice]


class ModelCard(BaseModel):
    """Attributes:
    max_model_len: tokens that prompt and answer may have together.
    method, mode: how it decodes, and whether its tokens are the model's own.
    """

    model_config = ConfigDict(protected_namespaces=())

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "sooner"
    max_model_len: int
    method: str
    mode: str


class ModelList(BaseModel):
    object: Literal["list"] = "list"
    data: list[ModelCard]


class ApiFault(BaseModel):
    """Attributes:
    param: path of the field that is at fault.
    code: a word for programs.
    """

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorAnswer(BaseModel):
    error: ApiFault


class HealthAnswer(BaseModel):
    """Holds state of the server.

    Attributes:
        seconds_since_tick: since the engine's loop last went round.
        running, waiting: choices that decode, and that wait.
    """

    status: Literal["ok", "stalled", "warming", "ready", "draining", "failed"]
    seconds_since_tick: float | None = None
    running: int | None = None
    waiting: int | None = None
