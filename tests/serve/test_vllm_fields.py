"""Fields of vLLM's requests are honoured, refused by name, or ignored, as `docs/serve.md` says."""

from __future__ import annotations

import asyncio
import copy
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from serve.chatting import CHAT, VOCAB, ScriptedService, error_of, scripted, served, talking
from serve.spoken import byte_level, ids_of
from sooner.serve.openai.grammar import GuidanceGrammars
from sooner.serve.openai.prompts import ChatPrompts
from sooner.serve.openai.protocol import REFUSED
from sooner.tasks.loading import Loaded

pytest.importorskip("llguidance")

PAGE = Path(__file__).parents[2] / "docs" / "serve.md"
ROW = re.compile(r"^\| (`[a-z_`, ()'OpenAI]+) \| (honoured|refused|ignored)(.*) \|$", re.MULTILINE)

# Beyond OpenAI's, of vLLM 0.10 to 0.13: `vllm/entrypoints/openai/protocol.py`.
CHATS = {
    "add_special_tokens", "allowed_token_ids", "bad_words", "best_of", "cache_salt", "echo",
    "guided_choice", "guided_decoding_backend", "guided_grammar", "guided_json", "guided_regex",
    "ignore_eos", "include_stop_str_in_output", "kv_transfer_params",
    "length_penalty", "logits_processors", "min_p", "min_tokens", "priority", "prompt_logprobs",
    "repetition_penalty", "request_id", "return_token_ids", "return_tokens_as_token_ids",
    "skip_special_tokens", "spaces_between_special_tokens", "stop_token_ids", "structured_outputs",
    "top_k", "truncate_prompt_tokens", "use_beam_search", "vllm_xargs",
    "add_generation_prompt", "chat_template", "chat_template_kwargs", "continue_final_message",
    "documents", "include_reasoning", "media_io_kwargs", "mm_processor_kwargs", "reasoning_effort",
    "structural_tag", "thinking_token_budget",
}  # fmt: skip

WORDS = ids_of("the quick")
DRAWN = {"temperature": 1.0, "seed": 3}
EXAMPLES: dict[str, Any] = {
    "add_generation_prompt": False, "add_special_tokens": True, "allowed_token_ids": WORDS,
    "bad_words": ["fox"], "best_of": 3, "cache_salt": "abc", "chat_template": "{{ messages }}",
    "chat_template_kwargs": {"enable_thinking": True}, "continue_final_message": True,
    "documents": [{"title": "a", "text": "b"}], "echo": True, "guided_choice": ["the", "fox"],
    "guided_decoding_backend": "outlines", "guided_grammar": 'start: "fox"',
    "guided_json": {"type": "object"}, "guided_regex": "a+",
    "ignore_eos": True, "include_reasoning": False, "include_stop_str_in_output": True,
    "kv_transfer_params": {"a": 1}, "length_penalty": 2.0, "logits_processors": ["a.b"],
    "media_io_kwargs": {"video": {"num_frames": 4}}, "min_p": 0.25, "min_tokens": 6,
    "mm_processor_kwargs": {"num_crops": 4}, "priority": 7, "prompt_embeds": "AAAA",
    "prompt_logprobs": 0, "reasoning_effort": "low", "repetition_penalty": 1.5, "request_id": "a",
    "return_token_ids": True, "return_tokens_as_token_ids": True, "skip_special_tokens": False,
    "spaces_between_special_tokens": False, "stop_token_ids": [WORDS[-1]],
    "structural_tag": "{}", "structured_outputs": {"regex": "a+"}, "suffix": "b",
    "thinking_token_budget": 4, "top_k": 3, "truncate_prompt_tokens": 2, "use_beam_search": True,
    "vllm_xargs": {"a": 1},
}  # fmt: skip
COMPANIONS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("min_p", "top_k"), DRAWN),
}
"""What stands in both requests that are compared."""
SEEN_ELSEWHERE = {"include_reasoning"}
"""What changes an answer with a response template alone."""
SCRIPT = "<think>the</think>the quick <think> brown fox"


