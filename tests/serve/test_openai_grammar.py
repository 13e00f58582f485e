"""Masks of a draft's tree by a grammar, against matching each path from the beginning."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from contextlib import nullcontext
from typing import Any

import pytest
import torch

from serve.chatting import CHAT, HELLO, VOCAB, chunks, scripted, talking
from serve.spoken import byte_level, ids_of
from sooner.serve.http import parse
from sooner.serve.openai.grammar import (
    GrammarError,
    GuidanceGrammars,
    GuidanceMatcher,
)
from sooner.serve.openai.protocol import ChatRequest
from sooner.serve.refusal import BadRequestError

llguidance = pytest.importorskip("llguidance")

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "city": {"enum": ["Bern", "Basel"]}},
    "required": ["name", "city"],
    "additionalProperties": False,
}
ANY = torch.ones(VOCAB, dtype=torch.bool)
ANSWER = '{"name": "the 漢", "city": "Bern"}'
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": PERSON}}
    for name in ("find", "call")
]


def grammars() -> GuidanceGrammars:
    tokenizer = byte_level()
    return GuidanceGrammars(tokenizer, VOCAB, [tokenizer.eos_token_id])


def request(**fields: Any) -> ChatRequest:
    return ChatRequest.model_validate({**HELLO, **fields})


def as_schema(schema: Any) -> dict[str, Any]:
    return {"response_format": {"type": "json_schema", "json_schema": {"schema": schema}}}


def matcher_of(schema: Any) -> GuidanceMatcher:
    tokenizer = byte_level()
    text = llguidance.LLMatcher.grammar_from_json_schema(json.dumps(schema))
    ends = [tokenizer.eos_token_id]
    inner = llguidance.LLTokenizer(
        tokenizer.backend_tokenizer.to_str(), n_vocab=VOCAB, eos_token=ends
    )
    return GuidanceMatcher(llguidance.LLMatcher(inner, text), VOCAB, ends)


def mask_after(path: list[int]) -> Any:
    """What may follow a path, by a matcher of its own; `None` if the path is not allowed."""
    matcher, end = matcher_of(PERSON), byte_level().eos_token_id
    if end in path[:-1]:
        return None
    try:
        matcher.accept(path)
    except GrammarError:
        return None
    return ANY if end in path else matcher.masks([], [])[0][0]


@pytest.mark.parametrize("seed", range(6))
def test_masks_of_a_tree_are_those_of_its_paths(seed: int) -> None:
    draw = random.Random(seed)
    ids = ids_of(ANSWER)
    start = draw.randrange(len(ids))
    matcher = matcher_of(PERSON)
    matcher.accept(ids[:start])
    tokens: list[int] = []
    parents: list[int] = []
    paths: list[list[int]] = [[]]
    while len(tokens) < 24:
        parent = draw.randrange(-1, len(tokens))
        at = start + len(paths[1 + parent])
        right = ids[at] if at < len(ids) else byte_level().eos_token_id
        token = right if draw.random() < 0.7 else draw.randrange(420)
        if [*paths[1 + parent], token] in paths:
            if draw.random() < 0.1:
                continue
            token = draw.randrange(420)
        if [*paths[1 + parent], token] in paths:
            continue
        tokens.append(token)
        parents.append(parent)
        paths.append([*paths[1 + parent], token])
    masks, allowed = matcher.masks(tokens, parents)
    assert masks.shape == (25, VOCAB)
    for entry, path in enumerate(paths):
        expected = mask_after(ids[:start] + path)
        if entry:
            assert bool(allowed[entry - 1]) == (expected is not None)
        torch.testing.assert_close(masks[entry], ANY if expected is None else expected)
    again = matcher.masks(tokens, parents)[0]  # it was rolled back
    assert torch.equal(again, masks)
    matcher.accept(ids[start:])


@pytest.mark.parametrize("seed", range(5))
def test_whatever_the_masks_allow_is_what_the_schema_wants(seed: int) -> None:
    schema = {
        "type": "array", "minItems": 1, "maxItems": 3,
        "items": {
            "type": "object", "additionalProperties": False, "required": ["city", "big"],
            "properties": {"city": {"enum": ["Bern", "Zürich"]}, "big": {"type": "boolean"}},
        },
    }  # fmt: skip
    draw, output, end = random.Random(seed), list[int](), byte_level().eos_token_id
    matcher = matcher_of(schema)
    while not output or output[-1] != end:
        allowed = matcher.masks([], [])[0][0].nonzero().flatten().tolist()
        words = [token for token in allowed if byte_level().decode([token]).strip()]
        output.append(draw.choice(words or allowed))
        matcher.accept(output[-1:])
    cities = json.loads(byte_level().decode(output, skip_special_tokens=True))
    assert 1 <= len(cities) <= 3
    assert {city["city"] for city in cities} <= {"Bern", "Zürich"}
    assert {type(city["big"]) for city in cities} == {bool}


def test_references_of_a_tool_stay_within_its_own_schema() -> None:
    names = {"find": "the", "call": "fox"}  # each allows a word, by a definition of the same name
    fields = {"properties": {"a": {"$ref": "#/$defs/X"}, "more": {"$ref": "#"}}, "$id": "http://a"}
    tools = [
        {"type": "function", "function": {"name": name, "parameters": {
            **fields, "additionalProperties": False, "$defs": {"X": {"enum": [word]}},
        }}}
        for name, word in names.items()
    ]  # fmt: skip
    schema: Any = request(tools=tools, tool_choice="required").schema_of_answer
    for (name, right), word in itertools.product(names.items(), names.values()):
        ids = ids_of(f'[{{"name": "{name}", "parameters": {{"more": {{"a": "{word}"}}}}}}]')
        with nullcontext() if word == right else pytest.raises(GrammarError):
            matcher_of(json.loads(schema.text)).accept(ids)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        (
            {"response_format": {"type": "json_object"}, "tools": TOOLS, "tool_choice": "required"},
            "response_format",
        ),
        ({**as_schema(PERSON), "min_tokens": 2}, "min_tokens"),
        ({"tools": TOOLS, "tool_choice": "required", "min_tokens": 2}, "min_tokens"),
        ({**as_schema(PERSON), "ignore_eos": True}, "ignore_eos"),
    ],
)
def test_what_can_not_be_a_single_grammar_is_refused(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        parse(ChatRequest, json.dumps({**HELLO, **fields}).encode())
    assert caught.value.field == field


def test_without_grammars_fields_that_need_them_are_refused_by_name() -> None:
    for fields, field in (
        (as_schema(PERSON), "response_format"),
        ({"tools": TOOLS, "tool_choice": "required"}, "tool_choice"),
    ):
        with pytest.raises(BadRequestError, match=f"{field} needs a grammar") as caught:
            asyncio.run(GuidanceGrammars(object(), VOCAB, []).of(request(**fields)))
        assert caught.value.field == field


BAD: list[tuple[Any, str]] = [
    ({"type": "nonsense"}, "Invalid type: nonsense"),
    ({"$ref": "#/none"}, "does not exist"),
    ({"type": "string", "pattern": "("}, "regex parse error"),
]


def test_a_failure_that_is_not_the_grammars_is_not_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def run() -> None:
        made = grammars()
        compile_grammar, failures = made._compile, [MemoryError("no room")]

        def failing(*key: str) -> Any:
            if failures:
                raise failures.pop()
            return compile_grammar(*key)

        monkeypatch.setattr(made, "_compile", failing)
        try:
            with pytest.raises(MemoryError):
                await made.of(request(**as_schema(PERSON)))
            assert await made.of(request(**as_schema(PERSON))) is not None
        finally:
            made.close()

    asyncio.run(run())


def test_schemas_are_compiled_on_trial_and_cached() -> None:
    async def run() -> None:
        made = grammars()
        try:
            for schema, message in BAD:
                with pytest.raises(BadRequestError, match=message) as caught:
                    await made.of(request(**as_schema(schema)))
                assert caught.value.field == "response_format.json_schema.schema"
            first = await made.of(request(**as_schema(PERSON)))
            matcher, other = first(9), (await made.of(request(**as_schema(PERSON))))(9)
            assert made._compiling.cache_info().hits == 1
            assert matcher is not None
            assert other is not None
            matcher.accept(ids_of('{"name'))
            other.accept(ids_of(ANSWER))  # each has its own place
            with pytest.raises(BadRequestError, match="letters as JSON"):
                await made.of(request(**as_schema({"enum": ["x" * 300_000]})))
            assert (await made.of(request()))(9) is None
        finally:
            made.close()

    asyncio.run(run())


HOSTILE = {
    "allOf": [
        {"anyOf": [{"type": "string", "pattern": f"^{first}.*{last}$"} for last in "abcdefgh"]}
        for first in "abcdefgh"
    ]
}
"""A schema of a few letters whose automaton would have no end; llguidance refuses it."""


def test_a_schema_that_would_compile_for_ever_is_refused_and_others_compile() -> None:
    async def run() -> None:
        made = grammars()
        try:
            with pytest.raises(BadRequestError, match="can't be made a grammar"):
                await made.of(request(**as_schema(HOSTILE)))
            assert (await made.of(request(**as_schema(PERSON))))(9) is not None
        finally:
            made.close()

    asyncio.run(run())


def test_choices_get_a_matcher_each() -> None:
    named = {"type": "function", "function": {"name": "call"}}

    async def run(service: Any) -> Any:
        async with talking(service, grammars=grammars()) as client:
            body = {**HELLO, "n": 2, **as_schema(PERSON)}
            answer = await client.post(CHAT, json=body)
            assert json.loads(answer.json()["choices"][1]["message"]["content"])["city"] == "Bern"
            first, second = (request.grammar for request in service.requests)
            assert first is not second
            assert isinstance(first, GuidanceMatcher)
            bad = await client.post(CHAT, json={**HELLO, **as_schema({"type": "x"})})
            assert (bad.status_code, bad.json()["error"]["param"]) == (
                400, "response_format.json_schema.schema",
            )  # fmt: skip
            body = {**HELLO, "tools": TOOLS, "tool_choice": named, "stream": True}
            return await client.post(CHAT, json=body)

    with scripted(ANSWER) as service:
        events = chunks(asyncio.run(run(service)))
    calls = [
        call for chunk in events for choice in chunk["choices"]
        for call in choice["delta"].get("tool_calls", [])
    ]  # fmt: skip
    assert [call["function"].get("name") for call in calls if "id" in call] == ["call"]
    assert json.loads("".join(call["function"]["arguments"] for call in calls))["city"] == "Bern"
    assert events[-1]["choices"][0]["finish_reason"] == "tool_calls"
