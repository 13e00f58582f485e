"""RoPE whose frequencies depend on the length of the text: `dynamic` and `longrope`.

transformers chooses such frequencies once a forward, by its largest position, and leaves them in
the rotary module. A block of drafts, a ragged batch or a prefill in chunks would get others than
the steps of incremental decoding. So while a runner forwards, each token gets the frequencies that
a row of its own would have had there: a prompt those of its whole length, a later token those of
the length that it brings the row to. The module itself stays as it is.
"""

from __future__ import annotations

import copy
import inspect
import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map
from transformers import modeling_rope_utils
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from ..errors import UnsupportedError
from .interface import AdapterLike, Prompt, each_rope, rope_parameters, rope_type

DYNAMIC, LONGROPE = "dynamic", "longrope"

MARK = "_sooner_rope"
"""Where a rotary module keeps what stands for it."""

logger = logging.getLogger("sooner")

_LOCK = threading.Lock()

_PROMPT_LENGTHS: ContextVar[Tensor | int | None] = ContextVar("prompt_lengths", default=None)
"""In a forward of a runner: length of each row's prompt, `[rows]`, or 0 behind the prompts."""


class LengthRope:
    """Wraps the rotary modules of a decoder whose frequencies depend on the length.

    Args:
        adapter: of the model.
        kinds: the rope types of its config that depend on the length.

    Attributes:
        switch: tokens up to which frequencies are fixed; `None` if they always are, as those of
            HunYuan's `dynamic` with a fixed `alpha`.
    """

    def __init__(self, adapter: AdapterLike, kinds: set[str]) -> None:
        self.model_name = type(adapter.model).__name__
        self.kinds = kinds
        decorated = [module for module in adapter.decoder.modules() if _is_decorated(module)]
        modules = [rope for module in decorated if (rope := TokenRope.of(module)).kinds]
        self._modules = [rope for rope in modules if rope.is_known]
        self._is_opaque = not decorated or len(self._modules) < len(modules)
        self._is_recomputed = _recomputes(adapter.model)
        switches = [_config_switch(adapter.text_config)] if self._is_opaque else []
        switches += [rope.switch for rope in self._modules]
        self.switch: int | None = min(switches, default=None)

    @classmethod
    def of(cls, adapter: AdapterLike) -> LengthRope | None:
        """Returns the object of a model; `None` if its config names no such RoPE."""
        types = map(rope_type, each_rope(adapter.text_config))
        kinds = {kind for kind in types if depends_on_length(kind)}
        return cls(adapter, kinds) if kinds else None

    @property
    def is_known(self) -> bool:
        """Whether every rotary module that depends on the length has a stand-in."""
        return not self._is_opaque

    def prompt_lengths(self, prompt: Prompt) -> Tensor:
        """Returns length of each row's prompt by positions, as transformers does, `[rows]`.

        What a row generated before it was interrupted is no part of its prompt.
        """
        sizes = torch.tensor(prompt.lengths, device=prompt.positions.device) - prompt.generated
        inside = torch.arange(prompt.positions.shape[-1], device=sizes.device) < sizes[:, None]
        return 1 + _largest(prompt.positions.masked_fill(~inside, -1).amax(-1))

    def is_past_switch(self, prompt: Prompt) -> bool:
        """Returns whether the prompt of some row is longer than the switch."""
        return self.switch is not None and bool((self.prompt_lengths(prompt) > self.switch).any())

    def check(self, prompt: Prompt, limit: int) -> None:
        """Require that `limit` new tokens behind each row's prompt can be exact.

        Raises:
            UnsupportedError: a row may cross the switch, and this model goes on from there
                otherwise than token by token.
        """
        if self.switch is None:
            return
        prompts, ends = self.prompt_lengths(prompt).tolist(), _largest(prompt.next_position)
        for row, (length, end) in enumerate(zip(prompts, ends.tolist(), strict=True)):
            last = end + limit - 1  # the last new token is not forwarded
            if self._is_opaque and last > self.switch:
                reason = f"has {'/'.join(sorted(self.kinds))} RoPE of a kind that is not known"
            elif self._is_recomputed and length <= self.switch < last:
                reason = "computes the keys and values of the whole text anew there"
            elif DYNAMIC in self.kinds and length > max(self.switch, end):
                reason = "has positions in its prompt that are ahead of those behind it"
            else:
                continue
            room = self.switch - end + 1
            hint = f"use max_new_tokens={room}" if room > 0 else "use a shorter prompt"
            raise UnsupportedError(
                f"row {row} of {end} tokens and max_new_tokens={limit} cross the {self.switch} "
                f"up to which RoPE frequencies of {self.model_name} are fixed, and it {reason}; "
                f"{hint}, or its own generate()"
            )

    @contextmanager
    def by_token(self, prompt_lengths: Tensor | int = 0) -> Iterator[None]:
        """Let each token of a forward in this thread have the frequencies of its own length.

        Args:
            prompt_lengths: those of a prefill.
        """
        token = _PROMPT_LENGTHS.set(prompt_lengths)
        try:
            with ExitStack() as stack:
                for rope in self._modules:
                    stack.enter_context(rope.in_place())
                yield
        finally:
            _PROMPT_LENGTHS.reset(token)


