"""What makes the tokens of a DFlash drafter's block depend on each other.

A head corrects the logits of each place by the tokens that were drafted before it, so that a block
is drafted in order and verified as a chain. What a token was drawn from is known then, and
rejection sampling stays exact. DFlash 2 also mixes the entries of a block by convolutions. Each
part is made by a `DFlashConfig`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from ...checks import check_choice
from ..draft_module import far_below, refuse
from ..published import size_of

SIZES = {
    "markov_rank": (), "gru_hidden_dim": ("emb_dim",), "selector_rank": ("selector_top_k",),
    "conv_kernel_size": ("conv_group_size",),
}  # fmt: skip
"""Sizes that tell a part, and others that it needs."""


def chain_options(raw: Mapping[str, Any], where: Any) -> dict[str, Any]:
    """Returns what a config.json says of such parts; empty: places are independent.

    Raises:
        SoonerError: a value that is missing or out of range.
        UnsupportedError: groups of channels that do not fit.
    """
    parts = [(name, *sizes) for name, sizes in SIZES.items() if raw.get(name)]
    options: dict[str, Any] = {name: size_of(raw, name, where) for part in parts for name in part}
    if "markov_rank" in options:
        options["kind"] = kind = raw.get("markov_head_type") or "vanilla"
        check_choice(f"markov_head_type in '{where}'", kind, ("vanilla", "gated", "rnn"))
    options |= {"prefix": int(raw.get("pure_draft_prefix_len") or 0)} if options else {}
    group = options.get("conv_group_size", 1)
    is_odd = size_of(raw, "hidden_size", where) % group
    refuse("DFlash", {f"conv_group_size {group}, which does not divide hidden_size": is_odd})
    return options


def published_chain(config: Any) -> tuple[str, dict[str, Any], str]:
    """Returns what the files of SGLang's and z-lab's drafters say of such parts: the architecture,
    options, and what the names of the head's tensors begin with."""
    chain = config.chain
    options = {name: value for name, value in chain.items() if name not in ("kind", "prefix")}
    if "markov_rank" in chain:
        options |= {"projector_type": "dspark", "markov_head_type": chain["kind"]}
        return "DSparkDraftModel", options, "markov_head."
    if "gru_hidden_dim" in chain:
        options |= {"projector_type": "domino", "shift_label": config.from_anchor}
        return "DominoDraftModel", {**options, "pure_draft_prefix_len": chain["prefix"]}, ""
    return "DFlash2DraftModel" if chain else "DFlashDraftModel", options, "candidate_selector."


class MarkovHead(nn.Module):
    """Adds a bias of low rank that the token before a place gives (DSpark, arXiv 2607.05147).

    The bias is `W2 m`, where `m` is the embedding `W1[token]` (*vanilla*), the same times a gate
    that also reads the drafter's state (*gated*), or the output of a recurrent unit over both
    (*rnn*).
    """

    def __init__(self, config: Any) -> None:
        super().__init__()
        rank, self.kind = config.chain["markov_rank"], config.chain["kind"]
        self.markov_w1 = nn.Embedding(config.vocab_size, rank)
        self.markov_w2 = nn.Linear(rank, config.draft_vocab_size or config.vocab_size, bias=False)
        nn.init.zeros_(self.markov_w2.weight)
        if self.kind == "gated":
            self.gate_proj = nn.Linear(config.hidden_size + rank, rank)
        if self.kind == "rnn":
            self.joint_proj = nn.Linear(2 * rank + config.hidden_size, 3 * rank)

    def forward(
        self, logits: Tensor, states: Tensor, token: Tensor, embeds: Tensor, memory: Any
    ) -> tuple[Tensor, Any]:
        """Returns logits of a place, by the draft's ids, and what the next place needs.

        Args:
            logits: of the place, `[rows, 1, draft vocab]`.
            states: that they were made of, `[rows, 1, hidden]`.
            token: before the place, `[rows, 1]`, and `embeds`: its embedding, `[rows, 1, hidden]`.
            memory: what the place before gave; `None` at first.
        """
        before = self.markov_w1(token)
        if self.kind == "gated":
            before = before * self.gate_proj(torch.cat([states, before], -1)).sigmoid()
        elif self.kind == "rnn":
            memory = torch.zeros_like(before) if memory is None else memory
            both = self.joint_proj(torch.cat([memory, before, states], -1))
            gate, candidate, output = both.chunk(3, -1)
            gate, before = gate.sigmoid(), output.tanh()
            memory = gate * memory + (1 - gate) * candidate.tanh()
        return logits + self.markov_w2(before), memory


