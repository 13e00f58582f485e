"""From surveys to patterns: the best of every boundary type, then the type (algorithm 4)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..patterns import Dense, HeadPattern, Pattern, QBoundary, TwoDBoundary
from ..settings import SearchSettings
from .score import WHOLE, Survey

WORTHS = 10.0 ** torch.linspace(-7, 2, 73, dtype=torch.double)
"""What a unit of cost is worth in units of squared relative error, from little to all."""

NEAR, CLOSE = 0.1, 0.01
"""Errors that differ by less than this share, or this much, count as equal: the cheaper wins."""

GAIN, MIN_GAIN = 0.25, 0.05
"""A boundary has to lower the error by this share and then by this much, or halve the cost. Its
regions take budgets and candidates of their own, so that it is a little better almost anywhere."""


def shortlist(
    survey: Survey,
    candidates: Sequence[Pattern],
    prices: Tensor,
    budget: float,
    settings: SearchSettings,
) -> list[list[HeadPattern]]:
    """Returns every head's best pattern without a boundary, with one along queries, and with two.

    Inside a boundary, a budget is shared: a few words may well look at everything if the many
    frames look at little. What minimises the error is, for some weight of cost, the pattern of the
    lowest error plus weighed cost in each region; the weight goes up until the budget is kept.

    Args:
        prices: time of each candidate's pairs relative to dense attention's, `[candidates]`.
        budget: share of dense attention's time.

    Returns:
        Types, each a pattern for every head. Prompts of one modality have the first type only.
    """
    names = list(survey.regions)
    groups = {
        QBoundary: [name for name in names if name != WHOLE and ":" not in name],
        TwoDBoundary: [name for name in names if ":" in name],
    }
    error = {name: survey.error(name) for name in survey.regions}
    cost = {name: sums[2] / survey.pairs * prices[:, None] for name, sums in survey.regions.items()}
    plain = alone(error[WHOLE], cost[WHOLE], budget).tolist()
    types: list[list[HeadPattern]] = [[candidates[number] for number in plain]]
    for kind, regions in groups.items():
        if not regions or not settings.boundaries:
            continue
        chosen = together([error[n] for n in regions], [cost[n] for n in regions], budget)
        types.append(
            [
                kind({name: candidates[number] for name, number in zip(regions, row, strict=True)})
                for row in chosen.T.tolist()
            ]
        )
    return types


def alone(error: Tensor, cost: Tensor, budget: float) -> Tensor:
    """Returns the best candidate of each head within the budget, `[heads]`; else the cheapest.

    Args:
        error: squared and relative, `[candidates, heads]`.
        cost: `[candidates, heads]`.
    """
    fits = cost <= budget + 1e-9
    best = error.sqrt().masked_fill(~fits, torch.inf).amin(0)
    equal = fits & (error.sqrt() <= best * (1 + NEAR) + CLOSE)
    picked = cost.masked_fill(~equal, torch.inf).argmin(0)
    return torch.where(fits.any(0), picked, cost.argmin(0))


def together(error: list[Tensor], cost: list[Tensor], budget: float) -> Tensor:
    """Returns one candidate for each region of each head, `[regions, heads]`, under one budget.

    Args:
        error: of each region, `[candidates, heads]`; they add up.
        cost: likewise.
    """
    picks = torch.stack(
        [
            torch.stack([(e + worth * c).argmin(0) for e, c in zip(error, cost, strict=True)])
            for worth in WORTHS
        ]
    )  # [worths, regions, heads]
    errors, costs = (
        torch.stack([v.gather(0, picks[:, r]) for r, v in enumerate(values)]).sum(0)
        for values in (error, cost)
    )  # [worths, heads]
    worth = alone(errors, costs, budget)  # [heads]
    heads = torch.arange(len(worth))
    return picks[worth, :, heads].T


def decide(
    types: Sequence[Sequence[HeadPattern]], trials: Sequence[Survey], settings: SearchSettings
) -> tuple[list[HeadPattern], Tensor]:
    """Returns the simplest type that no other clearly beats; dense where none is good enough.

    Returns:
        A pattern for every head, and `[3, heads]`: its relative error, recall and cost.
    """
    figures = torch.stack([trial.figures for trial in trials])
    heads = torch.arange(figures.shape[2])
    chosen = torch.zeros_like(heads)
    for number in range(1, len(trials)):
        error, _, cost = figures[number]
        best_error, _, best_cost = figures[chosen, :, heads].T
        better = error < (1 - GAIN) * best_error - MIN_GAIN
        cheaper = (error <= best_error + CLOSE) & (cost < best_cost / 2)
        chosen = torch.where(better | cheaper, number, chosen)
    table = figures[chosen, :, heads].T.clone()  # [3, heads]
    poor = (table[0] > settings.max_error) | (table[1] < settings.min_recall)
    table[:, poor] = torch.tensor([0.0, 1.0, 1.0], dtype=table.dtype)[:, None]
    picked = [types[number][head] for head, number in enumerate(chosen.tolist())]
    return [
        Dense() if bad else pattern for pattern, bad in zip(picked, poor.tolist(), strict=True)
    ], table
