"""vLLM's fields of requests that OpenAI's API lacks: honoured, refused by name, or without effect.

Fields of `IGNORED` change nothing here; those of `REFUSED` would change the answer and can't be
honoured. All others are fields of the models in `protocol.py`, or of `GuidedRequest`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from .errors import BadRequestError
from .messages import ApiFields, Text

MAX_OPTIONS = 4096
"""Texts of a `guided_choice`."""

REFUSED = {
    "audio": "no model here speaks",
    "cache_salt": "all requests share one prefix cache; --no-prefix-caching turns it off",
    "chat_template": "a request can't bring a template; put it into the checkpoint's folder",
    "function_call": "send tools and tool_choice",
    "functions": "send tools and tool_choice",
    "kv_transfer_params": "keys and values stay in this process",
    "logits_processors": "no code by name; use logit_bias, bad_words or allowed_token_ids",
    "logprob_token_ids": "use top_logprobs",
    "media_io_kwargs": "frames and pixels are those that the model's processor takes",
    "mm_processor_kwargs": "frames and pixels are those that the model's processor takes",
    "prompt_embeds": "send prompt as text or token ids",
    "prompt_logprobs": "log-probabilities of prompts are not kept",
    "repetition_detection": "use frequency_penalty or repetition_penalty",
    "return_token_ids": "return_token_origins has the ids of the answer",
    "structural_tag": "use guided_grammar, guided_json or tools",
    "suffix": "put it into the prompt",
    "thinking_token_budget": "use max_tokens",
    "truncation_side": "prompts are cut on the left by truncate_prompt_tokens",
    "use_beam_search": "speculation follows one sequence",
    "vllm_xargs": "there are no such extensions",
    "web_search_options": "this server searches nothing",
}
"""Fields that would change the answer, and why they can't be honoured or what does the same."""

IGNORED = {
    "guided_decoding_backend": "llguidance is the only one",
    "length_penalty": "of beam search alone",
    "metadata": "no answer depends on it",
    "priority": "of the order, which is the deadline's here",
    "prompt_cache_key": "prefixes are found by their content",
    "request_id": "the header X-Request-Id sets it",
    "safety_identifier": "no answer depends on it",
    "service_tier": "there is one",
    "spaces_between_special_tokens": "of slow tokenizers alone",
    "store": "nothing is stored",
    "user": "no answer depends on it",
    "verbosity": "of OpenAI's own models",
}
"""Fields without effect on an answer of this server, and why."""


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
    """vLLM's newer form of the `guided_` fields; one of them is set."""

    model_config = ConfigDict(strict=True, extra="allow")

    json_: Annotated[dict[str, Any] | bool | Text | None, Field(alias="json")] = None
    regex: Text | None = None
    choice: Annotated[list[Text], Field(min_length=1, max_length=MAX_OPTIONS)] | None = None
    grammar: Text | None = None
    json_object: bool | None = None
    whitespace_pattern: Text | None = None

    @property
    def fields(self) -> list[Structure]:
        """Every structure that is asked for; more than one can't be honoured."""
        path = "structured_outputs"
        schema = {"type": "object"} if self.json_object else self.json_
        name = "json_object" if self.json_object else "json"
        return structures(
            {
                "json": (f"{path}.{name}", schema),
                "regex": (f"{path}.regex", self.regex),
                "choice": (f"{path}.choice", self.choice),
                "grammar": (f"{path}.grammar", self.grammar),
            },
            self.whitespace_pattern,
        )


class GuidedRequest(ApiFields):
    """The fields by which vLLM's clients ask for a structure."""

    guided_json: dict[str, Any] | bool | Text | None = None
    guided_regex: Text | None = None
    guided_choice: Annotated[list[Text], Field(min_length=1, max_length=MAX_OPTIONS)] | None = None
    guided_grammar: Text | None = None
    guided_whitespace_pattern: Text | None = None
    structured_outputs: StructuredOutputs | None = None

    @property
    def guided(self) -> list[Structure]:
        """Every structure that these fields ask for."""
        result = structures(
            {
                "json": ("guided_json", self.guided_json),
                "regex": ("guided_regex", self.guided_regex),
                "choice": ("guided_choice", self.guided_choice),
                "grammar": ("guided_grammar", self.guided_grammar),
            },
            self.guided_whitespace_pattern,
        )
        return result + (self.structured_outputs.fields if self.structured_outputs else [])

    def check_guided(self) -> None:
        """Require at most one structure, and nothing of it that can't be honoured.

        Raises:
            BadRequestError: names the field.
        """
        extras = getattr(self.structured_outputs, "model_extra", None) or {}
        if extras.get(name := "structural_tag") is not None:
            raise BadRequestError(
                f"structured_outputs.{name}", f"{name} is not supported: {REFUSED[name]}"
            )
        if len(result := self.guided) > 1:
            names = " and ".join(item.field for item in result)
            raise BadRequestError(result[1].field, f"{names} exclude each other; send one")
        pattern = self.guided_whitespace_pattern
        if pattern is not None and (not result or result[0].kind != "json"):
            raise BadRequestError(
                "guided_whitespace_pattern", "guided_whitespace_pattern goes with guided_json alone"
            )


def structures(requested: Mapping[Any, tuple[str, Any]], whitespace: str | None) -> list[Structure]:
    """Returns structures of the fields that are set.

    Args:
        requested: of each kind its field and value.
        whitespace: what may stand between the parts of JSON, as a regular expression.

    Raises:
        BadRequestError: a schema that is no JSON.
    """
    result = []
    for kind, (field, value) in requested.items():
        if value is None:
            continue
        text = value if isinstance(value, str) else json.dumps(value)
        if kind == "json":
            text = schema_text(field, value, whitespace)
        result.append(Structure(field, kind, text))
    return result


def schema_text(field: str, schema: Any, whitespace: str | None = None) -> str:
    """Returns a JSON schema as llguidance takes it.

    Args:
        schema: as an object, `True`, or JSON.

    Raises:
        BadRequestError: it is no JSON.
    """
    if isinstance(schema, str):
        try:
            schema = json.loads(schema)
        except (ValueError, RecursionError) as error:
            raise BadRequestError(field, f"{field} is no JSON: {error}") from error
    if whitespace is not None and isinstance(schema, dict):
        schema = {**schema, "x-guidance": {"whitespace_pattern": whitespace}}
    return json.dumps(schema)
