"""The model that is served, and how; a client's request becomes the engine's requests and choices.

However a server drafts, drafts never change a draw; see `follow_draws`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from transformers import LogitsProcessorList

from ...engine.acceptance import follow_choices
from ...engine.loop import Session
from ...engine.memory.media import count_media
from ...engine.noise import Purpose
from ...engine.request import RequestOptions
from ...engine.stats.run import EXACT
from ...methods import HSD, Autoregressive, Method, PromptLookup, Speculative
from ...methods.aligned.alignment import Experience
from ...methods.prompt_lookup import LookupDrafter
from ...methods.speculative import ChainDrafter
from ...tasks.detokenizer import Detokenizer, special_ids
from ..engine_thread import ServedRequest, seed_of
from ..refusal import BadRequestError, too_long
from .choice import AnswerParsers, Choice
from .protocol import ChatRequest, text_of

SAMPLING = (
    "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty",
    "frequency_penalty",
)  # fmt: skip
"""Fields of requests that `generate` calls the same."""
PREDICTED_NODES = 16
"""Draft tokens a round, at most, of a prediction in a server whose method looks nothing up."""
NO_TOKEN = -1
"""A stop id that no token has; without any, `generate` takes those of the model's config."""


@dataclass(frozen=True)
class Prepared:
    """Holds inputs of the model for one prompt.

    Attributes:
        inputs: what the processor returned: CPU tensors of one row, with `input_ids [1, tokens]`.
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
        method: how it decodes.
        slots: tokens that a row's memory has, drafts included; `None` is any number.
        created: seconds since 1970.
    """

    names: tuple[str, ...]
    tokenizer: Any = field(repr=False)
    prepare: Callable[[ChatRequest], Awaitable[Prepared]] = field(repr=False)
    max_model_len: int
    vocab_size: int
    stop_token_ids: frozenset[int]
    default_max_tokens: int | None = None
    method: Method = field(default_factory=Autoregressive, repr=False)
    slots: int | None = None
    created: int = 0

    @property
    def name(self) -> str:
        return self.names[0]


