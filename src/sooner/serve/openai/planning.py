"""A request and its prepared prompts become choices and jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..jobs import GenerationJob, JobSampling
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
        timing: RequestTimes,
        prediction: list[int] | None = None,
        matcher: Callable[[], Any] = lambda: None,
    ) -> list[Choice]:
        """Returns the choices of each prompt after the other, and their jobs.

        Args:
            name: the request's id.
            matcher: makes the grammar of one choice.

        Raises:
            BadRequestError: a prompt does not fit.
        """
        sampling = self._sampling(request)
        limits = [self._limit(request, prompt.prompt_tokens) for prompt in prompts]
        choices: list[Choice] = []
        for prompt, limit in zip(prompts, limits, strict=True):
            ids = _ids_of(prompt)
            for number in range(request.choices):
                index = len(choices)
                job = GenerationJob(
                    id=f"{name}-{index}",
                    inputs=prompt.inputs,
                    prompt_tokens=prompt.prompt_tokens,
                    max_tokens=limit,
                    arrived=timing.arrived,
                    deadline=timing.deadline,
                    sampling=sampling,
                    choice=number,
                    stop_token_ids=self._stop_ids(request),
                    prediction=prediction,
                    num_draft_tokens=request.num_draft_tokens,
                    grammar=matcher(),
                    media_keys=prompt.media_keys,
                )
                choices.append(self._choice(index, request, job, ids))
        return choices

    def _choice(
        self, index: int, request: GenerationRequest, job: GenerationJob, prompt: Sequence[int]
    ) -> Choice:
        parser: AnswerParser = PlainAnswer()
        if isinstance(request, ChatRequest):
            parser = self._parsers.of(request, prompt)
        is_whole = parser.keeps_special or request.skip_special_tokens is False
        text = Detokenizer(self.served.tokenizer, frozenset() if is_whole else self._special)
        return Choice(
            index, job, text, parser, request.stops,
            min_tokens=request.min_tokens or 0,
            includes_stop=bool(request.include_stop_str_in_output),
        )  # fmt: skip

    def _sampling(self, request: GenerationRequest) -> JobSampling:
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
            min_tokens=request.min_tokens or 0,
            bad_words=self._bad_words(request.bad_words or ()),
            allowed_token_ids=frozenset(request.allowed_token_ids or ()),
        )

    def _bad_words(self, words: Sequence[str]) -> tuple[tuple[int, ...], ...]:
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
        return tuple(sequences)

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


def _ids_of(prompt: Prepared) -> list[int]:
    ids = prompt.inputs["input_ids"]
    rows = ids.tolist() if hasattr(ids, "tolist") else ids
    return list(rows[0])
