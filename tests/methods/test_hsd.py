"""HSD through the whole loop: exact whatever the drafts, and few steps where they are good."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import method_matrix as matrix
import sooner
import tiny
from sooner.methods.aligned.alignment import Experience
from sooner.methods.aligned.method import HSD

NEW = 40


def texts(family: str, kind: str, rows: int, new: int = NEW) -> list[list[int]]:
    """What HF's greedy decoding says."""
    width = tiny.inputs(family, kind, rows)["input_ids"].shape[1]
    return matrix.reference(family, kind, rows, new)[:, width:].tolist()


def garbage(text: list[int], rng: random.Random) -> list[list[int]]:
    return [[rng.randrange(90) for _ in range(rng.randrange(30))] for _ in range(4)]


def wrong_now_and_then(text: list[int], rng: random.Random) -> list[list[int]]:
    """Tokens replaced, left out and put in."""
    draft: list[int] = []
    for token in text:
        draft += rng.choices(([token], [7], [], [token, 7]), (17, 1, 1, 1))[0]
    return [draft]


def shuffled(text: list[int], rng: random.Random) -> list[list[int]]:
    """Regions in any order, one of them missing, one twice."""
    cuts = [0, *sorted(rng.sample(range(1, len(text)), 5)), len(text)]
    regions = [text[start:end] for start, end in itertools.pairwise(cuts)]
    regions[2] = regions[4]
    rng.shuffle(regions)
    return regions


def several(text: list[int], rng: random.Random) -> list[list[int]]:
    """Drafts of the same text by different drafters."""
    return [*wrong_now_and_then(text, rng), *wrong_now_and_then(text, rng), *garbage(text, rng)]


def alternatives(text: list[int], rng: random.Random) -> list[list[list[int]]]:
    """Two drafts of each region, one of them wrong now and then, in any order."""
    regions = [text[start : start + 8] for start in range(0, NEW, 8)]
    pairs = [[*wrong_now_and_then(region, rng), region] for region in regions]
    return rng.sample(pairs, len(pairs))


Maker = Callable[[list[int], random.Random], list[Any]]
MAKERS: list[Maker] = [garbage, wrong_now_and_then, shuffled, several, alternatives]
OPTIONS: list[dict[str, Any]] = [
    {"nodes": 12},
    {"nodes": 48, "width": 3, "depth": 7},
    {"reference_window": 1, "nodes": 1},
    {"separator": (3, 4), "nodes": 24},
    {},
]


@pytest.mark.parametrize("maker", MAKERS, ids=lambda maker: maker.__name__)
@pytest.mark.parametrize("family", ["llama", "qwen3_vl"])
def test_greedy_ids_equal_those_of_generate_whatever_the_drafts(family: str, maker: Maker) -> None:
    rng = random.Random(f"{family} {maker.__name__}")
    kind = "text" if family == "llama" else "uneven"
    first = MAKERS.index(maker) + (family == "llama")
    for turn in (first % 5, (first + 2) % 5):  # all options with all makers, over both families
        rows, options = (1, 3, 5, 2, 3)[turn], OPTIONS[turn]
        drafts = [maker(text, rng) for text in texts(family, kind, rows)]
        method = HSD(drafts, **options)
        inputs, model = tiny.inputs(family, kind, rows), tiny.model(family)
        for new in (NEW, 1 + turn):
            expected = matrix.reference(family, kind, rows, new)
            made = sooner.generate(model, inputs, method, max_new_tokens=new, eos_token_id=None)
            assert made.sequences.tolist() == expected.tolist(), (options, new)
            assert made.stats.mode == "exact"


def run(drafts: list[Any], family: str = "llama", new: int = NEW, **options: Any) -> Any:
    inputs = tiny.inputs(family, "text", len(drafts))
    method = HSD(drafts, **options)
    return sooner.generate(
        tiny.model(family), inputs, method, max_new_tokens=new, eos_token_id=None
    )


def test_a_perfect_draft_is_accepted_whole() -> None:
    (text,) = texts("llama", "text", 1)
    stats = run([[text]], nodes=12).stats
    assert stats.num_spec_steps <= 4, "39 tokens behind the first, up to 13 a round"
    assert stats.aal >= 9
    made = run([[[*text[:9], tiny.VOCAB, *text[9:]]]], nodes=12)  # an id without a score
    assert made.tokens == [text]
    assert made.stats.aal >= 4


def test_drafts_of_which_nothing_is_accepted_are_hardly_verified() -> None:
    """By chances alone, so that no clock matters."""
    (text,) = texts("llama", "text", 1, 120)
    strangers = [token for token in range(80) if token not in text]
    rng = random.Random(3)
    drafts = [[rng.choice(strangers) for _ in range(30)] for _ in range(40)]
    stats = run([drafts], new=120).stats
    assert stats.num_accepted_draft_tokens == 0
    assert stats.num_draft_tokens <= 30, "of thousands"


