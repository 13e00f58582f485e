"""A request and its prepared prompts become choices and jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..jobs import GenerationJob, JobSampling
from .answering import AskedChoice
from .choice import Choice
from .errors import BadRequestError, too_long
from .protocol import ChatRequest, GenerationRequest
from .served import Prepared, ServedModel
from .text import Detokenizer, special_ids
from .tools import AnswerParser, AnswerParsers, PlainAnswer


@dataclass(frozen=True)
class RequestTimes:
    """When a request came, and by when it has to be answered, in the service's seconds."""

    arrived: float
    deadline: float | None


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
        for name in sorted(self.served.unsupported):
            if is_asked(request, name):
                raise BadRequestError(
                    name,
                    f"{name} is not supported by this server, which decodes by "
                    f"'{self.served.method}'; leave it out",
                )
        most = self.served.max_draft_tokens
        if (request.num_draft_tokens or 0) > most:
            raise BadRequestError(
                "num_draft_tokens",
                f"num_draft_tokens is {request.num_draft_tokens}, and this server, which decodes "
                f"by '{self.served.method}', drafts {most} a round at most; 0 decodes plainly",
            )
        for token in request.logit_bias or ():
            if int(token) >= self.served.vocab_size:
                raise BadRequestError(
                    "logit_bias",
                    f"logit_bias names token {token}, and there are {self.served.vocab_size}",
                )

    def prediction_of(self, request: GenerationRequest) -> list[int] | None:
        """Token ids of `prediction`, no more than an answer can have; slow if it is long."""
        if request.prediction is None:
            return None
        text = request.prediction.text
        ids = self.served.tokenizer(text, add_special_tokens=False)["input_ids"]
        return list(ids[: self.served.max_model_len])

    def asked(
        self,
        name: str,
        request: GenerationRequest,
        prompts: Sequence[Prepared],
        timing: RequestTimes,
        prediction: list[int] | None = None,
        matcher: Callable[[], Any] = lambda: None,
    ) -> list[AskedChoice]:
        """The choices of each prompt after the other, and their jobs.

        Args:
            name: the request's id.
            matcher: makes the grammar of one choice.

        Raises:
            BadRequestError: a prompt does not fit.
        """
        limits = [self._limit(request, prompt.prompt_tokens) for prompt in prompts]
        asked: list[AskedChoice] = []
        for prompt, limit in zip(prompts, limits, strict=True):
            ids = _ids_of(prompt)
            for number in range(request.choices):
                index = len(asked)
                job = GenerationJob(
                    id=f"{name}-{index}",
                    inputs=prompt.inputs,
                    prompt_tokens=prompt.prompt_tokens,
                    max_tokens=limit,
                    arrived=timing.arrived,
                    deadline=timing.deadline,
                    sampling=_sampling(request),
                    choice=number,
                    stop_token_ids=self._stop_ids(request),
                    prediction=prediction,
                    num_draft_tokens=request.num_draft_tokens,
                    grammar=matcher(),
                    media_keys=prompt.media_keys,
                )
                asked.append(AskedChoice(self._choice(index, request, job, ids), job))
        return asked

    def _choice(
        self, index: int, request: GenerationRequest, job: GenerationJob, prompt: Sequence[int]
    ) -> Choice:
        parser: AnswerParser = PlainAnswer()
        if isinstance(request, ChatRequest):
            parser = self._parsers.of(request, prompt)
        skipped = frozenset() if parser.keeps_special else self._special
        text = Detokenizer(self.served.tokenizer, skipped)
        return Choice(index, text, parser, request.stops, job.stop_token_ids)

    def _stop_ids(self, request: GenerationRequest) -> frozenset[int]:
        own = frozenset() if request.ignore_eos else self.served.stop_token_ids
        return own | frozenset(request.stop_token_ids or ())

    def _limit(self, request: GenerationRequest, prompt: int) -> int:
        """New tokens at most; what is asked for and does not fit is refused."""
        most = self.served.max_model_len
        asked = request.limit
        if prompt >= most or (asked is not None and prompt + asked > most):
            raise too_long(prompt, asked or 1, most, request.prompt_field)
        default = self.served.default_max_tokens
        return asked or min(default or most, most - prompt)


def is_asked(request: GenerationRequest, name: str) -> bool:
    """Whether a request wants what a field of it is for."""
    if name == "tool_choice":
        return getattr(request, name, None) not in (None, "none", "auto")
    if name == "logprobs":
        return request.num_logprobs is not None
    if name == "response_format":
        return request.response_format is not None and request.response_format.type != "text"
    return getattr(request, name, None) not in (None, False, 0, {}, [])


def _sampling(request: GenerationRequest) -> JobSampling:
    return JobSampling(
        temperature=request.temperature,
        top_p=request.top_p,
        top_k=0 if request.top_k == -1 else request.top_k,
        min_p=request.min_p,
        repetition_penalty=request.repetition_penalty,
        presence_penalty=request.presence_penalty,
        frequency_penalty=request.frequency_penalty,
        logit_bias={int(token): bias for token, bias in (request.logit_bias or {}).items()},
        seed=request.seed,
        logprobs=request.num_logprobs,
    )


def _ids_of(prompt: Prepared) -> list[int]:
    ids = prompt.inputs["input_ids"]
    rows = ids.tolist() if hasattr(ids, "tolist") else ids
    return list(rows[0])
