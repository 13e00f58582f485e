"""Forward hooks that are put on modules, found there, and taken off together."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, NamedTuple, Self

from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode
from torch.utils.hooks import RemovableHandle

Hook = Callable[..., Any]
OnAttention = Callable[[nn.Module, "AttentionCall | None", Any], None]
"""Told `(attention module, the last call inside it, its output)`; no call if there was none."""

_INSTALLED: weakref.WeakValueDictionary[int, ForwardHooks] = weakref.WeakValueDictionary()
"""Contexts with hooks on modules, by id, in order; weak, as hooks live as long as their modules."""


class ForwardHooks:
    """Forward hooks that belong together; as a context, until the block ends.

    torch calls a hook in whichever thread runs the module. These answer to the thread that made
    this object, since others may run the same model, unless a subclass sets `every_thread`.
    Several objects may hook one module and are removed in any order.

    Attributes:
        modules: those with a hook.
        cuts_layers: a prompt goes through the layers as a whole, and each takes it in chunks.
    """

    every_thread: ClassVar[bool] = False
    cuts_layers: ClassVar[bool] = False

    def __init__(self) -> None:
        self.modules: set[nn.Module] = set()
        self._thread = threading.get_ident()
        self._handles: list[RemovableHandle] = []

    @classmethod
    def installed(cls, module: nn.Module) -> list[Self]:
        """Returns the contexts of this class that hook a module, by their first hook anywhere."""
        return [entry for entry in cls._all() if module in entry.modules]

    @classmethod
    def any_in(cls, whole: nn.Module) -> bool:
        """Returns whether one of this class hooks a module, or one within it."""
        return any(not entry.modules.isdisjoint(whole.modules()) for entry in cls._all())

    @classmethod
    def _all(cls) -> list[Self]:
        # A list at once, whatever threads add.
        hooks = [entry() for entry in _INSTALLED.valuerefs()]
        return [entry for entry in hooks if isinstance(entry, cls)]

    def install(self) -> None:
        """Put hooks on as the context begins. Where this raises, none stays."""

    def remove(self) -> None:
        """Take all hooks off; may be called again."""
        for handle in self._handles:
            handle.remove()
        self._handles, self.modules = [], set()
        _INSTALLED.pop(id(self), None)

    def before(self, module: nn.Module, hook: Hook, *, first: bool = False) -> None:
        """Call `hook(module, args, kwargs)` before each forward of a module.

        Args:
            hook: may return `(args, kwargs)` to take the place of the given ones.
            first: ahead of the hooks that are there already.
        """
        register = partial(module.register_forward_pre_hook, prepend=first)
        self._register(module, hook, register)

    def after(
        self, module: nn.Module, hook: Hook, *, first: bool = False, always: bool = False
    ) -> None:
        """Call `hook(module, args, kwargs, output)` after each forward of a module.

        Args:
            hook: may return what takes the place of the output.
            first: ahead of the hooks that are there already.
            always: also when the forward raises an `Exception`; the output is then `None`.
        """
        register = partial(module.register_forward_hook, prepend=first, always_call=always)
        self._register(module, hook, register)

    def _register(
        self, module: nn.Module, hook: Hook, register: Callable[..., RemovableHandle]
    ) -> None:
        def same_thread(*call: Any) -> Any:
            return hook(*call) if threading.get_ident() == self._thread else None

        function = hook if self.every_thread else same_thread
        self._handles.append(register(function, with_kwargs=True))
        self.modules.add(module)
        _INSTALLED[id(self)] = self

    def __enter__(self) -> Self:
        try:
            self.install()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()


class AttentionCall(NamedTuple):
    """What an attention function was given: rotated and normalised by the model itself.

    Attributes:
        queries: `[rows, heads, tokens, head_dim]`.
        keys, values: `[rows, heads or kv_heads, tokens, head_dim]`.
        scale: factor of the scores.
    """

    queries: Tensor
    keys: Tensor
    values: Tensor
    scale: float


class AttentionHooks(ForwardHooks):
    """Hooks that see what `scaled_dot_product_attention` is called with, in one thread."""

    def __init__(self) -> None:
        super().__init__()
        self._recorder: _Recorder | None = None  # of the attention module that is running

    def around(self, attention: nn.Module, on_attention: OnAttention) -> None:
        """Call `on_attention` after each forward of an attention module that did not raise."""

        def stop(module: nn.Module, args: tuple, kwargs: dict[str, Any], output: Any) -> None:
            recorder = self._stop()
            if recorder is not None and output is not None:  # else an error is on its way
                on_attention(module, recorder.call, output)

        self.before(attention, self._start)
        # First, as modes are a stack: the recorder that was entered last is left first.
        self.after(attention, stop, first=True, always=True)

    def remove(self) -> None:
        super().remove()
        if threading.get_ident() == self._thread:
            self._stop()  # torch calls no hook after a KeyboardInterrupt

    def _start(self, *call: Any) -> None:
        self._recorder = _Recorder()
        self._recorder.__enter__()

    def _stop(self) -> _Recorder | None:
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            recorder.__exit__(None, None, None)
        return recorder


class _Recorder(TorchFunctionMode):
    """Keeps the last call of `scaled_dot_product_attention` in this thread."""

    def __init__(self) -> None:
        super().__init__()
        self.call: AttentionCall | None = None

    def __torch_function__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is scaled_dot_product_attention:
            queries, keys, values = args[:3]
            scale = kwargs.get("scale")
            factor = queries.shape[-1] ** -0.5 if scale is None else scale
            self.call = AttentionCall(queries, keys, values, factor)
        return func(*args, **kwargs)
