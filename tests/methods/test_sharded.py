"""A target sharded by tensor parallelism over two processes; the draft is on the first alone."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import sharded_ranks
import sooner
import tiny
from sharded_ranks import FAMILIES, GREEDY, LIMIT, RANKS, SAMPLING, SEEDED

SECONDS = 600
"""After which the ranks hang; they take some fifteen on a core of their own."""
TESTS = Path(sharded_ranks.__file__).parent
STOPPED = "SoonerError: the first rank stopped decoding"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without distributed"),
    pytest.mark.skipif(torch.cuda.is_available(), reason="transformers would shard over GPUs"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoints for the ranks."""
    folder = tmp_path_factory.mktemp("ranks")
    for family in FAMILIES:
        tiny.model(family).save_pretrained(folder / family)
    return folder


@pytest.fixture(scope="module")
def report(folder: Path) -> list[dict[str, Any]]:
    """What each rank said."""
    paths = [str(TESTS), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    ranks = [
        subprocess.Popen(
            [sys.executable, sharded_ranks.__file__, str(folder), str(number)],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for number in range(RANKS)
    ]
    try:
        outputs = [rank.communicate(timeout=SECONDS)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0] * RANKS, "\n\n".join(outputs)[-6000:]
    return [json.loads((folder / f"rank-{number}.json").read_text()) for number in range(RANKS)]


def whole(family: str) -> Any:
    """The target in one piece, in the ranks' precision."""
    return copy.deepcopy(tiny.model(family)).double()


def plain(family: str, limit: int = LIMIT) -> list[list[int]]:
    """What it says by HF's own loop."""
    inputs = sharded_ranks.inputs(family)
    width, end = inputs["input_ids"].shape[1], tiny.EOS
    rows = whole(family).generate(**inputs, max_new_tokens=limit, do_sample=False)[:, width:]
    cut = [row.index(end) + 1 if end in row else len(row) for row in rows.tolist()]
    return [row[:length] for row, length in zip(rows.tolist(), cut, strict=True)]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_target_is_sharded(report: list[dict[str, Any]], family: str) -> None:
    for rank in report:
        shard, all_of_it = rank[f"{family} shard"]
        assert shard == all_of_it / RANKS


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", GREEDY)
def test_ranks_generate_the_same_ids_from_the_first_ones_drafts(
    report: list[dict[str, Any]], family: str, name: str
) -> None:
    """Greedy ids are the whole target's; seeds of the ranks differ, and what is drawn does not."""
    assert [rank[f"{family} greedy {name}"] for rank in report] == [plain(family)] * RANKS
    (accepted, drafted), *rest = [rank[f"{family} drafted {name}"] for rank in report]
    assert rest == [[accepted, drafted]] * len(rest)
    if name in ("speculative", "sd-tree", "parallel-paper"):  # those that draft whatever it gains
        assert drafted > 0
    if name == "sd-tree":  # nor look at a clock
        assert any(int(count) for count in accepted)  # JSON has no numbers for keys
    first, *rest = [rank[f"{family} sampled {name}"] for rank in report]
    assert all(isinstance(row, list) and row for row in first), first
    assert rest == [first] * len(rest)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", SEEDED)
def test_sampling_is_the_whole_targets_with_the_first_ranks_seed(
    report: list[dict[str, Any]], family: str, name: str
) -> None:
    method = SEEDED[name](tiny.noisy(family))
    options = {"max_new_tokens": LIMIT, "seed": 0, **SAMPLING}
    alone = sooner.generate(whole(family), sharded_ranks.inputs(family), method, **options)
    assert report[0][f"{family} sampled {name}"] == alone.tokens


def test_the_first_rank_decides_when_to_stop(report: list[dict[str, Any]]) -> None:
    assert [rank["criterion"] for rank in report] == [plain(FAMILIES[0], 6)] * RANKS


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("drafter", "RuntimeError: the draft is broken"),
        ("callback", "RuntimeError: the caller has enough"),
        ("request", "UnsupportedError: Eagle looks into the target"),
    ],
)
def test_a_failure_of_the_first_rank_ends_the_run_on_all(
    report: list[dict[str, Any]], what: str, why: str
) -> None:
    first, *rest = [rank[f"failed {what}"] for rank in report]
    assert first.startswith(why)
    assert all(other.startswith(STOPPED) for other in rest)
    assert [rank["after failures"] for rank in report] == [plain(FAMILIES[0])] * RANKS


def test_what_a_shard_cannot_do_is_refused_everywhere(report: list[dict[str, Any]]) -> None:
    for rank in report:
        assert "a sparse prefill looks at all heads" in rank["prefill"]
