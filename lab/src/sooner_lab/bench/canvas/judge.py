"""The judge of quality: are two sets of pictures of one law?

Two tests, and twice the smaller p-value (Bonferroni). The target's own log-likelihood of a drawing
is compared by means; it sees what is too likely or not likely enough. A classifier, which knows
nothing of the law, learns on one half to tell the sets apart and is held to chance on the other
(Lopez-Paz & Oquab 2017, classifier two-sample test).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from torch import Tensor


class PictureLaw(Protocol):
    """What draws pictures and tells how likely one is: see `CanvasLaw` and `TrainedLaw`."""

    @property
    def height(self) -> int: ...

    @property
    def width(self) -> int: ...

    @property
    def codes(self) -> int: ...

    @property
    def length(self) -> int: ...

    def log_likelihood(self, drawings: Tensor) -> Tensor: ...

    def sample(self, count: int, seed: int) -> Tensor: ...


LAGS = ((0, 1), (1, 0), (1, 1), (0, 2), (2, 0))
"""Rows and columns between two codes whose difference the classifier sees."""
RIDGE = 0.05
"""Share of the mean variance that is added to every direction's."""


def judge(
    one: Tensor, two: Tensor, law: PictureLaw, likelihoods: Sequence[Tensor] | None = None
) -> dict[str, float]:
    """Compare two sets of pictures `[n, length]`, as many in each.

    Args:
        likelihoods: log-likelihoods of both, `[n]`, where they are known.

    Returns:
        `likelihood` and `classifier`, the tests' p-values; `p`, of both; `gap`, by how many nats a
        code the first set is likelier; `accuracy` of the classifier.
    """
    if likelihoods is None:
        likelihoods = [law.log_likelihood(each) for each in (one, two)]
    a, b = (each.numpy() for each in likelihoods)
    likelihood = mean_test(a, b)
    accuracy, classifier = classifier_test(features(one, law), features(two, law))
    return {
        "likelihood": likelihood,
        "classifier": classifier,
        "p": min(1.0, 2 * min(likelihood, classifier)),
        "gap": float(a.mean() - b.mean()) / law.length,
        "accuracy": accuracy,
    }


def mean_test(a: np.ndarray, b: np.ndarray) -> float:
    """P-value that two sets of numbers have one mean: Welch's, with the normal distribution."""
    spread = math.sqrt(a.var(ddof=1) / len(a) + b.var(ddof=1) / len(b))
    return math.erfc(abs(float(a.mean() - b.mean())) / max(spread, 1e-12) / math.sqrt(2))


def features(drawings: Tensor, law: PictureLaw) -> np.ndarray:
    """What the classifier sees of each picture, `[n, features]`."""
    codes = drawings.numpy().reshape(-1, law.height, law.width).astype(np.float64)
    told = [codes.mean((1, 2)), codes.std((1, 2)), (codes % 2).mean((1, 2))]
    for down, right in LAGS:
        apart = codes[:, down:, right:] - codes[:, : law.height - down, : law.width - right]
        told += [apart.mean((1, 2)), np.abs(apart).mean((1, 2)), (apart**2).mean((1, 2)),
                 (apart == 0).mean((1, 2)), (np.abs(apart) <= 2).mean((1, 2))]  # fmt: skip
    return np.stack(told, -1)


def classifier_test(one: np.ndarray, two: np.ndarray) -> tuple[float, float]:
    """Accuracy of a linear discriminant on the halves that it did not learn from, and how likely
    guessing is to reach it.

    Args:
        one, two: features of as many drawings, `[n, features]`; the first half of each is learnt.
    """
    half = len(one) // 2
    learnt = np.concatenate([one[:half], two[:half]])
    centre, scale = learnt.mean(0), learnt.std(0) + 1e-9
    a, b = ((each - centre) / scale for each in (one, two))
    within = np.concatenate([each[:half] - each[:half].mean(0) for each in (a, b)])
    spread = within.T @ within / len(within)
    spread += RIDGE * np.trace(spread) / len(spread) * np.eye(len(spread))
    line = np.linalg.solve(spread, a[:half].mean(0) - b[:half].mean(0))
    edge = line @ (a[:half].mean(0) + b[:half].mean(0)) / 2
    right = int((a[half:] @ line > edge).sum() + (b[half:] @ line <= edge).sum())
    count = len(a) - half + len(b) - half
    return right / count, _guessed(right, count)


def _guessed(right: int, count: int) -> float:
    """Chance that of `count` guesses so many or more are right."""
    return sum(math.comb(count, one) for one in range(right, count + 1)) / 2**count
