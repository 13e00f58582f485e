"""The adapter of causal models without one of their own, checked against `generate`."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationMixin, LogitsProcessor, LogitsProcessorList, PreTrainedModel

from ..decoding.interface import Prompt
from ..decoding.runner import ModelRunner
from ..decoding.tree import Tree
from ..errors import UnsupportedError
from .base import Adapter
from .packing import Packing
from .video import TextModel

DECODER = ("inputs_embeds", "position_ids", "attention_mask", "past_key_values")

"""What a decoder has to take for a block of drafts."""

HANDED = {
    "pixel_values", "pixel_values_videos", "image_sizes", "image_grid_thw", "video_grid_thw",
    "second_per_grid_ts", "batch_num_images", "pixel_attention_mask", "pixel_values_local",
    "num_local_patches",
}  # fmt: skip

"""Pixel arguments that `generate` hands to a method; it would encode the others first."""

SWITCHES = {"vision_feature_layer", "vision_feature_select_strategy", "interpolate_pos_encoding"}

"""Arguments beside the pixels that processors don't make, and that have their config's default."""

SCALED = ("dynamic", "longrope")

"""RoPE whose frequencies depend on how long a forward's sequence is: a block is not its steps."""


def unsuitable(model: Any) -> str | None:
    """Why a model can't be decoded by the generic adapter, as a predicate; `None` if it may be."""
    config, text = model.config, model.config.get_text_config(decoder=True)
    if getattr(config, "is_encoder_decoder", False):
        return "is an encoder and a decoder, not a causal model"
    if getattr(model, "_is_stateful", False):
        return "keeps a state that can't be rolled back"
    return _layers(text) or _rope(model, text) or _signatures(model)


def _layers(text: Any) -> str | None:
    kinds = set(getattr(text, "layer_types", None) or ()) - {"full_attention"}
    if kinds:
        return f"has {'/'.join(sorted(kinds))} layers, whose state can't be rolled back"
    window = getattr(text, "sliding_window", None) if _slides(text) else None
    if window and window < (getattr(text, "max_position_embeddings", None) or window + 1):
        return f"has a sliding window of {window} tokens, which trees of drafts don't keep to"
    return None


def _slides(text: Any) -> bool:
    return bool(getattr(text, "use_sliding_window", True))


def _rope(model: Any, text: Any) -> str | None:
    rope = getattr(text, "rope_parameters", None) or getattr(text, "rope_scaling", None) or {}
    bodies = (model, getattr(model, "model", None))
    if "mrope_section" in rope or any(hasattr(body, "get_rope_index") for body in bodies):
        return "has positions of several axes (M-RoPE), which need an adapter of their own"
    kind = rope.get("rope_type", rope.get("type")) if isinstance(rope, dict) else None
    if kind in SCALED:
        return f"has '{kind}' RoPE, whose frequencies depend on the length of each forward"
    return None


def _signatures(model: Any) -> str | None:
    decoder = model.get_decoder()
    lacking = [name for name in DECODER if not _takes(decoder, name)]
    if lacking:
        return f"has a decoder that takes no {' and no '.join(lacking)}"
    if model.get_output_embeddings() is None:
        return "has no language-model head"
    encoded = _encoded(model)
    if encoded:
        return f"takes {', '.join(encoded)}, which generate() keeps from a method"
    return None


def _takes(module: Any, name: str) -> bool:
    parameters = inspect.signature(module.forward).parameters
    wild = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values())
    return wild or name in parameters


def _encoded(model: Any) -> list[str]:
    """Arguments that `generate` would use up before the method sees them."""
    if "mm_encoder_outputs" not in inspect.signature(model.forward).parameters:
        return []
    makers = [
        getattr(model.base_model, f"get_{kind}_features", None) for kind in ("image", "video")
    ]
    names = {
        parameter.name
        for maker in makers
        if maker is not None
        for parameter in inspect.signature(maker).parameters.values()
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD
    }
    return sorted(names - HANDED - SWITCHES)