def model(**fields: Any) -> Any:
    """A served model whose template reads variables, and whose tokenizer begins texts with one."""
    tokenizer = copy.deepcopy(byte_level())
    tokenizer.chat_template = (
        "{{ reasoning_effort or '' }}{{ 'T' if enable_thinking else '' }}"
    ) + tokenizer.chat_template
    tokenizer._tokenizer.post_processor = byte_level_begin(tokenizer)
    target = Loaded("tiny", SimpleNamespace(dtype=torch.float32), tokenizer, True)  # type: ignore[arg-type]
    prompts = ChatPrompts("tiny", target, None, 2048)  # type: ignore[arg-type]
    return served(tokenizer=tokenizer, prepare=prompts, **fields)


def byte_level_begin(tokenizer: Any) -> Any:
    from tokenizers.processors import TemplateProcessing

    begin = "<|endoftext|>"
    known = [(begin, tokenizer.convert_tokens_to_ids(begin))]
    return TemplateProcessing(single=f"{begin} $A", special_tokens=known)


def signature(service: ScriptedService) -> Any:
    """What the engine gets of the last request, but for times and ids."""
    request = service.requests[-1]
    options = dict(request.options.sampling)
    masks = options.pop("logits_processor", None)
    return (
        request.inputs["input_ids"].tolist(), options, request.stop_token_ids, request.method,
        None if masks is None else "grammar",
    )  # fmt: skip


def compare(name: str) -> tuple[Any, Any, Any]:
    """The answer to a request with a field, and what the engine and the client were told of it and
    of the same request without."""
    value = EXAMPLES[name]
    companions = dict(COMPANIONS.get(name, {}))
    messages = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "so"}]
    body: dict[str, Any] = {"messages": messages}

    async def run() -> tuple[Any, Any, Any]:
        tokenizer = byte_level()
        grammars = GuidanceGrammars(tokenizer, VOCAB, [tokenizer.eos_token_id])
        with scripted(SCRIPT) as service:
            async with talking(service, model(), grammars=grammars) as client:
                plain = await client.post(CHAT, json={**body, **companions})
                assert plain.status_code == 200, plain.text
                without = signature(service), plain.json()["choices"]
                answer = await client.post(CHAT, json={**body, **companions, name: value})
                if answer.status_code != 200:
                    assert len(service.requests) == 1
                    return answer, None, without
                return answer, (signature(service), answer.json()["choices"]), without

    return asyncio.run(run())


def documented() -> dict[str, str]:
    """Returns, for each field in the page's table, its row's first word and the rest."""
    table: dict[str, str] = {}
    for names, word, rest in ROW.findall(PAGE.read_text(encoding="utf-8")):
        for name in re.findall(r"`([a-z_]+)`", names):
            assert name not in table, name
            table[name] = word + rest
    return table


def test_the_page_has_every_field() -> None:
    table = documented()
    assert set(table) >= CHATS
    openais = {"audio", "functions", "function_call", "web_search_options"}
    refused = {name for name, word in table.items() if word.startswith("refused")}
    if_false = {"add_generation_prompt", "skip_special_tokens"}
    assert refused - if_false - {"input_audio"} == set(REFUSED) - openais


@pytest.mark.parametrize("name", sorted(CHATS))
def test_fields_of_chats_do_what_the_page_documents(name: str) -> None:
    word = documented()[name]
    answer, got, without = compare(name)
    if word.startswith("refused"):
        assert answer.status_code == 400
        error = error_of(answer)
        assert error["param"] == name
        assert name in error["message"]
        return
    assert answer.status_code == 200, answer.text
    if word.startswith("ignored"):
        assert got == without
    elif name not in SEEN_ELSEWHERE:
        assert got != without


@pytest.mark.parametrize("value", [None, False, [], {}])
def test_a_refused_field_that_asks_for_nothing_is_ignored(value: Any) -> None:
    async def run() -> None:
        with scripted() as service:
            async with talking(service) as client:
                body = {"messages": [{"role": "user", "content": "hello"}]}
                answer = await client.post(CHAT, json={**body, **dict.fromkeys(REFUSED, value)})
                assert answer.status_code == 200, answer.text

    asyncio.run(run())
