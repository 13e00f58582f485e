"""Real FID and Inception score, by torchmetrics, where Inception's weights are at hand.

Nothing is fetched: `--fid-weights` names the file. The miniatures' pictures are nothing like
ImageNet's, so for them the judge's own Fréchet distance says more.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

from sooner.errors import SoonerError


def check_weights(weights: Path) -> None:
    """Refuse a missing file or library before minutes are spent.

    Raises:
        SoonerError: says which of the two is missing.
    """
    if not weights.is_file():
        raise SoonerError(f"--fid-weights '{weights}' is no file; give torch-fidelity's weights")
    try:
        import torch_fidelity  # noqa: F401
        import torchmetrics  # noqa: F401
    except ImportError as error:
        raise SoonerError(
            f"--fid-weights needs {error.name}, which is not installed; pip install torchmetrics "
            "torch-fidelity"
        ) from error


def inception(one: Tensor, two: Tensor, weights: Path) -> dict[str, float]:
    """FID of two sets and the Inception score of the first, every frame a picture.

    Args:
        one, two: `[n, frames, height, width, 3]` in 0..1.
        weights: torch-fidelity's Inception weights.
    """
    from torchmetrics.image.fid import FrechetInceptionDistance, NoTrainInceptionV3
    from torchmetrics.image.inception import InceptionScore

    options: dict[str, Any] = {"feature_extractor_weights_path": str(weights)}
    pictures = [each.flatten(0, 1).permute(0, 3, 1, 2) for each in (one, two)]
    fid = FrechetInceptionDistance(normalize=True, **options)
    fid.update(pictures[0], real=False)
    fid.update(pictures[1], real=True)
    network = NoTrainInceptionV3("inception-v3-compat", ["logits_unbiased"], **options)
    score = InceptionScore(feature=network, normalize=True)
    score.update(pictures[0])
    return {"fid": float(fid.compute()), "inception_score": float(score.compute()[0])}
