"""Planted faults: each way in which a step can wait, grow or write out of range is caught."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from sooner_lab.bench.step.guard import (
    IndexRanges,
    NoWaiting,
    OutOfRangeError,
    StepGrowsError,
    StepWaitsError,
    Waits,
    check_static,
)
from sooner_lab.bench.step.modes import fake_cuda
from sooner_lab.bench.step.waits import HOST_TENSOR, PIN, READ, UPLOAD

ROWS, CAPACITY, WIDTH = 4, 32, 8


class Toy:
    """A step over slots: forward, verify, commit, all on the device."""

    def __init__(self, device: str) -> None:
        self.keys = torch.zeros(ROWS, CAPACITY, WIDTH, device=device)
        self.lengths = torch.zeros(ROWS, dtype=torch.long, device=device)
        self.head = torch.ones(WIDTH, 16, device=device)

    def step(self, block: Tensor) -> Tensor:
        """Writes `block [rows, entries, width]` behind the lengths; `[rows, entries]` choices."""
        entries = block.shape[1]
        slots = self.lengths[:, None] + torch.arange(entries, device=block.device)
        self.keys.scatter_(1, slots[..., None].expand(-1, -1, WIDTH), block)
        seen = torch.arange(CAPACITY, device=block.device) < self.lengths[:, None] + entries
        weights = torch.where(seen, 0.0, -torch.inf).softmax(-1)  # [rows, slots]
        states = block + torch.einsum("rc,rcw->rw", weights, self.keys)[:, None]
        choices = (states @ self.head).argmax(-1)
        accepted = (choices[:, :-1] == 0).long().cumprod(1).sum(1)
        self.lengths += accepted + 1
        return choices


def host(*shape: int) -> Tensor:
    return torch.zeros(*shape, dtype=torch.long, device="cpu")


FAULTS: dict[str, tuple[Callable[[Tensor], Any], str, str]] = {
    "item": (lambda x: x[0, 0].item(), READ, "_local_scalar_dense"),
    "tolist": (lambda x: x.tolist(), READ, "_local_scalar_dense"),
    "branch on a value": (lambda x: 1 if (x > 0).any() else 2, READ, "_local_scalar_dense"),
    "cpu": (lambda x: x.cpu(), READ, "_to_copy"),
    "torch.tensor of a list": (
        lambda x: torch.tensor([1, 2], device="cuda"), HOST_TENSOR, "lift_fresh"),
    "torch.tensor of a number": (lambda x: x + torch.tensor(1.0), HOST_TENSOR, "lift_fresh"),
    "list index": (lambda x: x[[0, 1]], HOST_TENSOR, "lift_fresh"),
    "index on the host": (lambda x: x[host(2)], UPLOAD, "index"),
    "write by an index on the host": (
        lambda x: x.index_put_((host(2),), x[:2]), UPLOAD, "index_put_"),
    "boolean index": (lambda x: x[x > 0], READ, "index"),
    "nonzero": (lambda x: (x > 0).nonzero(), READ, "nonzero"),
    "masked_select": (lambda x: x.masked_select(x > 0), READ, "masked_select"),
    "copy from the host": (lambda x: x.copy_(torch.ones(4, 4, device="cpu")), UPLOAD, "copy_"),
    "copy to the host": (
        lambda x: torch.ones(4, 4, device="cpu").copy_(x, non_blocking=True), READ, "copy_"),
    "to": (lambda x: host(4).to(x.device), UPLOAD, "_to_copy"),
    "pinned memory": (lambda x: torch.ones(4, device="cpu").pin_memory(), PIN, "_pin_memory"),
    "multinomial": (lambda x: torch.multinomial(x, 1), READ, "multinomial"),
    "equal": (lambda x: torch.equal(x, x), READ, "equal"),
}  # fmt: skip


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_wait_is_caught_with_its_line(name: str, inference: bool) -> None:
    fault, kind, op = FAULTS[name]
    with fake_cuda(), torch.inference_mode(inference):
        x = torch.ones(4, 4)
        with pytest.raises(StepWaitsError) as caught, NoWaiting():
            fault(x)
    assert caught.value.wait.kind == kind
    assert caught.value.wait.op.split(".")[1] == op
    assert "test_step_guard.py:" in caught.value.wait.line
    assert "step_guard.py:" in str(caught.value), "one line says where"
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("entries", [1, 4])
def test_a_step_that_stays_on_the_device_passes(entries: int) -> None:
    with fake_cuda():
        toy = Toy("cuda")
        block = torch.ones(ROWS, entries, WIDTH)
        with NoWaiting():
            toy.step(block)
        check_static(lambda: toy.step(block))


def test_what_does_not_wait_is_let_through() -> None:
    with fake_cuda():
        x = torch.ones(4, 4)
        with NoWaiting():
            x[x > 0] = 1.0  # a masked fill
            x[0, 1] = 2.0
            x.index_select(0, torch.arange(2))
            x.repeat_interleave(torch.full((4,), 2), 0, output_size=8)
            x.to(torch.float16).cuda()


def test_a_shape_that_grows_is_caught() -> None:
    with fake_cuda():
        store, seen = torch.ones(4, 32), [3]

        def step() -> None:
            store[:, : seen[0]].sum()
            seen[0] += 1

        with pytest.raises(StepGrowsError, match=r"aten\.slice.*test_step_guard"):
            check_static(step)


def test_a_constant_that_moves_is_caught() -> None:
    """The shapes stay, but a graph would write to the first place for ever."""
    with fake_cuda():
        store, at = torch.ones(4, 32), [3]

        def step() -> None:
            store.narrow(1, at[0], 2).fill_(0)
            at[0] += 2

        with pytest.raises(StepGrowsError, match=r"aten\.(slice|narrow)"):
            check_static(step)


def test_a_step_that_gets_longer_is_caught() -> None:
    with fake_cuda():
        x, times = torch.ones(4), [1]

        def step() -> None:
            for _ in range(times[0]):
                x.add_(1)
            times[0] += 1

        with pytest.raises(StepGrowsError, match="length"):
            check_static(step)


RANGES: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "scatter_": lambda x, at: x.scatter_(1, at[:, None], torch.ones(4, 1)),
    "scatter_add": lambda x, at: x.scatter_add(1, at[:, None], torch.ones(4, 1)),
    "gather": lambda x, at: x.gather(1, at[:, None]),
    "index_select": lambda x, at: x.index_select(1, at),
    "index_copy_": lambda x, at: x.index_copy_(1, at, torch.ones(4, 4)),
    "index_put_": lambda x, at: x.index_put_((torch.arange(4), at), torch.ones(4)),
    "index": lambda x, at: x[:, at],
    "embedding": lambda x, at: torch.nn.functional.embedding(at, x.T.contiguous()),
}


@pytest.mark.parametrize("name", RANGES)
@pytest.mark.parametrize("wrong", [8, -9])
def test_an_index_out_of_range_is_caught(name: str, wrong: int) -> None:
    x = torch.zeros(4, 8)
    good, bad = torch.tensor([0, 7, 3, 1]), torch.tensor([0, 7, wrong, 1])
    with IndexRanges():
        RANGES[name](x, good)
        with pytest.raises(OutOfRangeError, match=rf"index {wrong} is not in .*test_step_guard"):
            RANGES[name](x, bad)


def test_a_store_that_is_full_is_caught() -> None:
    toy = Toy("cpu")
    block = torch.ones(ROWS, 4, WIDTH)
    toy.lengths += CAPACITY - 6
    with IndexRanges():
        toy.step(block)
        toy.lengths.fill_(CAPACITY - 3)
        with pytest.raises(OutOfRangeError, match=r"scatter_.*index 32 is not in 0 \.\. 31"):
            toy.step(block)


def reads_and_uploads(device: str) -> Tensor:
    """Two reads and two uploads."""
    x = torch.ones(4, 4, device=device)
    index = torch.tensor([1, 2], device=device)
    x[index] + torch.tensor([[1.0]], device=device)
    x.cpu()
    return (x > 2).nonzero() if device == "cpu" else x.to("cpu")


def test_waits_are_counted_and_let_through() -> None:
    with fake_cuda(), Waits() as waits:
        reads_and_uploads("cuda")
    assert (waits.reads.total(), waits.uploads.total()) == (2, 2)
    assert all("test_step_guard.py" in wait.line for _, wait in waits.lines)


def test_the_cpu_plays_the_device() -> None:
    with Waits(host_is_device=True) as waits:
        reads_and_uploads("cpu")
        waits.section = "between"
        assert torch.ones(2, 2).tolist() == [[1, 1], [1, 1]]
        assert torch.ones(1).item() == 1
    assert waits.reads == {"step": 2, "between": 2}
    assert waits.uploads == {"step": 2}