PARENTS = [-1, -1, 0, 0, 1, 3]

"""Two siblings at the root and two below the first; the longest path has three nodes."""

KEPT = [0, 3, 5]

"""The path that is committed before the second tree."""

Rounds = tuple[tuple[int, tuple[list[int], ...]], ...]

"""For each tree in turn: a stride through the vocabulary, and the paths that are compared."""

ROUNDS: Rounds = ((104729, ([0, 2], KEPT, [1, 4])), (1299709, ([0, 2],)))

BRIEF: Rounds = ((104729, (KEPT,)),)

LENGTHS = (7, 4)

"""Tokens of the two prompts of a check without inputs: rows are ragged."""

NEAR, NEAR_HALF = 1e-3, 5e-2

"""Root mean square of what logits may differ by, in units of their own spread."""


def self_check(
    adapter: Adapter, inputs: Mapping[str, Any] | None = None, *, brief: bool = False
) -> None:
    """Compare a prefill and two blocks of drafts with the model's own `generate`, step by step.

    Three tokens that `generate` is made to say, on each of three paths of a tree, have to get the
    logits that one forward over the whole tree gives them: positions, masks and cache are then
    the model's own.

    Args:
        adapter: of the model to check, in eval mode.
        inputs: processed prompts, which may show pictures; two ragged prompts of words by default.
        brief: one block and one path, for prompts that take long.

    Raises:
        UnsupportedError: they differ, or one of them fails; says by how much, or how.
    """
    model = adapter.model
    if model.training:
        raise UnsupportedError(f"{type(model).__name__} is in training mode; call .eval() first")
    given = words(adapter) if inputs is None else dict(inputs)
    try:
        with torch.inference_mode():
            worst = _difference(adapter, given, BRIEF if brief else ROUNDS)
    except (UnsupportedError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        told = " ".join(str(error).split())[:120]
        raise UnsupportedError(
            f"{type(model).__name__} fails its self-check ({type(error).__name__}: {told}); decode "
            "it with its own generate()"
        ) from error
    near = NEAR if adapter.dtype in (torch.float32, torch.float64) else NEAR_HALF
    if not worst <= near:
        raise UnsupportedError(
            f"{type(model).__name__} answers a tree of drafts otherwise than its own generate(): "
            f"logits are {worst:.2g} of their spread apart, {near:g} is allowed; decode it with "
            "its own generate()"
        )


def words(adapter: Adapter) -> dict[str, Tensor]:
    """Two prompts of `LENGTHS` tokens from all over the vocabulary, padded on the left."""
    width = max(LENGTHS)
    ids = torch.tensor(_tokens(adapter, len(LENGTHS) * width, 7919)).view(len(LENGTHS), width)
    mask = torch.arange(width)[None] >= width - torch.tensor(LENGTHS)[:, None]
    return {
        "input_ids": ids.to(adapter.device),
        "attention_mask": mask.long().to(adapter.device),
    }


def _tokens(adapter: Adapter, count: int, stride: int) -> list[int]:
    """Ids all over the vocabulary, none of a placeholder for pixels."""
    ids = ((number * stride) % adapter.vocab_size for number in range(1, 10 * count))
    return [token for token in ids if token not in adapter.visual_ids][:count]


def _difference(adapter: Adapter, inputs: dict[str, Any], rounds: Rounds) -> float:
    """The largest difference at any place, in units of the logits' spread there."""
    rows, prompt = inputs["input_ids"].shape[0], adapter.embed_prompt(inputs)
    runner = ModelRunner(adapter, prompt.width + 2 * (1 + len(PARENTS)))
    behind, said, worst = [runner.prefill(prompt).logits], list[int](), 0.0
    for stride, paths in rounds:
        root, *nodes = _tokens(adapter, 1 + len(PARENTS), stride)
        tree = Tree.from_lists([nodes] * rows, [PARENTS] * rows, str(adapter.device))
        roots = torch.tensor([root] * rows, device=adapter.device)
        logits = runner.forward_tree(roots, tree).logits  # [rows, 1 + nodes, vocab]
        for path in paths:
            own = _own(adapter, inputs, [*said, root, *(nodes[node] for node in path)])
            ours = torch.cat([*behind, logits[:, _entries(path)]], 1)
            worst = max(worst, _apart(ours, own))
        runner.commit([_entries(KEPT)] * rows)
        behind.append(logits[:, _entries(KEPT)])
        said += [root, *(nodes[node] for node in KEPT)]
    return worst


def _entries(path: list[int]) -> list[int]:
    """Entries of a block: the root, then a path's nodes."""
    return [0, *(node + 1 for node in path)]


def _apart(ours: Tensor, own: Tensor) -> float:
    """Root mean square of the difference by the spread, at the worst of the places."""
    ours, own = ours.float(), own.float().to(ours.device)
    gaps = (ours - own).pow(2).mean(-1).sqrt() / own.std(-1).clamp(min=1e-12)
    return float(gaps.max()) if bool(gaps.isfinite().all()) else float("inf")


class _Say(LogitsProcessor):
    """Makes `generate` say given tokens, whatever it would rather say."""

    def __init__(self, tokens: list[int], width: int) -> None:
        self.tokens, self.width = tokens, width

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        step = input_ids.shape[1] - self.width
        said = self.tokens[step] if step < len(self.tokens) else 0
        forced = torch.full_like(scores, -torch.inf)
        forced[:, said] = 0
        return forced


def _own(adapter: Adapter, inputs: dict[str, Any], tokens: list[int]) -> Tensor:
    """Logits of `generate` behind the prompt and each said token, `[rows, 1 + tokens, vocab]`."""
    output = adapter.model.generate(
        **inputs,
        logits_processor=LogitsProcessorList([_Say(tokens, inputs["input_ids"].shape[1])]),
        max_new_tokens=len(tokens) + 1,
        eos_token_id=None,
        pad_token_id=0,
        do_sample=False,
        num_beams=1,
        output_logits=True,
        return_dict_in_generate=True,
    )
    return torch.stack(output.logits, 1)


logger = logging.getLogger("sooner")

CARRIED = {
    "inputs_embeds", "input_ids", "attention_mask", "position_ids", "past_key_values", "use_cache",
    "cache_position", "return_dict", "output_attentions", "output_hidden_states", "labels",
    "logits_to_keep",
}  # fmt: skip

"""Arguments of a decoder that say nothing of a prompt but its embeddings."""


class Generic(Adapter):
    """A model that no family here describes.

    What it must be: a `generate` of transformers' own, a decoder that takes `inputs_embeds`,
    `position_ids`, an additive 4-D `attention_mask` and a `Cache`, logits that are its head on the
    decoder's states. `unsuitable` says no by the config and the signatures. What these can't tell,
    `self_check` finds out: once on words, and once more on the first prompt that shows pictures. A
    model remembers that it passed, under the attention that it ran.

    Raises:
        UnsupportedError: the model is none of these; says what it has instead.
    """

    def __init__(self, model: Any) -> None:
        if (reason := unsuitable(model)) is not None:
            raise UnsupportedError(f"{type(model).__name__} {reason}")
        super().__init__(model)

    @property
    def body(self) -> Any:
        return self.model

    @property
    def visual_ids(self) -> tuple[int, ...]:
        names = ("image_token_index", "video_token_index")
        ids = [getattr(self.config, name, None) for name in names]
        return (*super().visual_ids, *(token for token in ids if isinstance(token, int)))

    def prove(self, inputs: Mapping[str, Any] | None = None) -> None:
        """Compare with the model's own `generate`, unless that was done before.

        Args:
            inputs: prompts that show pictures; words by default.

        Raises:
            UnsupportedError: they differ.
        """
        what = "words" if inputs is None else "pictures"
        mark, attention = f"_sooner_{what}", self.text_config._attn_implementation
        if getattr(self.model, mark, None) == attention:
            return
        setattr(self.model, mark, attention)  # the check itself embeds these prompts
        try:
            self_check(self, inputs, brief=inputs is not None)
        except BaseException:
            delattr(self.model, mark)
            raise
        logger.warning(
            "model type '%s' has no adapter of its own; the generic one decodes it, and behind %s "
            "answered a tree of drafts as its generate() does",
            getattr(self.config, "model_type", type(self.model).__name__),
            what,
        )

    def embed_prompt(self, inputs: Mapping[str, Any]) -> Prompt:
        """As for every family; what the model brings to its decoder is looked at first.

        Raises:
            UnsupportedError: it brings more than embeddings in one line, seen backwards.
        """
        inputs = {name: value for name, value in inputs.items() if value is not None}
        if inputs.keys() - {"input_ids", "attention_mask"}:
            self.prove(inputs)
        return super().embed_prompt(inputs)

    def prompt_arguments(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        places = (inputs["attention_mask"].cumsum(-1) - 1).clamp(min=0)  # as `generate` does
        given = {**inputs, "position_ids": places} if "position_ids" not in inputs else inputs
        arguments = super().prompt_arguments(given)
        if (brought := self._unheard_of(arguments, given)) is not None:
            raise UnsupportedError(
                f"{type(self.model).__name__} hands its decoder {brought}, which the generic "
                "adapter can't carry on; write an adapter (docs/add-a-model.md)"
            )
        if arguments.get("inputs_embeds") is None:
            arguments["inputs_embeds"] = self.embedding(arguments["input_ids"])
        return arguments

    def _unheard_of(self, arguments: Mapping[str, Any], given: Mapping[str, Any]) -> str | None:
        """What is no mere embedding among a decoder's arguments."""
        more = sorted(name for name, value in arguments.items() if _says(name, value))
        if more:
            return ", ".join(more)
        places = arguments.get("position_ids")
        if places is not None and not _same(places, given["position_ids"]):
            return "positions of its own"
        mask = arguments.get("attention_mask")
        if mask is not None and not _same(mask, given["attention_mask"]):
            return "an attention mask of its own"
        return None

    def decode(self, embeds: Tensor, positions: Tensor, **kwargs: Any) -> Tensor:
        outputs = self.decoder(
            inputs_embeds=embeds, position_ids=positions, use_cache=True, **kwargs
        )
        return outputs[0]  # by name it is not everywhere there

    def _positions(self, given: Tensor | None, packed: Packing) -> Tensor:
        return super()._positions(None, packed)


class GenericText(Generic, TextModel):
    """The same without pixels, so that it may draft for a model that sees."""


def _says(name: str, value: Any) -> bool:
    """Whether an argument carries something that the steps behind the prompt would not see."""
    empty = value is None or value is False or (isinstance(value, dict) and not value)
    return name not in CARRIED and not empty


def _same(ours: Any, theirs: Tensor) -> bool:
    return isinstance(ours, Tensor) and ours.shape == theirs.shape and bool((ours == theirs).all())


def has_pixels(model: Any) -> bool:
    """Whether a model reads pictures, as its config tells."""
    return getattr(model.config, "vision_config", None) is not None or hasattr(
        model.config, "image_token_id"
    )


def generic(model: Any) -> Generic:
    """The generic adapter of a model, unchecked.

    Raises:
        UnsupportedError: its config or its signatures rule it out.
    """
    if not isinstance(model, PreTrainedModel) or not isinstance(model, GenerationMixin):
        raise UnsupportedError(f"{type(model).__name__} is no causal model of transformers")
    return (Generic if has_pixels(model) else GenericText)(model)
