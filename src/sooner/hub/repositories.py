"""Which repositories there are, and which options of a method each takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .. import __version__
from ..errors import SoonerError, did_you_mean

Drafts = Literal["none", "model", "head", "texts"]
"""What a repository drafts with: nothing that is given, `assistant_model` (a model, a folder or a
repository), a trained head for the target (the same, or a folder of one), or `drafts`, texts."""


@dataclass(frozen=True)
class Repository:
    """A repository that is uploaded to the model hub.

    Attributes:
        name: of its folder.
        title: of its page.
        type_name: class of `sooner` that does the work.
        summary: what it does, in a sentence.
        drafts: what the user gives it to draft with.
        options: fields of the class, or of `sooner.draw`, that it takes.
        paper: title and authors, where it is of a paper.
        task: pipeline tag of its page.
        models: for whose `generate` it is.
    """

    name: str
    title: str
    type_name: str
    summary: str
    drafts: Drafts = "none"
    options: tuple[str, ...] = ()
    paper: str = ""
    task: str = "image-text-to-text"
    models: str = "vision-language and language models"


CHAIN = ("num_draft_tokens", "max_draft_tokens")
REPOSITORIES = (
    Repository(
        "speculative", "Speculative decoding that sees pixels", "Speculative",
        "A small model drafts a chain of tokens from the same text and pixels, and one forward of "
        "the target verifies them, for every row of a batch at its own pace.",
        "model", CHAIN,
    ),
    Repository(
        "parallelvlm", "ParallelVLM", "ParallelVLM",
        "A small model drafts while the target verifies, each on cores or a device of its own, and "
        "sees only the visual tokens that the target's own ranking keeps.",
        "model",
        (
            "prune", "min_visual", "layer", "criterion", *CHAIN, "schedule", "placement",
            "draft_device",
        ),
        paper="ParallelVLM: Lossless Video-LLM Acceleration with Visual Alignment Aware Parallel "
        "Speculative Decoding",
        task="video-text-to-text",
    ),
    Repository(
        "specvlm", "SpecVLM", "SpecVLM",
        "A static tree of a draft model whose visual tokens are pruned by the target's attention.",
        "model", ("branching", "siblings", "prune", "focus", "layers", "queries"),
        task="video-text-to-text",
    ),
    Repository(
        "sd-tree", "Trees of a draft model", "SDTree",
        "A small model drafts a tree of fixed shape, and one forward verifies it.",
        "model", ("branching", "siblings"),
    ),
    Repository(
        "onsd", "Speculative decoding with a draft of words alone", "OnSD",
        "A language model drafts for a vision-language model: it gets the words, not the pixels.",
        "model", CHAIN,
    ),
    Repository(
        "sparse-to-dense", "Sparse to dense", "SparseToDense",
        "The target drafts for itself on the part of its cache that its attention looks at.",
        "none", (*CHAIN, "prune", "queries"),
        task="video-text-to-text",
    ),
    Repository(
        "prompt-lookup", "Prompt lookup in batches", "PromptLookup",
        "What followed the last few tokens earlier in the text is proposed; no model is needed.",
        "none", (*CHAIN, "max_ngram", "min_ngram"),
    ),
    Repository(
        "eagle", "Trees of trained heads: EAGLE-3 and others", "Eagle",
        "A head that was trained on the target's states drafts a dynamic tree; published EAGLE-3 "
        "heads are read as they are.",
        "head", ("nodes", "depth", "top_k", "max_nodes"),
    ),
    Repository(
        "dflash", "DFlash: blocks of drafts in one forward", "DFlash",
        "A small block-diffusion model that was trained on the target's states drafts a whole "
        "block at once; published DFlash drafters are read as they are.",
        "head", ("num_draft_tokens",),
    ),
    Repository(
        "ddtree", "DDTree: trees of a block drafter's marginals", "DDTree",
        "The most probable continuations under a DFlash drafter's marginals are verified as one "
        "tree.",
        "head", ("nodes", "max_nodes"),
    ),
    Repository(
        "assistant", "Gemma 4's assistants, in batches", "Assistant",
        "A few layers that read the model's own keys and values draft a chain; Gemma 4's published "
        "assistants are read as they are.",
        "head", CHAIN, models="Gemma 4",
    ),
    Repository(
        "hsd", "Hierarchical speculative decoding of documents: verification", "HSD",
        "Texts that something quick and rough made beforehand, such as OCR, are aligned with what "
        "the target says and verified as a tree.",
        "texts",
        ("reference_window", "acceptance_threshold", "nodes", "max_nodes", "depth", "width"),
        paper="Training-Free Acceleration for Document Parsing Vision-Language Model with "
        "Hierarchical Speculative Decoding",
        models="document parsers and other vision-language models",
    ),
    Repository(
        "mminference", "MMInference", "MMInference",
        "Prefills long prompts with sparse attention that knows modalities; decoding stays as it "
        "was. The result is approximate.",
        "none", ("table", "dense_below", "mlp_chunk", "backend"),
        paper="MMInference: Accelerating Pre-filling for Long-Context VLMs via Modality-Aware "
        "Permutation Sparse Attention",
        task="video-text-to-text",
    ),
    Repository(
        "spec-vla", "Spec-VLA", "Relaxed",
        "Action tokens of a robot's policy, drafted by a trained head and accepted where they are "
        "within a few bins of the policy's own choice.",
        "head", ("bins", "nodes", "depth", "top_k"),
        paper="Spec-VLA: Speculative Decoding for Vision-Language-Action Models with Relaxed "
        "Acceptance",
        task="robotics",
        models="OpenVLA, loaded by `sooner.models.openvla`",
    ),
    Repository(
        "scd", "Speculative coupled decoding", "CoupledJacobi",
        "Pictures and clips of autoregressive models: a window of the last iteration is the draft, "
        "and its draws are coupled with the target's.",
        "none",
        ("jacobi_window", "coupling", "strength", "init", "count", "seed", "guidance"),
        paper="Your Autoregressive Visual Model Is a Natively Multi-Token Predictor: Speculative "
        "Coupled Decoding for Fast Autoregressive Visual Generation",
        task="text-to-image",
        models="Janus, Lumina-mGPT (Chameleon) and Emu3",
    ),
)  # fmt: skip


def repository(name: str) -> Repository:
    """Returns the repository of a name.

    Raises:
        SoonerError: there is none.
    """
    for repo in REPOSITORIES:
        if repo.name == name:
            return repo
    names = [repo.name for repo in REPOSITORIES]
    raise SoonerError(
        f"sooner {__version__} has no repository '{name}'{did_you_mean(name, names)}; a newer "
        "sooner may"
    )
