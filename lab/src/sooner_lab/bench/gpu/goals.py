"""What a run is to reach on any card, and the figure of the result by which it is judged.

Every goal is a ratio: to HF on the same card, to a copy within its memory, to a plain step of the
same launching, or to the card's data sheet.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..goals import Goal

GIB = 2**30
DTYPE = "bfloat16"


def goals(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a row for each goal, see `goals.goal`, those that were not measured with the `reason`.

    Without a GPU, or in another dtype than bf16, nothing is judged, and `reached` has what came
    out.
    """
    device, dtype = (result["settings"].get(name) for name in ("device", "dtype"))
    rows = [each.judge(result) for each in GOALS]
    if device != "cpu" and dtype == DTYPE:
        return rows
    reason = f"goals are of GPUs in {DTYPE}; this is {dtype} on {device}"
    return [{"reason": reason, **row, "met": None} for row in rows]


def _content(result: dict[str, Any], section: str) -> dict[str, Any]:
    content: dict[str, Any] = result["sections"].get(section, {})
    if "status" not in content:
        raise KeyError(f"section {section} was not run")
    if content["status"] == "skipped":
        raise KeyError(f"section {section} was skipped: {content['reason']}")
    return content


def _rows(result: dict[str, Any], section: str, key: str) -> list[dict[str, Any]]:
    return list(_content(result, section).get(key, []))


def _figure(row: dict[str, Any], key: str) -> float:
    if row.get("identical") is False:
        raise KeyError(f"{row.get('arm', 'it')} has another text than plain decoding")
    if row.get(key) is None:
        raise KeyError(row.get("missing") or row.get("reason") or f"no {key}")
    return float(row[key])


def _of(section: str, rows: str, key: str, **labels: Any) -> Callable[[dict[str, Any]], float]:
    """The figure `key` of the first of a section's `rows` with these labels."""

    def find(result: dict[str, Any]) -> float:
        for row in _rows(result, section, rows):
            if all(row.get(name) == value for name, value in labels.items()):
                return _figure(row, key)
        raise KeyError(
            ", ".join(f"{name} {label}" for name, label in labels.items()) + ": no figure"
        )

    return find


def _prefill(section: str, tokens: int, arm: str, key: str) -> Callable[[dict[str, Any]], float]:
    """The figure `key` of an arm of sparse attention over so many tokens."""

    def find(result: dict[str, Any]) -> float:
        for row in _rows(result, section, "lengths"):
            if row["tokens"] == tokens:
                return _figure(row["arms"].get(arm, {}), key)
        raise KeyError(f"{tokens} tokens: no figure")

    return find


def _section(section: str, key: str, scale: float = 1.0) -> Callable[[dict[str, Any]], float]:
    def find(result: dict[str, Any]) -> float:
        return _figure(_content(result, section), key) / scale

    return find


def _arm(result: dict[str, Any], arm: str) -> dict[str, Any]:
    for model in _rows(result, "step", "models"):
        if model["model"] == result["settings"]["target"]:
            return {"arm": arm, **model["arms"].get(arm, {})}
    raise KeyError(f"no step of {result['settings']['target']}")


def _over_compiled(arm: str) -> Callable[[dict[str, Any]], float]:
    def find(result: dict[str, Any]) -> float:
        ours = _figure(_arm(result, arm), "round_seconds")
        return _figure(_arm(result, "hf-compiled"), "round_seconds") / ours

    return find


def _draft_step(result: dict[str, Any]) -> float:
    steps = _content(result, "methods").get("steps", {})
    draft, plain = (_figure(steps.get(name, {}), "seconds") for name in ("draft", "plain"))
    return draft / plain


def _late_captures(result: dict[str, Any]) -> float:
    """Most graphs that a call captures after an arm's first one, and a wave after the first."""
    counts = [row["captures"][1:] for row in _rows(result, "methods", "rows") if "captures" in row]
    for arm in _rows(result, "engine", "arms"):
        counts.append([wave["captures"] for wave in arm["waves"][1:] if "captures" in wave])
    if not any(counts):
        raise KeyError("no arm was called twice")
    return float(max(max(calls, default=0) for calls in counts))


GOALS = (
    Goal(
        "a copy, share of the data sheet's bandwidth", 0.8,
        lambda result: _figure(result["bandwidth"], "share_of_data_sheet"),
    ),
    Goal("no kernel is red", 1.0, _section("kernels", "ok")),
    Goal("graphs alone, over HF's compiled step", 0.75, _over_compiled("sooner-graphs")),
    Goal("graphs with compile, over HF's compiled step", 1.0, _over_compiled("sooner-compiled")),
    Goal(
        "a compiled plain step, share of the copy's bandwidth", 0.75,
        lambda result: _figure(_arm(result, "sooner-compiled"), "share_of_copy"),
    ),
    Goal(
        "a plain step with graphs, share in which the GPU is idle", 0.05,
        lambda result: _figure(_arm(result, "sooner-graphs"), "idle_share"), clamp=True,
    ),
    Goal(
        "a verification of 16 over a plain step, both graphs, behind 32,768 tokens", 1.15,
        _of("verify", "cells", "over_plain", context=32_768, block=16, arm="graph chain"),
        clamp=True,
    ),
    Goal("a step of the 0.5B draft over one of the 7B target", 0.2, _draft_step, clamp=True),
    Goal(
        "speculative decoding at acceptance 0.8, share of theory", 0.9,
        _of("methods", "rows", "share_of_theory", arm="speculative", acceptance=0.8),
    ),
    Goal(
        "the same, share of a round in which the GPU is idle", 0.1,
        _of("methods", "rows", "idle_share", arm="speculative", acceptance=0.8), clamp=True,
    ),
    *(
        Goal(
            f"tokens a round at which {arm} is as fast as plain decoding", maximum,
            _of("methods", "rows", "break_even", arm=arm), clamp=True,
        )
        for arm, maximum in (("eagle", 1.6), ("eagle3", 1.6), ("dflash", 1.4), ("ddtree", 1.5))
    ),
    Goal(
        "prompt lookup whose drafts are never right, over plain decoding", 0.97,
        _of("methods", "rows", "over_plain", arm="prompt-lookup"),
    ),
    Goal("graphs captured by any call but an arm's first", 0.0, _late_captures, clamp=True),
    Goal(
        "parallel decoding over plain behind 25k visual tokens, at acceptance 0.8", 1.4,
        _of("video", "rows", "over_plain", arm="parallel"),
    ),
    Goal(
        "a grid by frames over torch's FlashAttention, 131,072 tokens", 12.0,
        _prefill("prefill", 131_072, "grid", "over_sdpa"),
    ),
    Goal(
        "the same, a million tokens", 40.0, _prefill("prefill-1m", 1 << 20, "grid", "over_sdpa")
    ),
    Goal(
        "searched patterns over torch's FlashAttention, a million tokens", 5.0,
        _prefill("prefill-1m", 1 << 20, "searched", "over_sdpa"),
    ),
    Goal(
        "index of a grid, share of its layer, 131,072 tokens", 0.05,
        _prefill("prefill", 131_072, "grid", "index_share"), clamp=True,
    ),
    Goal(
        "all graphs, GiB beyond weights and KV", 2.0, _section("graphs", "bytes", GIB),
        clamp=True,
    ),
)  # fmt: skip