class TokenRope:
    """Answers for a rotary module, each token by the frequencies of its own length.

    Args:
        module: a rotary module of transformers.

    Attributes:
        kinds: rope types that depend on the length by kind of layer; `None` is every layer.
        switch: tokens up to which frequencies are fixed.
        is_known: its frequencies are those of `dynamic` and `longrope` as transformers defines
            them, and its angles lie in the order of its positions.
    """

    def __init__(self, module: Any) -> None:
        self.module = module
        types = module.rope_type if isinstance(module.rope_type, dict) else {None: module.rope_type}
        self.kinds = {layer: kind for layer, kind in types.items() if depends_on_length(kind)}
        self.switch = min(map(self._switch, self.kinds), default=0)
        self._angles = inspect.unwrap(type(module).forward)  # without the choice of frequencies
        self._long: dict[tuple[str | None, torch.device], Tensor] = {}
        self._before: Any = None
        self._runs = 0
        self._is_broadcast = False
        self.is_known = all(map(self._is_layer_known, self.kinds))

    @classmethod
    def of(cls, module: nn.Module) -> TokenRope:
        """The one of a module; it is made once, so that a compiled decoder stays compiled."""
        if (rope := module.__dict__.get(MARK)) is None:
            rope = module.__dict__[MARK] = cls(module)
        return rope

    def __reduce__(self) -> tuple[type, tuple[()]]:
        """Nothing: a copy of the module makes its own."""
        return type(None), ()

    def __call__(self, x: Tensor, position_ids: Tensor, layer_type: str | None = None) -> Any:
        lengths = 0 if torch.compiler.is_compiling() else _PROMPT_LENGTHS.get()
        if lengths is None:  # another thread's own forward
            forward = self._before or type(self.module).forward.__get__(self.module)
            return forward(x, position_ids, *([] if layer_type is None else [layer_type]))
        if layer_type not in self.kinds:
            return self._angles(self.module, x, position_ids, layer_type)
        longest = 1 + _largest(position_ids, ndim=2)  # [rows, entries]
        if isinstance(lengths, Tensor):  # some prefill a prompt before they repeat its rows
            longest = longest.maximum(lengths[:: max(len(lengths) // len(longest), 1), None])
        return self._turn(x, position_ids, layer_type, self._frequencies(longest, layer_type))

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Stand in the place of the module's forward; runs of several threads may overlap."""
        state = self.module.__dict__
        with _LOCK:
            if not self._runs:
                self._before = state.get("forward")
                state["forward"] = self
            self._runs += 1
        try:
            yield
        finally:
            with _LOCK:
                self._runs -= 1
                if not self._runs:
                    del state["forward"]
                    if self._before is not None:
                        state["forward"] = self._before

    def _frequencies(self, lengths: Tensor, layer: str | None) -> Tensor:
        """Returns frequencies of tokens that make a row so long, `[rows, entries, half a head]`."""
        original = getattr(self.module, _name(layer, "original_inv_freq")).to(lengths.device)
        lengths = lengths[..., None]
        make = self._longrope if self.kinds[layer] == LONGROPE else self._dynamic
        return torch.where(lengths > self._switch(layer), make(lengths, original, layer), original)

    def _dynamic(self, lengths: Tensor, original: Tensor, layer: str | None) -> Tensor:
        """NTK scaling by each length, as `_compute_dynamic_ntk_parameters` of transformers does for
        one; that uploads a number."""
        params, size = self._params(layer), self.module.config.max_position_embeddings
        factor, dim = params["factor"], 2 * original.shape[-1]
        scale = ((factor * lengths / size) - (factor - 1)) ** (dim / (dim - 2))
        steps = torch.arange(0, dim, 2, device=lengths.device).float()
        frequencies: Tensor = 1.0 / ((params["rope_theta"] * scale) ** (steps / dim))
        return frequencies

    def _longrope(self, lengths: Tensor, original: Tensor, layer: str | None) -> Tensor:
        """Returns the frequencies of every length behind the switch, `[half of a head]`."""
        key = (layer, lengths.device)
        if key not in self._long:
            self._long[key] = self._published(layer, self._switch(layer) + 1, lengths.device)
        return self._long[key].to(original.dtype)

    def _published(self, layer: str | None, length: int, device: Any = None) -> Tensor:
        """Returns what transformers chooses for one length."""
        choose = ROPE_INIT_FUNCTIONS[self.kinds[layer]]
        frequencies, _ = choose(self.module.config, device, seq_len=length, layer_type=layer)
        return frequencies

    def _turn(self, x: Tensor, positions: Tensor, layer: str | None, frequencies: Tensor) -> Any:
        """Returns angles of `positions [..., rows, entries]` under frequencies of each."""
        kwargs = {} if layer is None else {"layer_type": layer}
        name = _name(layer, "inv_freq")
        if self._is_broadcast:
            return self._angles(_View(self.module, {name: frequencies}), x, positions, **kwargs)

        def turn(frequency: Tensor, position: Tensor) -> Any:
            view, position = _View(self.module, {name: frequency}), position[..., None, None]
            angles = self._angles(view, x, position, **kwargs)  # [..., 1, 1, size]
            return tree_map(lambda part: part[..., 0, 0, :], angles)

        inputs = (frequencies.flatten(0, 1), positions.flatten(-2))
        angles = torch.func.vmap(turn, in_dims=(0, -1), out_dims=-2)(*inputs)
        return tree_map(lambda part: part.unflatten(-2, frequencies.shape[:2]), angles)

    def _is_layer_known(self, layer: str | None) -> bool:
        """Returns whether angles by token equal those that the module gives steps of one token."""
        fresh = copy.deepcopy(self.module)  # a step changes it
        switch, kwargs = self._switch(layer), {} if layer is None else {"layer_type": layer}
        places = torch.tensor([[0, switch - 1, switch, switch + 1, 3 * switch]])
        x = getattr(fresh, _name(layer, "original_inv_freq")).new_zeros(1, 1, 1, dtype=torch.float)
        for positions in (places.to(x.device), places.to(x.device).expand(3, -1, -1)):
            for self._is_broadcast in (True, False):
                try:
                    steps = [fresh(x, position, **kwargs) for position in positions.split(1, -1)]
                    angles = self._turn(
                        x, positions, layer, self._frequencies(1 + places.to(x.device), layer)
                    )
                except Exception as error:  # a module of another kind may raise anything
                    logger.debug("%s: %r", type(self.module).__name__, error)
                    continue
                parts = zip(
                    tree_leaves(angles), zip(*map(tree_leaves, steps), strict=True), strict=True
                )
                if all(_alike(part, torch.cat(pieces, -2)) for part, pieces in parts):
                    return True
        return False

    def _params(self, layer: str | None) -> Any:
        params = self.module.config.rope_parameters
        return params if layer is None else params[layer]

    def _switch(self, layer: str | None) -> int:
        if self.kinds[layer] == LONGROPE:
            return int(self._params(layer)["original_max_position_embeddings"])
        return int(self.module.original_max_seq_len)


class _View:
    """A module with other attributes in the place of some, which itself stays as it is."""

    def __init__(self, module: nn.Module, attributes: Mapping[str, Any]) -> None:
        self.__dict__.update(attributes, _module=module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def depends_on_length(kind: Any) -> bool:
    """Returns whether transformers chooses the frequencies of a rope type in each forward."""
    return isinstance(kind, str) and (DYNAMIC in kind or kind == LONGROPE)


def _config_switch(text: Any) -> int:
    """Returns tokens up to which a model's frequencies are fixed, as far as its config tells."""
    holders = (rope_parameters(text), vars(text))
    original = [value.get("original_max_position_embeddings") for value in holders]
    lengths = (*original, text.max_position_embeddings)
    return min(int(value) for value in lengths if value is not None)


def _is_decorated(module: nn.Module) -> bool:
    """Returns whether a module's forward is wrapped in transformers' `dynamic_rope_update`."""
    forward: Any = type(module).forward
    while forward is not None:
        if getattr(forward, "__globals__", {}).get("__name__") == modeling_rope_utils.__name__:
            return True
        forward = getattr(forward, "__wrapped__", None)
    return False


def _recomputes(model: nn.Module) -> bool:
    """Returns whether a model's `generate` computes its cache anew at the switch, as Phi's do."""
    prepare: Any = getattr(type(model), "prepare_inputs_for_generation", None)
    code = getattr(inspect.unwrap(prepare), "__code__", None) if prepare is not None else None
    return code is not None and "original_max_position_embeddings" in code.co_names


def _largest(positions: Tensor, ndim: int = 1) -> Tensor:
    """The largest of a position's axes; `[rows, ...]` of `ndim` dimensions."""
    return positions if positions.ndim == ndim else positions.amax(0)


def _name(layer: str | None, name: str) -> str:
    return name if layer is None else f"{layer}_{name}"


def _alike(ours: Tensor, other: Tensor) -> bool:
    """Returns whether angles agree; far places turn a rounding of frequencies into a hundredth."""
    return ours.shape == other.shape and bool(torch.allclose(ours, other, atol=0.02))
