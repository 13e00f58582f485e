"""Where another process gets a draft from: the checkpoint it was loaded from, or this memory."""

from __future__ import annotations

import importlib
import math
import pickle
from dataclasses import dataclass
from typing import Any

import torch

from ...errors import SoonerError
from ...models.silent import as_run
from .shared_memory import Arena, Parcel, SharedFile

SAMPLED = 8
"""First values of each weight by which two copies of a model are compared."""
TOLERANCE = 1e-3


@dataclass(frozen=True)
class DraftSource:
    """How a draft was loaded, for another process to load it the same way.

    Attributes:
        model_class: `module:name`.
        name: folder or hub id.
        revision: commit of the hub; `None` for a folder.
        dtype: of its weights.
        attention: implementation.
        quantization: config, if the weights were quantised on loading.
        is_quantized: so they were, or are in the checkpoint.
        sample: see `sample`; empty where the caller has no weights.
    """

    model_class: str
    name: str
    revision: str | None
    dtype: torch.dtype
    attention: str
    quantization: Any
    is_quantized: bool
    sample: tuple[float, ...]

    @classmethod
    def of(cls, model: Any) -> DraftSource | None:
        """Returns the source of a model; `None` if it is from no checkpoint of a class that
        transformers loads."""
        kind = type(model)
        name = getattr(model, "name_or_path", "")
        if not name or kind.__module__.split(".")[0] not in (
            "transformers",
            "transformers_modules",
        ):
            return None
        quantizer: Any = getattr(model, "hf_quantizer", None)
        stored = getattr(quantizer, "pre_quantized", True)
        return cls(
            f"{kind.__module__}:{kind.__qualname__}",
            name,
            getattr(model.config, "_commit_hash", None),
            model.dtype,
            model.config._attn_implementation,
            None if stored else quantizer.quantization_config,
            quantizer is not None,
            sample(model),
        )

    def load(self, device: torch.device) -> Any:
        """Returns the model, in eval mode, on `device`.

        Raises:
            SoonerError: the checkpoint holds other weights than the caller's model.
        """
        module, name = self.model_class.split(":")
        kind: Any = getattr(importlib.import_module(module), name)
        options: dict[str, Any] = {"dtype": self.dtype, "attn_implementation": self.attention}
        if self.revision is not None:
            options["revision"] = self.revision
        if self.quantization is not None:
            options["quantization_config"] = self.quantization
        if self.is_quantized:  # such a model can't be moved
            options["device_map"] = {"": device}
        model = as_run(kind.from_pretrained(self.name, **options), self.name)
        self._compare(sample(model))
        return (model if self.is_quantized else model.to(device)).eval()

    def _compare(self, sums: tuple[float, ...]) -> None:
        alike = len(sums) == len(self.sample) and all(
            math.isclose(value, other, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
            for value, other in zip(sums, self.sample, strict=True)
        )
        if self.sample and not alike:
            raise SoonerError(
                f"'{self.name}' holds other weights than the draft; hand the draft's over by "
                "SpawnedDraft(draft, from_memory=True)"
            )


@torch.no_grad()
def sample(model: Any) -> tuple[float, ...]:
    """Returns sums over the first few values of each floating-point weight; empty for one
    without.
    """
    weights = [weight for weight in model.parameters() if weight.is_floating_point()]
    if any(weight.device.type == "meta" for weight in weights):
        return ()
    sums = [weight.flatten()[:SAMPLED].float().sum().cpu() for weight in weights]
    return tuple(torch.stack(sums).tolist()) if sums else ()


@dataclass(frozen=True)
class HandedOver:
    """A model as it is in memory, in a file that both processes share.

    Attributes:
        file: holds it from its first byte on.
        room, size: bytes of the whole, and of its text, see `Parcel`.
    """

    file: SharedFile
    room: int
    size: int

    @classmethod
    def of(cls, model: Any) -> HandedOver:
        """Copy a model into such a file: its class, configs, weights and buffers.

        A model itself is not pickled: transformers hangs local functions on those that have run,
        and notes in the constructor what a forward may record.

        Raises:
            SoonerError: these can't be pickled.
        """
        weights = {name: tensor.detach() for name, tensor in _tensors(model).items()}
        state = type(model), model.config, getattr(model, "generation_config", None), weights
        try:
            parcel = Parcel(state)
        except (pickle.PicklingError, AttributeError, TypeError) as error:  # any of these
            raise SoonerError(
                f"the draft can't be handed to another process ({error}); load it from a folder by "
                "from_pretrained, or use placement='thread'"
            ) from error
        file = SharedFile()
        return cls(file, parcel.room, parcel.lay_down(Arena(parcel.room, file)))

    def load(self, device: torch.device) -> Any:
        """Returns the model, in eval mode, on `device`; on a CPU its weights are the file's.

        Raises:
            SoonerError: its class makes another model of its config.
        """
        kind, config, generation_config, weights = Parcel.open(
            Arena(self.room, self.file), self.size
        )
        model = kind(config)
        tensors = _tensors(model)
        if {name: tensor.shape for name, tensor in tensors.items()} != {
            name: tensor.shape for name, tensor in weights.items()
        }:
            raise SoonerError(
                f"{kind.__name__} makes another model of the draft's config; save the draft to a "
                "folder, and load it by from_pretrained"
            )
        for name, tensor in tensors.items():
            tensor.data = weights[name]
        if generation_config is not None:
            model.generation_config = generation_config
        return model.to(device).eval()


def _tensors(model: Any) -> dict[str, torch.Tensor]:
    """Returns weights and buffers by name, stored ones and others."""
    return dict(model.named_parameters()) | dict(model.named_buffers())