class DominoHead(nn.Module):
    """Adds what a GRU over the tokens before a place and the drafter's state say of it (Domino,
    arXiv 2605.29707); the first `pure_draft_prefix_len` tokens are not corrected."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        hidden, width = config.hidden_size, config.chain["gru_hidden_dim"]
        inner, self.prefix = config.chain["emb_dim"], config.chain["prefix"]
        self.prefix_gru = nn.GRU(hidden, width, bias=False, batch_first=True)
        layers = (hidden + width, inner), (inner, config.vocab_size)
        first, last = (nn.Linear(*sizes, bias=False) for sizes in layers)
        nn.init.zeros_(last.weight)
        self.embed_proj = nn.Sequential(first, nn.SiLU(), last)

    def forward(
        self, logits: Tensor, states: Tensor, token: Tensor, embeds: Tensor, memory: Any
    ) -> tuple[Tensor, Any]:
        """Returns what `MarkovHead.forward` does."""
        place, summary = memory or (0, None)
        read, summary = self.prefix_gru(embeds.to(states.dtype), summary)
        if place >= self.prefix:
            logits = logits + self.embed_proj(torch.cat([states, read], -1))
        return logits, (place + 1, summary)


class CandidateSelector(nn.Module):
    """Rescores the best tokens of a place by the token before it; no others are drafted (DFlash 2).

    A candidate `b` behind `a` gets `logit(b) + <A[a] * H(state), B[b]>`. In training the others
    keep their logits, so that a target among them has a loss.
    """

    def __init__(self, config: Any) -> None:
        super().__init__()
        rank, self.count = config.chain["selector_rank"], config.chain["selector_top_k"]
        self.predecessor_codebook = nn.Parameter(torch.randn(config.vocab_size, rank))
        self.successor_codebook = nn.Parameter(torch.zeros(config.vocab_size, rank))
        self.hidden_projection = nn.Linear(config.hidden_size, rank, bias=False)

    def forward(
        self, logits: Tensor, states: Tensor, token: Tensor, embeds: Tensor, memory: Any
    ) -> tuple[Tensor, Any]:
        """Returns what `MarkovHead.forward` does."""
        values, ids = logits.topk(min(self.count, logits.shape[-1]))  # [rows, 1, candidates]
        query = self.predecessor_codebook[token] * self.hidden_projection(states)
        values = values + (self.successor_codebook[ids] @ query[..., None])[..., 0]
        others = logits.to(values.dtype) if self.training else far_below(values, logits.shape[-1])
        return others.scatter(-1, ids, values), None


def chain_head(config: Any) -> nn.Module | None:
    """Returns the head that a config tells; `None`: places are independent."""
    heads = zip(SIZES, (MarkovHead, DominoHead, CandidateSelector), strict=False)
    return next((kind(config) for name, kind in heads if name in config.chain), None)


class BlockConv(nn.Module):
    """Adds entries of a block to those of the block that follow them, before a sublayer and after.

    The kernels are learned ones of each channel plus what a projection of the sublayer's input
    gives each group of channels (DFlash 2).
    """

    def __init__(self, config: Any) -> None:
        super().__init__()
        hidden, self.taps = config.hidden_size, config.chain["conv_kernel_size"]
        self.size = config.block_size
        self.groups = hidden // config.chain["conv_group_size"]
        first = torch.eye(self.taps)[0]  # a block enters and leaves as it is
        self.base_kernel = nn.Parameter(first[:, None].repeat(2, 1, hidden))
        self.kernel_projection = nn.Linear(hidden, 2 * self.taps * self.groups, bias=False)
        nn.init.zeros_(self.kernel_projection.weight)

    def forward(self, entries: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """Returns the sublayer's input for entries of blocks, `[rows, entries, hidden]`, and what
        makes its output of what it gives."""
        kernels = self.kernel_projection(entries).unflatten(-1, (2, self.taps, self.groups, 1))
        kernels = kernels + self.base_kernel.unflatten(-1, (self.groups, -1))

        def mixed(inputs: Tensor, side: int = 1) -> Tensor:
            blocks = inputs.unflatten(-1, (self.groups, -1)).unflatten(1, (-1, self.size))
            padded = (pad(blocks, (0, 0, 0, 0, tap, 0)) for tap in range(self.taps))
            shifted = (part[:, :, : self.size].flatten(1, 2) for part in padded)
            parts = [kernels[:, :, side, tap] * part for tap, part in enumerate(shifted)]
            return torch.stack(parts).sum(0).flatten(-2)

        return mixed(entries, 0), mixed


def around(layer: Any, name: str, entries: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Returns what `BlockConv` does with the convolution `name` of a layer; without one, nothing is
    changed."""
    conv: BlockConv | None = getattr(layer, name, None)
    return (entries, lambda output: output) if conv is None else conv(entries)
