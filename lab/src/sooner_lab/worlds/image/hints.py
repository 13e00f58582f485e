"""Auxiliary losses of the text-to-image decoder, whose heads are not saved.

Of a picture's 256 codes only the few where a shape begins depend on its caption's words, and most
of the rest of the loss is texture: without help 1,200 steps taught the ground's colour alone. Two
auxiliary losses give shapes more weight, and neither changes the optimum of the prediction:

- A linear head names the picture's attributes, told from the left or top, in the states
  above the decoder's middle, at every position and on many captions without a picture.
- The loss counts the colour family of a code again: the log-sum-exp of the logits of each
  family, scored as a prediction of its own. Both losses are least at the true distribution.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from transformers.models.janus.modeling_janus import JanusVQVAE

from . import architecture, classifier, codes, world

PICTURES = 200  # looked at to tell the codes' colours


class AttributeHeads(nn.Module):
    """Linear heads for the classifier's six attributes."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, sum(classifier.HEADS))

    def forward(self, states: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Mean cross-entropy of `states` `[rows, positions, width]` for `labels` `[rows, heads]`.

        Rows labelled `classifier.ABSENT` are skipped.
        """
        losses = []
        for head, logits in enumerate(self.linear(states.float()).split(classifier.HEADS, -1)):
            targets = labels[:, head, None].expand(logits.shape[:2])
            if (targets >= 0).any():
                losses.append(functional.cross_entropy(logits.flatten(0, 1), targets.flatten()))
        return torch.stack(losses).mean() if losses else states.sum() * 0


def label(pictures: Sequence[world.Picture], blank: Sequence[bool]) -> torch.Tensor:
    """Labels of rows `[rows, heads]`; none for those whose caption is blank."""
    absent = [classifier.ABSENT] * len(classifier.HEADS)
    rows = [
        absent if drop else classifier.labels(picture.attributes)
        for picture, drop in zip(pictures, blank, strict=True)
    ]
    return torch.tensor(rows)


def families(model: JanusVQVAE, seed: int) -> torch.Tensor:
    """The colour family of each code, `[entries]`: a shape's, a ground's, or the outline's.

    It is the nearest to the mean colour of the patches that became the code in some pictures.
    """
    palette = np.array(list(world.COLOURS.values()), dtype=float)
    palette = np.concatenate([palette, palette * world.DIM, np.zeros((1, 3))])
    drawn = [world.drawn(index, seed)[1] for index in range(PICTURES)]
    pixels = codes.to_pixels(drawn)
    picked = codes.encode(model, pixels).flatten()  # [pictures * tokens]
    patches = functional.avg_pool2d((pixels + 1) * 127.5, architecture.PATCH)
    patches = patches.permute(0, 2, 3, 1).flatten(0, 2)  # [pictures * tokens, 3]
    entries = model.config.num_embeddings
    sums = torch.zeros(entries, 3).index_add_(0, picked, patches)
    means = sums / torch.bincount(picked, minlength=entries).clamp_min(1)[:, None]
    return torch.cdist(means, torch.tensor(palette, dtype=torch.float32)).argmin(1)


def family_loss(logs: torch.Tensor, picked: torch.Tensor, family: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of colour families.

    Args:
        logs: log-probabilities of codes, `[n, entries]`.
        picked: the true codes, `[n]`.
        family: of each code, `[entries]`.
    """
    count = int(family.max()) + 1
    shares = torch.zeros(len(logs), count).index_add(1, family, logs.exp())
    return functional.nll_loss(shares.clamp_min(1e-9).log(), family[picked])
