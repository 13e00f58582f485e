"""The one exactness matrix: every method that calls itself exact joins `METHODS`.

A method is listed by a factory that takes a family of `tiny` and returns the method for a target of
that family. `cases()` covers all pairs of `FACTORS`, `product()` is the whole product of those that
matter most.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

import assistants
import sooner
import tiny
from covering import pairwise
from same_drafts import SameDrafts
from sooner.methods.sd_tree import STATIC_TREE

BATCHES = (1, 2, 3, 5)
LONG = 23


def _noisy(num_draft_tokens: Any) -> Callable[[str], sooner.Method]:
    return lambda family: sooner.Speculative(tiny.noisy(family), num_draft_tokens=num_draft_tokens)


def _stranger(family: str) -> sooner.Method:
    return sooner.Speculative(tiny.model(family, seed=5, layers=1), num_draft_tokens=4)


def _itself(family: str) -> sooner.Method:
    return sooner.Speculative(tiny.model(family), num_draft_tokens=5)


def _words_only(family: str) -> sooner.Method:
    """A text model of the other kind, which never sees the pixels."""
    return sooner.Speculative(
        tiny.model("qwen2" if family == "llama" else "llama", seed=3), num_draft_tokens=3
    )


def _larger_vocabulary(family: str) -> sooner.Method:
    return sooner.Speculative(tiny.repadded(family, tiny.VOCAB + 32), num_draft_tokens=4)


def _parallel(**options: Any) -> Callable[[str], sooner.Method]:
    return lambda family: sooner.ParallelVLM(
        tiny.noisy(family), prune=0.5, min_visual=0, num_draft_tokens=5, placement="thread",
        **options,
    )  # fmt: skip


def _eagle(**options: Any) -> Callable[[str], sooner.Method]:
    """An untrained head; with many siblings it is right now and then all the same."""
    return lambda family: sooner.Eagle(tiny.head(family), **{"nodes": 50, **options})


def _eagle3(**options: Any) -> Callable[[str], sooner.Method]:
    """An untrained head on states of three layers, with a reduced vocabulary."""
    return lambda family: sooner.Eagle(tiny.eagle3_head(family), **options)


def _dflash(**options: Any) -> Callable[[str], sooner.Method]:
    """An untrained drafter: its chains are seldom right, wide trees of its marginals more often."""
    return lambda family: sooner.DFlash(tiny.block_drafter(family), **options)


def _domino(**options: Any) -> Callable[[str], sooner.Method]:
    """One whose places depend on the tokens before them."""
    return lambda family: sooner.DFlash(tiny.block_drafter(family, chain="domino"), **options)


def _ddtree(**options: Any) -> Callable[[str], sooner.Method]:
    return lambda family: sooner.DDTree(tiny.block_drafter(family), **options)


def aligned(**options: Any) -> Callable[[str], sooner.Method]:
    """Drafts that are right for text prompts, in part and out of order, and chance for others."""

    def method(family: str) -> sooner.Method:
        width = tiny.inputs(family, "text", 2)["input_ids"].shape[1]
        first, other = reference(family, "text", 2, LONG)[:, width:].tolist()
        return SameDrafts([[first[12:], other[:9] + first[3:6], first[:10], other]], **options)

    return method


METHODS: dict[str, Callable[[str], sooner.Method]] = {
    "plain": lambda family: sooner.Autoregressive(),
    "prompt-lookup": lambda family: sooner.PromptLookup(num_draft_tokens=10),
    "prompt-lookup-short": lambda family: sooner.PromptLookup(num_draft_tokens=2, max_ngram=1),
    "noisy-1": _noisy(1),
    "noisy-4": _noisy(4),
    "noisy-7": _noisy(7),
    "noisy-auto": _noisy("auto"),
    "stranger": _stranger,
    "itself": _itself,
    "words-only": _words_only,
    "larger-vocabulary": _larger_vocabulary,
    "parallel": _parallel(),
    "sd-tree": lambda family: sooner.SDTree(tiny.noisy(family), STATIC_TREE),
    "onsd": lambda family: sooner.OnSD(tiny.noisy(family), num_draft_tokens=3),
    "parallel-paper": _parallel(schedule="paper"),
    "jacobi-1": lambda family: sooner.CoupledJacobi(1, "maximal"),
    "jacobi-4": lambda family: sooner.CoupledJacobi(4, "independent", init="random"),
    "jacobi-16": lambda family: sooner.CoupledJacobi(16, "gumbel", strength=0.5, init="left"),
    "eagle": _eagle(),
    "eagle-wide": _eagle(top_k=32, nodes=48, depth=3),
    "eagle-chain": _eagle(top_k=1, depth=4),
    "eagle-auto": _eagle(nodes="auto", top_k=24),
    "hsd": aligned(nodes=10),
    "hsd-wide": aligned(nodes=40, width=16, reference_window=1),
    "hsd-auto": aligned(),
    "prompt-lookup-auto": lambda family: sooner.PromptLookup(),
    "dflash": _dflash(num_draft_tokens=4),
    "ddtree": _ddtree(nodes=60),
    "ddtree-auto": _ddtree(nodes="auto", max_nodes=40),
    "eagle3": _eagle3(top_k=24, nodes=48, depth=3),
    "eagle3-auto": _eagle3(nodes="auto", top_k=16),
    "assistant": lambda family: sooner.Assistant(assistants.of(family), num_draft_tokens=4),
    "sd-tree-auto": lambda family: sooner.SDTree(tiny.noisy(family)),
    "domino": _domino(num_draft_tokens=4),
}


@dataclass(frozen=True)
class Case:
    """One cell: a method on a batch of a family, and how it is asked.

    Attributes:
        new: limit on new tokens.
        entry: `session`, `custom_generate`, `engine`, `paged` (an engine whose rows take pages), or
            `offloaded` (a session whose keys and values lie in host memory).
        ends: whether a token that appears half-way is the end of sequence.
        chunk: prompt tokens of a row that are prefilled at once; all of them without it.
        attention: the implementation in the target.
    """

    family: str
    method: str
    kind: str
    rows: int
    new: int
    entry: str
    ends: bool
    chunk: int | None = None
    attention: str = "sdpa"

    def __str__(self) -> str:
        end = "eos" if self.ends else "no-eos"
        parts = (
            self.family, self.method, self.kind, f"b{self.rows}", f"n{self.new}", self.entry, end
        )  # fmt: skip
        more = () if self.chunk is None else (f"c{self.chunk}",)
        return "-".join((*parts, *more, *(() if self.attention == "sdpa" else (self.attention,))))


FACTORS: dict[str, Sequence[Any]] = {
    "method": tuple(METHODS),
    "family": tiny.FAMILIES,
    "kind": tiny.KINDS,
    "rows": BATCHES,
    "new": (LONG, 17, 10, 6, 3, 1),
    "entry": ("session", "custom_generate", "engine", "paged", "offloaded"),
    "ends": (False, True),
    "chunk": (None, 5),
    "attention": ("sdpa", "eager"),
}


def allowed(setting: Mapping[str, Any]) -> bool:
    """Whether values go together; factors that are missing forbid nothing."""
    get = setting.get
    if {"family", "kind"} <= setting.keys() and setting["kind"] not in tiny.kinds(get("family")):
        return False
    if (get("method"), get("entry")) == ("assistant", "offloaded"):
        return False  # it reads the target's keys
    is_parallel = get("method") in ("parallel", "parallel-paper")
    if is_parallel and get("entry") in ("engine", "paged"):
        return False  # it decodes only rows that were admitted together
    return not (get("ends") and get("new", LONG) < 17)  # the end would stand behind the limit


@functools.cache
def cases() -> tuple[Case, ...]:
    """The cells of the core lane: every pair of values of two factors appears."""
    return tuple(Case(**setting) for setting in pairwise(FACTORS, allowed))


def product() -> Iterator[Case]:
    """The cells of the merge lane: method by family by rows, from slots and pages, else in turn."""
    main = (FACTORS[name] for name in ("method", "family", "rows"))
    for turn, (method, family, rows) in enumerate(itertools.product(*main)):
        for entry in (
            ("session", "custom_generate", "offloaded")[turn % 3],
            ("paged", "engine")[turn // 5 % 2],
        ):
            kinds, new = tiny.kinds(family), FACTORS["new"][turn // 3 % 6]
            setting = {
                "method": method, "family": family, "kind": kinds[turn // 3 % len(kinds)],
                "rows": rows, "new": new, "entry": entry, "ends": new >= 17 and turn % 2 == 1,
                "chunk": FACTORS["chunk"][turn // 5 % 2],
                "attention": FACTORS["attention"][turn // 7 % 2],
            }  # fmt: skip
            if allowed(setting):
                yield Case(**setting)


@functools.cache
def reference(
    family: str, kind: str, rows: int, new: int, end: int | None = None, **options: Any
) -> torch.Tensor:
    """Greedy sequences of HF's own incremental `generate`."""
    return tiny.model(family).generate(
        **tiny.inputs(family, kind, rows),
        max_new_tokens=new,
        eos_token_id=end,
        do_sample=False,
        **options,
    )


def middle_token(family: str, kind: str, rows: int) -> int:
    """A token that HF's greedy output holds half-way and not at once: the end inside a draft."""
    inputs = tiny.inputs(family, kind, rows)
    free = reference(family, kind, rows, LONG)[:, inputs["input_ids"].shape[1] :].tolist()
    late = [token for row in free for token in row[7:15] if all(token not in r[:3] for r in free)]
    return late[0] if late else free[-1][LONG // 2]
