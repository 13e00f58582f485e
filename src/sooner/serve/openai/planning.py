"""The model that is served; a request and its prepared prompts become choices and jobs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ..engine_options import sampling_options
from ..jobs import GenerationJob
from ..refusal import BadRequestError, too_long
from .choice import Choice, Detokenizer, special_ids
from .protocol import ChatRequest, CompletionRequest, GenerationRequest
from .tools import AnswerParser, AnswerParsers, PlainAnswer

SAMPLING = (
    "temperature", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty",
)  # fmt: skip
"""Fields of requests that `generate` calls the same."""


@dataclass(frozen=True)
class Prepared:
    """Holds inputs of the model for one prompt.

    Attributes:
        inputs: what the processor returned: CPU tensors of one row, `input_ids [1, tokens]` among
            them.
        prompt_tokens: their number, placeholders of pixels included.
        media_keys: content hashes of pictures and videos, for caches.
    """

    inputs: Mapping[str, Any] = field(repr=False)
    prompt_tokens: int
    media_keys: tuple[str, ...] = ()


@dataclass(frozen=True)
class ServedModel:
    """What answers need to know of the model.

    Attributes:
        names: what clients may call it; the first is what it is told as.
        tokenizer: HF's, the target's.
        prepare: makes inputs of a chat's messages and media; raises `BadRequestError`.
        max_model_len: tokens that prompt and answer may have together.
        vocab_size: of the target's scores, which may be more than the tokenizer has.
        stop_token_ids: `eos_token_id` of `generation_config.json`, all of them.
        default_max_tokens: of answers that ask for no limit; by default what is left.
        response_template: how answers are parsed into content, reasoning and tool calls, as
            transformers' `parse_response` has it; by default the tokenizer's own.
        max_draft_tokens: that a round verifies at most.
        method, mode: how it decodes, for `GET /v1/models`.
        created: seconds since 1970.
        fingerprint: of what decides the text under a seed, as OpenAI's `system_fingerprint`.
    """

    names: tuple[str, ...]
    tokenizer: Any = field(repr=False)
    prepare: Callable[[ChatRequest], Awaitable[Prepared]] = field(repr=False)
    max_model_len: int
    vocab_size: int
    stop_token_ids: frozenset[int]
    default_max_tokens: int | None = None
    response_template: dict[str, Any] | None = field(default=None, repr=False)
    max_draft_tokens: int = 0
    method: str = "plain"
    mode: str = "exact"
    created: int = 0
    fingerprint: str | None = None

    @property
    def name(self) -> str:
        return self.names[0]


def prepare_text(
    served: ServedModel, prompt: str | list[int], request: CompletionRequest
) -> Prepared:
    """Returns inputs of one prompt of `/v1/completions`; a text gets the tokenizer's special
    tokens, ids are taken as they are.

    Args:
        request: says whether it does not, and how many of the last tokens are kept.

    Raises:
        BadRequestError: it has no token, or one that the model does not have.
    """
    ids: Any = prompt
    if isinstance(prompt, str):
        is_bare = request.add_special_tokens is False
        ids = served.tokenizer(prompt, add_special_tokens=not is_bare)["input_ids"]
    if (limit := request.truncate_prompt_tokens) is not None:
        ids = ids[-(served.max_model_len - (request.limit or 1) if limit == -1 else limit) :]
    if not ids:
        raise BadRequestError("prompt", "prompt has no token; send some text")
    if (largest := max(ids)) >= served.vocab_size:
        raise BadRequestError(
            "prompt", f"prompt has token {largest}, and the model has {served.vocab_size}"
        )
    tokens = torch.tensor([ids])  # [1, tokens]
    return Prepared({"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}, len(ids))


class Planner:
    """Makes the jobs of requests to one model."""

    def __init__(self, served: ServedModel) -> None:
        self.served = served
        self._parsers = AnswerParsers(served.tokenizer, served.response_template)
        self._special = special_ids(served.tokenizer)

    def check(self, request: GenerationRequest) -> None:
        """Refuse what this model, or the way it decodes, can't do, before anything is prepared.

        Raises:
            BadRequestError: names the field.
        """
        limit = self.served.max_draft_tokens
        if (request.num_draft_tokens or 0) > limit:
            raise BadRequestError(
                "num_draft_tokens",
                f"num_draft_tokens is {request.num_draft_tokens}, and this server, which decodes "
                f"by '{self.served.method}', drafts {limit} a round at most; 0 decodes plainly",
            )
        for name in ("logit_bias", "allowed_token_ids"):
            for token in getattr(request, name) or ():
                if not 0 <= int(token) < self.served.vocab_size:
                    raise BadRequestError(
                        name, f"{name} names token {token}, and there are {self.served.vocab_size}"
                    )
        allowed = frozenset(request.allowed_token_ids or ())
        if request.min_tokens and allowed and allowed <= self._stop_ids(request):
            raise BadRequestError(
                "min_tokens", "min_tokens forbids the end, and allowed_token_ids all else"
            )

    def prediction_of(self, request: GenerationRequest) -> list[int] | None:
        """Returns token ids of `prediction`, no more than an answer can have; slow if it is
        long.
        """
        if request.prediction is None:
            return None
        text = request.prediction.text
        ids = self.served.tokenizer(text, add_special_tokens=False)["input_ids"]
        return list(ids[: self.served.max_model_len])

    def plan(
        self,
        name: str,
        request: GenerationRequest,
        prompts: Sequence[Prepared],
        arrived: float,
        deadline: float | None,
        prediction: list[int] | None = None,
        matcher: Callable[[], Any] = lambda: None,
    ) -> list[Choice]:
        """Returns the choices of each prompt after the other, and their jobs.

        Args:
            name: the request's id.
            arrived, deadline: when it came, and by when it has to be answered, in the service's
                seconds.
            matcher: makes the grammar of one choice.

        Raises:
            BadRequestError: a prompt does not fit.
        """
        sampling, stops = self._sampling(request), self._stop_ids(request)
        limits = [self._limit(request, prompt.prompt_tokens) for prompt in prompts]
        choices: list[Choice] = []
        for prompt, limit in zip(prompts, limits, strict=True):
            for number in range(request.choices):
                index = len(choices)
                job = GenerationJob(
                    id=f"{name}-{index}",
                    inputs=prompt.inputs,
                    prompt_tokens=prompt.prompt_tokens,
                    max_tokens=limit,
                    arrived=arrived,
                    deadline=deadline,
                    sampling=sampling,
                    seed=request.seed,
                    choice=number,
                    stop_token_ids=stops,
                    allowed_token_ids=frozenset(request.allowed_token_ids or ()),
                    prediction=prediction,
                    num_draft_tokens=request.num_draft_tokens,
                    grammar=matcher(),
                    media_keys=prompt.media_keys,
                )
                choices.append(self._choice(index, request, job))
        return choices

    def _choice(self, index: int, request: GenerationRequest, job: GenerationJob) -> Choice:
        parser: AnswerParser = PlainAnswer()
        if isinstance(request, ChatRequest):
            parser = self._parsers.of(request, job.inputs["input_ids"][0])
        is_whole = parser.keeps_special or request.skip_special_tokens is False
        text = Detokenizer(self.served.tokenizer, frozenset() if is_whole else self._special)
        return Choice(
            index, job, text, parser, request.stops,
            min_tokens=request.min_tokens or 0,
            includes_stop=bool(request.include_stop_str_in_output),
        )  # fmt: skip

    def _sampling(self, request: GenerationRequest) -> dict[str, Any]:
        """Returns options of `Engine.add_request`."""
        values = {name: getattr(request, name) for name in SAMPLING}
        options = sampling_options(top_k=0 if request.top_k == -1 else request.top_k, **values)
        if request.logit_bias:
            biases = request.logit_bias.items()
            options["sequence_bias"] = {(int(token),): float(bias) for token, bias in biases}
        if request.num_logprobs is not None:
            options["logprobs"] = request.num_logprobs
        if request.min_tokens and self._stop_ids(request):
            options["min_new_tokens"] = request.min_tokens
        if request.bad_words:
            options["bad_words_ids"] = self._bad_words(request.bad_words)
        return options

    def _bad_words(self, words: Sequence[str]) -> list[list[int]]:
        """Ids of words that an answer must not have, at its beginning and behind a space."""
        sequences: dict[tuple[int, ...], None] = {}
        for word in words:
            if not word.strip():
                raise BadRequestError("bad_words", "bad_words has an empty word; leave it out")
            text = word.lstrip()
            alone, following = (
                tuple(self.served.tokenizer(variant, add_special_tokens=False)["input_ids"])
                for variant in (text, f" {text}")
            )
            sequences[alone] = None
            # Where the space is a token of its own, forbidding `alone` behind it is enough.
            if following[:1] != alone[:1] and len(following) == len(alone):
                sequences[following] = None
        return [list(ids) for ids in sequences]

    def _stop_ids(self, request: GenerationRequest) -> frozenset[int]:
        ids = frozenset() if request.ignore_eos else self.served.stop_token_ids
        return ids | frozenset(request.stop_token_ids or ())

    def _limit(self, request: GenerationRequest, prompt: int) -> int:
        """New tokens at most; what is asked for and does not fit is refused."""
        limit = self.served.max_model_len
        requested = request.limit
        if prompt >= limit or (requested is not None and prompt + requested > limit):
            raise too_long(prompt, requested or 1, limit, request.prompt_field)
        default = self.served.default_max_tokens
        return requested or min(default or limit, limit - prompt)
