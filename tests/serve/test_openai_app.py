"""OpenAI's paths over an application: answers, streams, refusals."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any

import httpx
import pytest

from serve.chatting import HELLO, NAMES, ScriptedService, prepare, scripted, served, talking
from serve.robots import until
from serve.spoken import byte_level, ids_of
from sooner.errors import SoonerError, UnsupportedError
from sooner.serve.openai.errors import BadRequestError
from sooner.serve.refusal import RefusedError, too_many

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"


async def ask(service: Any, body: Any, path: str = CHAT, **options: Any) -> httpx.Response:
    headers = options.pop("headers", {})
    async with talking(service, **options) as client:
        if isinstance(body, bytes):
            return await client.post(path, content=body, headers=headers)
        return await client.post(path, json=body, headers=headers)


def asked(service: Any, body: Any, path: str = CHAT, **options: Any) -> httpx.Response:
    return asyncio.run(ask(service, body, path, **options))


def chunks(answer: httpx.Response) -> list[Any]:
    """The data of a stream; `[DONE]` is seen to, and left out."""
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    lines = [line for line in answer.text.split("\n\n") if line and not line.startswith(":")]
    assert all(line.startswith("data: ") for line in lines)
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def error_of(answer: httpx.Response) -> dict[str, Any]:
    told = answer.json()
    assert set(told) == {"error"}
    assert set(told["error"]) == {"message", "type", "param", "code"}
    assert "\n" not in told["error"]["message"]
    return dict(told["error"])


def test_an_answer_has_its_text_its_usage_and_its_metrics() -> None:
    with scripted("the quick brown fox") as service:
        answer = asked(service, {**HELLO, "model": "org/tiny"}, headers={"X-Request-Id": "abc"})
    told = answer.json()
    assert answer.status_code == 200
    assert answer.headers["x-request-id"] == "abc"
    assert (told["id"], told["object"], told["model"]) == (
        "chatcmpl-abc", "chat.completion", "org/tiny",
    )  # fmt: skip
    [choice] = told["choices"]
    assert choice["message"] == {"role": "assistant", "content": "the quick brown fox"}
    assert choice["finish_reason"] == "stop"
    said = len(ids_of("the quick brown fox")) + 1
    prompt = service.jobs[0].prompt_tokens
    assert told["usage"] == {
        "prompt_tokens": prompt, "completion_tokens": said, "total_tokens": prompt + said,
        "prompt_tokens_details": {"cached_tokens": 2},
        "completion_tokens_details": {
            "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0,
        },
    }  # fmt: skip
    drafts = told["metrics"]["speculative_decoding"]
    steps = -(-said // 3)
    assert drafts == {
        "mode": "exact", "num_spec_steps": steps, "num_draft_tokens": 2 * steps,
        "num_accepted_draft_tokens": 2 * steps, "draft_acceptance_rate": 1.0,
        "mean_acceptance_length": 3.0, "acceptance_histogram": [0, 0, steps],
    }  # fmt: skip


def test_a_stream_has_the_role_first_and_the_usage_last() -> None:
    with scripted("the fox: 漢字 🦊") as service:
        options = {"include_usage": True}
        told = chunks(asked(service, {**HELLO, "stream": True, "stream_options": options}))
    first, *middle, last, usage = told
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert all(chunk["usage"] is None for chunk in told[:-1])
    assert all(chunk["choices"][0]["finish_reason"] is None for chunk in [first, *middle])
    text = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in [*middle, last])
    assert text == "the fox: 漢字 🦊"
    assert last["choices"][0]["finish_reason"] == "stop"
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == len(ids_of(text)) + 1
    assert usage["metrics"]["speculative_decoding"]["num_spec_steps"] > 0
    assert len({(chunk["id"], chunk["created"], chunk["object"]) for chunk in told}) == 1
    assert told[0]["object"] == "chat.completion.chunk"


def test_usage_is_told_to_those_who_ask() -> None:
    with scripted() as service:
        told = chunks(asked(service, {**HELLO, "stream": True}))
    assert all(chunk["choices"] and "usage" not in chunk for chunk in told)


BODIES: dict[str, dict[str, Any]] = {
    "plain": {},
    "stop": {"stop": ["STOP", "brown f"]},
    "choices": {"n": 3, "stop": "fox"},
    "limit": {"max_tokens": 7},
    "logprobs": {"logprobs": True, "top_logprobs": 2},
    "origins": {"return_token_origins": True, "stop": "fox"},
}


@pytest.mark.parametrize("blocks", [(1,), (4,), (2, 7, 1), (100,)])
@pytest.mark.parametrize("name", BODIES)
def test_a_stream_says_what_an_answer_says(name: str, blocks: tuple[int, ...]) -> None:
    script = "the quick 漢字 brown fox, naïve 🦊🦊 café STOP it"
    with scripted(script, blocks=blocks) as service:
        whole = asked(service, {**HELLO, **BODIES[name]}).json()
        options = {"stream": True, "stream_options": {"include_usage": True}}
        told = chunks(asked(service, {**HELLO, **BODIES[name], **options}))
    assert told[-1]["usage"] == whole["usage"]
    for choice in whole["choices"]:
        mine = [
            one for chunk in told[:-1] for one in chunk["choices"]
            if one["index"] == choice["index"]
        ]  # fmt: skip
        assert choice["message"]["content"] == "".join(
            one["delta"].get("content", "") for one in mine
        )
        assert [one["finish_reason"] for one in mine if one["finish_reason"]] == [
            choice["finish_reason"]
        ]
        if name == "logprobs":
            joined = [row for one in mine for row in one["logprobs"]["content"]]
            assert joined == choice["logprobs"]["content"]
        if name == "origins":
            assert choice["token_origins"] == [row for one in mine for row in one["token_origins"]]
    assert "�" not in json.dumps(told, ensure_ascii=False)


def test_the_answer_is_the_same_at_every_block_size() -> None:
    script = "the quick 漢字 brown fox, naïve 🦊🦊 café STOP it"
    answers = []
    for blocks in [(1,), (2,), (5, 3), (64,)]:
        with scripted(script, blocks=blocks) as service:
            told = asked(service, {**HELLO, "stop": ["é S", "xyz"]}).json()
            answers.append((told["choices"], told["usage"]["completion_tokens"]))
    assert all(answer == answers[0] for answer in answers)
    assert answers[0][0][0]["message"]["content"] == "the quick 漢字 brown fox, naïve 🦊🦊 caf"


def test_a_stop_string_frees_the_row() -> None:
    with scripted("the END of it" + " and on" * 300, blocks=[2], pause=0.002) as service:
        told = asked(service, {**HELLO, "stop": "END"}).json()
        assert told["choices"][0]["message"]["content"] == "the "
        assert told["usage"]["completion_tokens"] < 10
        assert not service.rows
        assert service.rounds < 300


def test_each_choice_has_a_job_with_its_number() -> None:
    with scripted(lambda job: f"fox {job.choice}") as service:
        told = asked(service, {**HELLO, "n": 3, "seed": 5, "temperature": 0.5}).json()
        assert [one["message"]["content"] for one in told["choices"]] == ["fox 0", "fox 1", "fox 2"]
        assert [job.choice for job in service.jobs] == [0, 1, 2]
        assert {job.sampling.seed for job in service.jobs} == {5}
        assert told["usage"]["prompt_tokens"] == service.jobs[0].prompt_tokens
        assert told["usage"]["completion_tokens"] == 3 * (len(ids_of("fox 0")) + 1)
        assert told["usage"]["prompt_tokens_details"]["cached_tokens"] == 2


def test_a_job_gets_what_was_asked() -> None:
    end = byte_level().eos_token_id
    body = {
        **HELLO, "temperature": 0.5, "top_p": 0.9, "top_k": -1, "min_p": 0.1, "seed": -3,
        "repetition_penalty": 1.1, "presence_penalty": -1, "frequency_penalty": 0.5,
        "logit_bias": {"5": -100, "6": 1.5}, "max_tokens": 9, "max_completion_tokens": 4,
        "stop_token_ids": [77], "logprobs": True, "top_logprobs": 3,
        "prediction": {"type": "content", "content": [{"type": "text", "text": "the fox"}]},
    }  # fmt: skip
    with scripted() as service:
        answer = asked(service, body)
        assert answer.status_code == 200
        [job] = service.jobs
    sampling = job.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0.5, 0.9, 0)
    assert (sampling.min_p, sampling.seed, sampling.repetition_penalty) == (0.1, -3, 1.1)
    assert (sampling.presence_penalty, sampling.frequency_penalty) == (-1, 0.5)
    assert (dict(sampling.logit_bias), sampling.logprobs) == ({5: -100, 6: 1.5}, 3)
    assert (job.max_tokens, job.stop_token_ids) == (4, {77, end})
    assert job.prediction == ids_of("the fox")
    assert answer.json()["usage"]["completion_tokens_details"] == {
        "accepted_prediction_tokens": min(4, len(ids_of("the fox"))),
        "rejected_prediction_tokens": max(len(ids_of("the fox")) - 4, 0),
    }


def test_what_is_not_asked_is_left_to_the_generation_config() -> None:
    with scripted() as service:
        asked(service, {**HELLO, "temperature": None, "user": "me", "store": False})
        [job] = service.jobs
        sampling = job.sampling
        assert sampling.temperature is sampling.top_p is sampling.top_k is sampling.seed is None
        assert job.max_tokens == 2048 - job.prompt_tokens
        assert job.deadline is None


def test_the_default_limit_is_the_models() -> None:
    async def run(service: ScriptedService) -> None:
        async with talking(service, served(default_max_tokens=5)) as client:
            told = (await client.post(CHAT, json=HELLO)).json()
            assert told["choices"][0]["finish_reason"] == "length"
            assert told["usage"]["completion_tokens"] == 5

    with scripted("the quick brown fox and on") as service:
        asyncio.run(run(service))


def test_an_ignored_end_token_is_one_like_others() -> None:
    with scripted("fox") as service:
        told = asked(service, {**HELLO, "ignore_eos": True}).json()
        assert service.jobs[0].stop_token_ids == frozenset()
        assert told["choices"][0]["finish_reason"] == "length"


def test_logprobs_have_bytes_and_no_infinity() -> None:
    with scripted("é漢") as service:
        told = asked(service, {**HELLO, "logprobs": True, "top_logprobs": 1}).json()
    rows = told["choices"][0]["logprobs"]["content"]
    assert bytes(itertools.chain(*(row["bytes"] for row in rows))).decode() == "é漢"
    assert all(row["logprob"] >= -9999 and len(row["top_logprobs"]) == 1 for row in rows)


def test_origins_say_which_tokens_were_drafted() -> None:
    with scripted("the quick fox", blocks=[4]) as service:
        told = asked(service, {**HELLO, "return_token_origins": True}).json()
    rows = told["choices"][0]["token_origins"]
    assert [row["origin"] for row in rows[:4]] == ["draft", "draft", "draft", "target"]
    assert [row["id"] for row in rows][:-1] == ids_of("the quick fox")
    assert "".join(row["token"] for row in rows[:-1]) == "the quick fox"


def test_completions_take_texts_and_tokens() -> None:
    with scripted("the fox") as service:
        told = asked(service, {"prompt": ["a b", "c"], "n": 2, "logprobs": 1}, TEXT).json()
        assert [one["index"] for one in told["choices"]] == [0, 1, 2, 3]
        assert [one["text"] for one in told["choices"]] == ["the fox"] * 4
        prompts = [ids_of("a b"), ids_of("a b"), ids_of("c"), ids_of("c")]
        assert [job.inputs["input_ids"].tolist() for job in service.jobs] == [[p] for p in prompts]
        assert told["usage"]["prompt_tokens"] == len(prompts[0]) + len(prompts[2])
        logprobs = told["choices"][0]["logprobs"]
        assert "".join(logprobs["tokens"]) == "the fox"
        places = [0, *itertools.accumulate(map(len, logprobs["tokens"]))][:-1]
        assert logprobs["text_offset"] == places
        assert told["object"] == "text_completion"

        told = asked(service, {"prompt": [[1, 2], [3]], "stream": True}, TEXT)
        texts = {0: "", 1: ""}
        for chunk in chunks(told):
            for one in chunk["choices"]:
                texts[one["index"]] += one["text"]
        assert texts == {0: "the fox", 1: "the fox"}
        assert service.jobs[-1].inputs["input_ids"].tolist() == [[3]]


REFUSED: list[tuple[Any, str | None, str]] = [
    (b"", None, "the body is no JSON"),
    (b"[1]", None, "the body is [1]; send an object"),
    ({}, "messages", "messages is missing"),
    ({**HELLO, "temperature": "1"}, "temperature", "temperature is '1'"),
    ({**HELLO, "n": 0}, "n", "n is 0"),
    ({**HELLO, "max_tokens": 3000}, "messages", "the model takes 2048 tokens in all"),
    ({"messages": [{"role": "user", "content": "a" * 9000}]}, "messages", "the prompt has"),
    ({**HELLO, "logit_bias": {"512": 1}}, "logit_bias", "logit_bias names token 512"),
    ({**HELLO, "top_logprobs": 2}, "top_logprobs", "top_logprobs goes with logprobs"),
    ({**HELLO, "functions": []}, "functions", "functions is not supported here; send tools"),
    ({**HELLO, "response_format": {"type": "json_object"}}, "response_format", "response_format n"),
    ({"messages": [{"role": "user", "content": [{"type": "text", "text": 5}]}]},
     "messages[0].content[0].text", "messages[0].content[0].text is 5"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "field", "text"), REFUSED)
def test_bad_requests_are_refused_with_their_field(body: Any, field: str | None, text: str) -> None:
    with scripted() as service:
        answer = asked(service, body)
        assert not service.jobs
    assert answer.status_code == 400
    told = error_of(answer)
    assert told["type"] == "invalid_request_error"
    assert told["param"] == field
    assert told["message"].startswith(text)
    is_long = "2048" in told["message"]
    assert told["code"] == ("context_length_exceeded" if is_long else None)


def test_completions_that_can_not_be_are_refused() -> None:
    wrong: list[dict[str, Any]] = [
        {"prompt": "a", "echo": True}, {"prompt": "a", "suffix": "b"}, {"prompt": ""},
        {"prompt": "a", "best_of": 4}, {"prompt": [512]}, {"prompt": ["a", [1]]}, {},
        {"prompt": ["a"] * 300},
    ]  # fmt: skip
    with scripted() as service:
        for body in wrong:
            answer = asked(service, body, TEXT)
            assert answer.status_code == 400, body
            assert error_of(answer)["param"] in {"echo", "suffix", "prompt", "best_of"}
        assert not service.jobs


def test_what_the_method_does_not_support_is_refused() -> None:
    model = served(unsupported=frozenset(["logprobs", "presence_penalty"]), method="hsd")

    async def run(service: ScriptedService) -> None:
        async with talking(service, model) as client:
            for field, value in (("logprobs", True), ("presence_penalty", 1)):
                answer = await client.post(CHAT, json={**HELLO, field: value})
                assert (answer.status_code, error_of(answer)["param"]) == (400, field)
                assert "'hsd'" in error_of(answer)["message"]
            assert (await client.post(CHAT, json={**HELLO, "logprobs": False})).status_code == 200

    with scripted() as service:
        asyncio.run(run(service))


def test_another_model_is_unknown() -> None:
    with scripted() as service:
        answer = asked(service, {**HELLO, "model": "gpt-4"})
        assert (answer.status_code, error_of(answer)["code"]) == (404, "model_not_found")
        assert "this server has 'tiny'" in error_of(answer)["message"]


def test_models_are_listed() -> None:
    async def run(service: ScriptedService) -> None:
        async with talking(service) as client:
            told = (await client.get("/v1/models")).json()
            assert [card["id"] for card in told["data"]] == list(NAMES)
            assert told["data"][0] == {
                "id": "tiny", "object": "model", "created": 1_700_000_000, "owned_by": "sooner",
                "max_model_len": 2048, "method": "plain", "mode": "exact",
            }  # fmt: skip
            assert (await client.get("/v1/models/org/tiny")).json()["id"] == "org/tiny"
            answer = await client.get("/v1/models/other")
            assert (answer.status_code, error_of(answer)["code"]) == (404, "model_not_found")

    with scripted() as service:
        asyncio.run(run(service))


def test_prompts_that_can_not_be_prepared_are_refused() -> None:
    async def refuse(request: Any) -> Any:
        raise BadRequestError("messages[0].content[1].image_url.url", "that is no picture")

    async def break_down(request: Any) -> Any:
        raise RuntimeError("/secret/path")

    async def run(service: ScriptedService) -> None:
        async with talking(service, served(prepare=refuse)) as client:
            answer = await client.post(CHAT, json=HELLO)
            assert answer.status_code == 400
            assert error_of(answer)["param"] == "messages[0].content[1].image_url.url"
        async with talking(service, served(prepare=break_down)) as client:
            answer = await client.post(CHAT, json=HELLO)
            assert answer.status_code == 500  # a fault of ours, undocumented
            assert "secret" not in answer.text
            assert client.handler.under_way == 0  # type: ignore[attr-defined]

    with scripted() as service:
        asyncio.run(run(service))


def test_what_the_service_refuses_has_its_status() -> None:
    with scripted() as service:
        service.refusal = too_many(4, 2.5)
        answer = asked(service, HELLO)
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "3")
        assert error_of(answer)["type"] == "rate_limit_error"
        service.refusal = RefusedError(400, "it takes 9 pages, and there are 4")
        assert asked(service, {**HELLO, "stream": True}).status_code == 400


def test_choices_of_which_one_is_refused_are_all_cancelled() -> None:
    class Half(ScriptedService):
        def submit(self, job: Any) -> None:
            if job.choice == 2:
                raise too_many(2, 1)
            super().submit(job)

    service = Half("fox" * 100)
    service.go.clear()
    assert asked(service, {**HELLO, "n": 3}).status_code == 429
    assert len(service.jobs) == 2
    assert not service.rows
    service.close()


@pytest.mark.parametrize(
    ("state", "code"), [("warming", "warming_up"), ("draining", "draining"), ("failed", "failed")]
)
def test_a_server_that_is_not_ready_says_so(state: Any, code: str) -> None:
    async def run(service: ScriptedService) -> None:
        async with talking(service) as client:
            answer = await client.post(CHAT, json=HELLO)
            assert (answer.status_code, error_of(answer)["code"]) == (503, code)
            assert answer.headers["retry-after"]
            ready = await client.get("/ready")
            assert (ready.status_code, ready.json()) == (503, {"status": state})
            health = await client.get("/health")
            assert health.status_code == (503 if state == "failed" else 200)

    with scripted() as service:
        service.state = state
        asyncio.run(run(service))


def test_health_fails_when_the_loop_stands_still() -> None:
    async def run(service: ScriptedService) -> None:
        now = service.ticked
        async with talking(service, clock=lambda: now + 29) as client:
            answer = await client.get("/health")
            assert answer.status_code == 200
            assert answer.json() == {
                "status": "ok", "seconds_since_tick": 29.0, "running": 0, "waiting": 0,
            }  # fmt: skip
            assert (await client.get("/ready")).json() == {"status": "ready"}
        async with talking(service, clock=lambda: now + 31) as client:
            answer = await client.get("/health")
            assert (answer.status_code, answer.json()["status"]) == (503, "stalled")

    with scripted() as service:
        asyncio.run(run(service))


FAILURES: list[tuple[Any, Exception | None, int, str | None]] = [
    ("error", RuntimeError("/secret"), 503, "engine_error"),
    ("error", UnsupportedError("no such thing"), 400, None),
    ("error", SoonerError("no"), 400, None),
    ("error", MemoryError(), 503, "out_of_memory"),
    ("error", RefusedError(503, "the server is stopping"), 503, None),
    ("deadline", None, 504, "deadline_exceeded"),
    ("cancelled", None, 503, "draining"),
]


@pytest.mark.parametrize(("reason", "error", "status", "code"), FAILURES)
def test_a_job_that_fails_has_a_status(
    reason: Any, error: Exception | None, status: int, code: str | None
) -> None:
    with scripted("the fox", blocks=[100]) as service:
        service.failure, service.failed_reason = error or RuntimeError(), reason
        answer = asked(service, {**HELLO, "n": 2})
        assert answer.status_code == status
        assert error_of(answer)["code"] == code
        assert "secret" not in answer.text
        if status == 504 or code in ("engine_error", "out_of_memory"):
            assert answer.headers["x-should-retry"] == "false"
        assert not service.rows


def test_a_late_error_is_told_in_the_stream() -> None:
    with scripted("the fox", blocks=[2]) as service:
        service.failure = RuntimeError("/secret")
        told = chunks(asked(service, {**HELLO, "stream": True}))
    assert told[0]["choices"][0]["delta"]["role"] == "assistant"
    assert told[-1]["error"]["code"] == "engine_error"
    assert "secret" not in json.dumps(told)


def test_an_early_error_of_a_stream_has_its_status() -> None:
    class Failing(ScriptedService):
        def _round(self, job: Any) -> None:
            self._end(job, "deadline")

    service = Failing()
    answer = asked(service, {**HELLO, "stream": True})
    assert (answer.status_code, error_of(answer)["code"]) == (504, "deadline_exceeded")
    service.close()


def test_silence_is_filled_with_pings() -> None:
    async def run(service: ScriptedService) -> str:
        async with talking(service, settings={"ping_seconds": 0.02}) as client:
            asking = asyncio.ensure_future(client.post(CHAT, json={**HELLO, "stream": True}))
            await until(lambda: service.jobs)
            await asyncio.sleep(0.2)
            service.go.set()
            return (await asking).text

    with scripted("the fox") as service:
        service.go.clear()
        text = asyncio.run(run(service))
    lines = text.split("\n\n")
    assert lines[0].startswith("data: ")  # the role
    assert lines[1] == lines[2] == ": ping"
    assert lines[-2] == "data: [DONE]"


def test_deadlines_come_from_header_body_and_settings() -> None:
    with scripted() as service:
        asked(service, {**HELLO, "deadline_ms": 5000})
        asked(service, {**HELLO, "deadline_ms": 5000}, headers={"X-Deadline-Ms": "70000"})
        asked(service, HELLO, settings={"deadline": 9.0})
        left = [round(job.deadline - job.arrived) for job in service.jobs if job.deadline]
        assert left == [5, 70, 9]
        answer = asked(service, HELLO, headers={"X-Deadline-Ms": "soon"})
        assert (answer.status_code, error_of(answer)["param"]) == (400, "deadline_ms")


def test_preparing_that_takes_too_long_is_ended() -> None:
    async def hang(request: Any) -> Any:
        await asyncio.sleep(100)

    async def own_timeout(request: Any) -> Any:
        raise TimeoutError

    async def run(service: ScriptedService) -> None:
        async with talking(service, served(prepare=hang)) as client:
            answer = await client.post(CHAT, json={**HELLO, "deadline_ms": 20})
            assert (answer.status_code, error_of(answer)["code"]) == (504, "deadline_exceeded")
        async with talking(service, served(prepare=own_timeout)) as client:
            answer = await client.post(CHAT, json={**HELLO, "deadline_ms": 20_000})
            assert answer.status_code == 500
        assert not service.jobs

    with scripted() as service:
        asyncio.run(run(service))


def test_a_full_server_refuses_before_it_reads() -> None:
    async def run(service: ScriptedService) -> None:
        settings = {"max_rows": 1, "max_queue": 1}
        async with talking(service, settings=settings) as client:
            first = [asyncio.ensure_future(client.post(CHAT, json=HELLO)) for _ in range(2)]
            await until(lambda: len(service.jobs) == 2)
            answer = await client.post(CHAT, content=b"nonsense")
            assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
            service.go.set()
            assert [one.status_code for one in await asyncio.gather(*first)] == [200, 200]
            assert (await client.post(CHAT, json=HELLO)).status_code == 200
            assert client.handler.under_way == 0  # type: ignore[attr-defined]
            assert client.handler.metrics.statuses == [429, 200, 200, 200]  # type: ignore[attr-defined]

    with scripted() as service:
        service.go.clear()
        asyncio.run(run(service))


def test_choices_that_never_fit_are_no_reason_to_come_back() -> None:
    with scripted() as service:
        answer = asked(service, {**HELLO, "n": 4}, settings={"max_rows": 2, "max_queue": 1})
        assert (answer.status_code, error_of(answer)["param"]) == (400, "n")
        assert not service.jobs


def test_bodies_are_limited() -> None:
    with scripted() as service:
        settings = {"max_body": 1000, "max_bytes": 1000}
        answer = asked(service, b"x" * 2000, settings=settings)
        assert answer.status_code == 413
        assert error_of(answer)["message"].startswith("the request has more than")


def test_there_are_no_other_paths_and_methods() -> None:
    async def run(service: ScriptedService) -> None:
        async with talking(service) as client:
            for method, path, status in [
                ("GET", "/", 404), ("GET", CHAT, 405), ("POST", "/health", 405),
                ("HEAD", "/v1/models", 405), ("POST", CHAT + "/", 404), ("GET", "/v1", 404),
            ]:  # fmt: skip
                answer = await client.request(method, path)
                assert answer.status_code == status, path
                if method != "HEAD":
                    assert error_of(answer)["message"].endswith("see /docs")
                if status == 405:
                    assert answer.headers["allow"]

    with scripted() as service:
        asyncio.run(run(service))


def test_metrics_and_pages_need_nothing_from_elsewhere() -> None:
    async def run(service: ScriptedService) -> None:
        async with talking(service) as client:
            assert (await client.get("/metrics")).text == "sooner:answers 0\n"
            page = await client.get("/docs")
            assert "default-src 'none'" in page.headers["content-security-policy"]
            assert "<script" not in page.text
            assert "http" not in page.text.replace("http-equiv", "")
            assert "POST /v1/chat/completions" in page.text
            described = (await client.get("/openapi.json")).json()
            assert {"ChatRequest", "ChatCompletion"} <= set(described["components"]["schemas"])
            refs = set(_refs(described))
            known = {f"#/components/schemas/{name}" for name in described["components"]["schemas"]}
            assert refs <= known

    with scripted() as service:
        asyncio.run(run(service))


def _refs(told: Any) -> Any:
    if isinstance(told, dict):
        for key, value in told.items():
            if key == "$ref":
                yield value
            yield from _refs(value)
    elif isinstance(told, list):
        for one in told:
            yield from _refs(one)


def test_hanging_up_frees_the_row() -> None:
    async def run(service: ScriptedService) -> None:
        from serve.chatting import handler_of
        from sooner.serve.openai.app import create_app

        handler = handler_of(service)
        app = create_app(handler)
        for stream in (False, True):
            gone = asyncio.Event()
            body = json.dumps({**HELLO, "n": 2, "stream": stream}).encode()
            messages = iter([{"type": "http.request", "body": body, "more_body": False}])

            async def receive(messages: Any = messages, gone: Any = gone) -> Any:
                for message in messages:
                    return message
                await gone.wait()
                return {"type": "http.disconnect"}

            sent: list[Any] = []

            async def send(message: Any, sent: Any = sent) -> None:
                sent.append(message)

            scope = {
                "type": "http", "method": "POST", "path": CHAT, "raw_path": CHAT.encode(),
                "query_string": b"", "headers": [(b"host", b"localhost")], "root_path": "",
                "scheme": "http", "http_version": "1.1", "client": None, "server": None,
            }  # fmt: skip
            service.jobs.clear()
            task = asyncio.ensure_future(app(scope, receive, send))
            await until(lambda: len(service.jobs) == 2)
            if stream:
                service.go.set()
                await until(lambda sent=sent: len(sent) > 4)
                service.go.clear()
            assert len(service.rows) == 2
            gone.set()
            await task
            assert not service.rows
            assert handler.under_way == 0
            assert handler.bodies.held == 0
        assert handler.metrics.statuses == [499, 200]  # type: ignore[attr-defined]
        await handler.close()

    with scripted("and on " * 2000, blocks=[1]) as service:
        service.go.clear()
        asyncio.run(run(service))


def test_the_fake_prepares_as_the_template_has_it() -> None:
    from sooner.serve.openai.protocol import ChatRequest

    request = ChatRequest.model_validate(HELLO)
    prepared = asyncio.run(prepare(request))
    text = byte_level().decode(prepared.inputs["input_ids"][0])
    assert text == "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