class Planner:
    """Makes the engine's requests of the clients' to one model.

    A `prediction` is the draft, whatever the server's method. Where that looks drafts up, it looks
    there, too; otherwise the request is decoded by `HSD`, in a batch of such requests.
    """

    def __init__(self, served: ServedModel) -> None:
        self.served = served
        self._parsers = AnswerParsers(served.tokenizer)
        self._special = special_ids(served.tokenizer)
        self._experience = Experience()

    def prediction_of(self, request: ChatRequest) -> list[int]:
        """Returns ids of `prediction`, no more than an answer can have; slow if it is long."""
        if request.prediction is None:
            return []
        text = text_of(request.prediction.content)
        ids = self.served.tokenizer(text, add_special_tokens=False)["input_ids"]
        return list(ids[: self.served.max_model_len])

    def plan(
        self,
        name: str,
        request: ChatRequest,
        prompt: Prepared,
        arrived: float,
        deadline: float | None,
        prediction: Sequence[int] = (),
        matcher: Callable[[int], Any] = lambda width: None,
    ) -> list[Choice]:
        """Returns the choices, with their requests.

        Args:
            name: the client's request's id.
            arrived, deadline: when it came, and has to be answered, in the engine's seconds.
            matcher: makes the grammar of one choice, by the ids of its prompt.

        Raises:
            BadRequestError: the prompt does not fit, or a field goes beyond the model.
        """
        limit = self._limit(request, prompt.prompt_tokens)
        sampling, stops = self._sampling(request), self._stop_ids(request)
        keys = prompt.media_keys
        if keys and len(keys) != count_media(prompt.inputs):
            keys = ()  # a processor made several of one, such as tiles: the engine hashes them
        method, on_session = self.decoding(prediction, prompt.prompt_tokens + limit)
        choices: list[Choice] = []
        for number in range(request.choices):
            options = {**sampling, "max_new_tokens": limit}
            if (grammar := matcher(prompt.prompt_tokens)) is not None:
                options["logits_processor"] = LogitsProcessorList([grammar])
            chosen = RequestOptions(
                options, seed_of(request.seed, number), logprobs=request.num_logprobs,
                media_keys=keys, on_session=on_session,
            )  # fmt: skip
            made = ServedRequest(
                inputs=prompt.inputs, options=chosen, method=method, rows=1, deadline=deadline,
                arrived=arrived, id=f"{name}-{number}", prompt_tokens=prompt.prompt_tokens,
                stop_token_ids=stops, grammar=grammar,
            )  # fmt: skip
            parser = self._parsers.of(request, prompt.inputs["input_ids"][0])
            hidden = frozenset[int]() if parser.needs_special_tokens else self._special
            text = Detokenizer(self.served.tokenizer, hidden)
            ends = request.stops, request.min_tokens or 0
            choices.append(Choice(number, made, text, parser, *ends, prediction))
        return choices

    def decoding(
        self, prediction: Sequence[int], tokens: int
    ) -> tuple[Method, Callable[[Session], None]]:
        """Returns how a request of `tokens` in all is decoded, and what takes its session."""
        method, slots = self.served.method, self.served.slots
        if isinstance(method, HSD):  # without a prediction it decodes plainly
            return replace(method, drafts=[[prediction] if prediction else []]), follow_draws
        looks_up = isinstance(method, PromptLookup | Speculative) and method.mode == EXACT
        if not prediction or looks_up:
            return method, partial(follow_draws, prediction=prediction)
        nodes = PREDICTED_NODES if slots is None else min(PREDICTED_NODES, slots - tokens - 1)
        if nodes >= 1:  # else there is no room for a block
            method = HSD(drafts=[[prediction]], max_nodes=nodes, experience=self._experience)
        return method, follow_draws

    def _sampling(self, request: ChatRequest) -> dict[str, Any]:
        """Returns options of `generate`; what the request leaves out, the model's
        `generation_config.json` says.

        Raises:
            BadRequestError: a bias of a token that the model does not have.
        """
        values = {name: getattr(request, name) for name in SAMPLING}
        options = {name: value for name, value in values.items() if value is not None}
        if request.top_k == -1:
            options["top_k"] = 0
        if request.temperature is not None:
            options["do_sample"] = request.temperature > 0
        if request.temperature == 0:  # what greedy decoding would ignore
            for name in ("temperature", "top_p", "top_k", "min_p"):
                options.pop(name, None)
        if request.logit_bias:
            biases = {(int(token),): float(bias) for token, bias in request.logit_bias.items()}
            [highest], known = max(biases), self.served.vocab_size
            if highest >= known:
                text = f"logit_bias names token {highest}, and there are {known}"
                raise BadRequestError("logit_bias", text)
            options["sequence_bias"] = biases
        stops = self._stop_ids(request)
        options["eos_token_id"] = sorted(stops) or [NO_TOKEN]
        if request.min_tokens and stops:
            options["min_new_tokens"] = request.min_tokens
        return options

    def _stop_ids(self, request: ChatRequest) -> frozenset[int]:
        ids = frozenset() if request.ignore_eos else self.served.stop_token_ids
        return ids | frozenset(request.stop_token_ids or ())

    def _limit(self, request: ChatRequest, prompt: int) -> int:
        """New tokens at most; what is asked for and does not fit is refused."""
        limit = self.served.max_model_len
        requested = request.limit
        if prompt >= limit or (requested is not None and prompt + requested > limit):
            raise too_long(prompt, requested or 1, limit)
        default = self.served.default_max_tokens
        return requested or min(default or limit, limit - prompt)


def follow_draws(session: Session, prediction: Sequence[int] = ()) -> None:
    """Have a session keep drafts as far as they are what the target draws.

    How much is drafted depends on the load, and under rejection sampling the text depends on what
    is drafted. Here every draw belongs to the seed and the place in the text, as in plain decoding.
    A chain is drafted with the target's own random numbers, so that it tends to be what the target
    draws; still fewer drafts are kept than by rejection sampling. Greedy decoding is the same.

    Args:
        prediction: what its row is expected to say, where drafts are looked up; others have none.
    """
    is_exact, drafter = session.stats.mode == EXACT, session.drafter
    if is_exact:
        session.rule = follow_choices
    if isinstance(drafter, ChainDrafter):
        drafter.purpose, drafter.looks_up = Purpose.TOKEN, is_exact
        drafter.prediction = prediction
    elif isinstance(drafter, LookupDrafter):
        drafter.predict([prediction] * drafter.lookup.rows)