def test_a_tolerance_accepts_more_and_reports_it() -> None:
    """A flat target, to which the draft's tokens are nearly as good as its own."""
    (text,) = texts("llama", "text", 1)
    rng = random.Random(5)
    draft = [rng.randrange(90) if rng.random() < 0.3 else token for token in text]
    exact = run([[draft]], nodes=20)
    relaxed = run([[draft]], nodes=20, acceptance_threshold=0.05)
    assert (exact.stats.mode, relaxed.stats.mode) == ("exact", "relaxed")
    assert exact.tokens == [text]
    assert relaxed.stats.aal > exact.stats.aal
    assert HSD([], acceptance_threshold=0.75).mode == "relaxed"
    assert HSD([]).mode == HSD([], acceptance_threshold=1).mode == "exact"


def test_experience_is_handed_on() -> None:
    experience = Experience()
    (text,) = texts("llama", "text", 1)
    for _ in range(2):
        run([[text]], experience=experience)
    assert experience.controller.times.rounds.count > 4
    assert run([[text]], nodes=8, experience=experience).tokens == [text]


class Tokenizer:
    """Every word is a number."""

    def __call__(self, text: str, add_special_tokens: bool) -> dict[str, list[int]]:
        assert not add_special_tokens
        return {"input_ids": [int(word) for word in text.split()]}


def test_drafts_are_lists_arrays_tensors_or_texts() -> None:
    drafts = [[[1, 2], np.array([3, 4]), torch.tensor([5]), "6 7"], []]
    method = HSD(drafts, tokenizer=Tokenizer())
    assert method.drafts == ((((1, 2),), ((3, 4),), ((5,),), ((6, 7),)), ())
    assert replace(method, nodes=4).drafts == method.drafts


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"drafts": "text"}, r"drafts is 'text'; it must be a list of drafts for each row"),
        ({"drafts": 3}, r"drafts is 3; it must be"),
        ({"drafts": [7]}, r"drafts\[0\] is 7; it must be a list of drafts"),
        ({"drafts": [[7]]}, r"drafts\[0\]\[0\] is 7; it must be a list of token ids, or a text"),
        ({"drafts": [["a"]]}, r"drafts\[0\]\[0\] is a text; give tokenizer="),
        ({"drafts": [[[1, -2]]]}, r"drafts\[0\]\[0\] holds -2; token ids"),
        ({"drafts": [[], [[0.5]]]}, r"drafts\[1\]\[0\] holds 0.5; token ids"),
        ({"reference_window": 0}, r"reference_window is 0"),
        ({"nodes": "many"}, r"nodes is 'many'; it must be 'auto'"),
        ({"nodes": 0}, r"nodes is 0"),
        ({"max_nodes": 1.5}, r"max_nodes is 1.5"),
        ({"depth": 0}, r"depth is 0"),
        ({"width": True}, r"width is True"),
        ({"acceptance_threshold": 0}, r"acceptance_threshold is 0; it must be above 0"),
        ({"acceptance_threshold": 1.1}, r"acceptance_threshold is 1.1"),
        ({"acceptance_threshold": "0.5"}, r"acceptance_threshold is '0.5'"),
    ],
    ids=str,
)
def test_options_without_sense_are_refused_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(sooner.SoonerError, match=message) as caught:
        HSD(**{"drafts": [], **options})
    assert "\n" not in str(caught.value)


def test_drafts_that_do_not_fit_the_batch_are_refused() -> None:
    inputs = tiny.inputs("llama", "text", 2)
    with pytest.raises(sooner.SoonerError, match="drafts are for 1 rows, the batch has 2"):
        sooner.generate(tiny.model("llama"), inputs, HSD([[[1]]]), max_new_tokens=3)


def test_drafts_that_come_late_know_which_rows_ended_at_once() -> None:
    """A function is asked once, behind the prefill."""
    expected, calls = texts("llama", "text", 3), []
    end = expected[1][0]

    def drafts() -> list[list[list[int]]]:
        calls.append(len(expected))
        return [[text] for text in expected]

    reference = matrix.reference("llama", "text", 3, NEW, end).tolist()
    made = tiny.model("llama").generate(
        **tiny.inputs("llama", "text", 3),
        custom_generate=HSD(drafts, nodes=12),
        max_new_tokens=NEW, eos_token_id=end, do_sample=False,
    )  # fmt: skip
    assert made.tolist() == reference
    assert calls == [3]
    with pytest.raises(sooner.SoonerError, match="drafts are for 1 rows, the batch has 2"):
        sooner.generate(
            tiny.model("llama"), tiny.inputs("llama", "text", 2), HSD(lambda: [[[1]]]),
            max_new_tokens=3,
        )  # fmt: skip
