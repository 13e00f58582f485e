"""The kernel compiled for GPUs that are not here: registers, spills, shared memory, loads ahead."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ahead_of_time import SHARED, Compiled, compiling, needs_compiler
from sooner.engine.attention import kernel
from sooner.engine.attention.block import PAGE, WORDS, Block

pytestmark = [pytest.mark.slow, needs_compiler]
KV_HEADS, GROUP = 4, 7


@pytest.fixture(autouse=True)
def large_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "_processors", lambda device: 132)


def launched(
    dim: int,
    entries: int,
    arch: int = 90,
    everything: bool = False,
    paged: bool = False,
    rows: int = 1,
    written: int = 0,
    capacity: int = 16384,
) -> list[Compiled]:
    """The split kernel and the merge of one call, compiled.

    Args:
        everything: trees, depths, windows, chunks, a soft cap and sinks as well.
    """
    query = torch.empty(rows, GROUP * KV_HEADS, entries, dim, dtype=torch.bfloat16)
    shape = (70, KV_HEADS, PAGE, dim) if paged else (rows, KV_HEADS, capacity, dim)
    keys = torch.empty(shape, dtype=torch.bfloat16)
    table = torch.zeros(rows, capacity // PAGE, dtype=torch.int32) if paged else None
    numbers = torch.zeros(rows, dtype=torch.long)
    block = Block(numbers, page_table=table, written=written)
    options: dict[str, Any] = {}
    if everything:
        block = Block(
            numbers, numbers, torch.zeros(rows, entries, WORDS, dtype=torch.int32),
            torch.zeros(rows, written + entries, dtype=torch.long), table, written,
        )  # fmt: skip
        sinks = torch.zeros(GROUP * KV_HEADS)
        options = {"window": 100, "chunk": 200, "softcap": 50.0, "sinks": sinks}
    with compiling(arch) as launches:
        kernel.attend(query, keys, keys, block, dim**-0.5, **options)
    return launches


TILES = [
    *((128, entries, everything) for entries in (1, 4, 17) for everything in (False, True)),
    (64, 17, True), (96, 17, True), (256, 2, True), (256, 17, True),
]  # fmt: skip


@pytest.mark.slow  # compiles 40 kernels
@pytest.mark.parametrize("paged", [False, True])
@pytest.mark.parametrize("arch", [80, 90])
@pytest.mark.parametrize(("dim", "entries", "everything"), TILES)
def test_tiles_spill_nothing_and_two_fit_a_multiprocessor(
    dim: int, entries: int, everything: bool, arch: int, paged: bool
) -> None:
    split, merge = launched(dim, entries, arch, everything, paged)
    assert split.spilled == merge.spilled == 0, split
    assert split.shared <= SHARED[arch] - 1024, split
    if dim <= 128:
        assert split.registers * split.warps * 32 <= 32768, split
        assert split.shared + 1024 <= SHARED[arch] / 2, split


def test_a_single_kernel_serves_all_numbers_of_rows_entries_and_slots() -> None:
    calls = [
        {"rows": 1, "written": 0}, {"rows": 2, "written": 1}, {"rows": 16, "written": 16},
        {"entries": 16, "capacity": 4096}, {"entries": 17, "capacity": 4097},
    ]  # fmt: skip
    made = [launched(64, call.pop("entries", 18), **call) for call in calls]
    assert len({split.ptx for split, _ in made}) == 1
