"""A draft model on its way into another process: its weights, or where they are loaded from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ...errors import SoonerError
from ...models.silent import as_run


@dataclass(frozen=True)
class ModelSource:
    """All that another process needs to have the same model.

    A model itself is not pickled: transformers hangs local functions on those that have run.

    Attributes:
        kind: its class.
        config, generation_config: its own.
        weights: parameters and buffers by name. Where they are elsewhere (on the `meta` device),
            or quantised, this is `None`, and they are loaded from the checkpoint.
        checkpoint: folder or hub id, and `options`: of `from_pretrained`.
        is_quantized: the loaded weights can't be moved to another device.
    """

    kind: Any
    config: Any
    generation_config: Any
    weights: dict[str, torch.Tensor] | None
    checkpoint: str
    options: dict[str, Any]
    is_quantized: bool

    @classmethod
    def of(cls, model: Any) -> ModelSource:
        """Returns the source of a model.

        Raises:
            SoonerError: it has no weights, here or in a checkpoint.
        """
        tensors, quantizer = _tensors(model), getattr(model, "hf_quantizer", None)
        checkpoint = getattr(model, "name_or_path", "")
        options = {"dtype": model.dtype, "attn_implementation": model.config._attn_implementation}
        if (revision := getattr(model.config, "_commit_hash", None)) is not None:
            options["revision"] = revision
        if quantizer is not None and not quantizer.pre_quantized:
            options["quantization_config"] = quantizer.quantization_config
        weights = None
        if quantizer is None and not any(tensor.is_meta for tensor in tensors.values()):
            weights = {name: tensor.detach() for name, tensor in tensors.items()}
        elif not checkpoint:
            raise SoonerError("the draft has no weights, here or in a checkpoint; load it")
        config, generation_config = model.config, getattr(model, "generation_config", None)
        is_quantized = quantizer is not None
        return cls(
            type(model), config, generation_config, weights, checkpoint, options, is_quantized
        )

    def load(self, device: torch.device) -> Any:
        """Returns the model, in eval mode, on `device`.

        Raises:
            SoonerError: its class makes another model of its config.
        """
        if self.weights is None:
            device_map = {"device_map": {"": device}} if self.is_quantized else {}
            model = self.kind.from_pretrained(self.checkpoint, **self.options, **device_map)
            model = as_run(model, self.checkpoint)
            return (model if self.is_quantized else model.to(device)).eval()
        from transformers.initialization import no_init_weights

        with no_init_weights():
            model = self.kind(self.config)
        model.tie_weights()
        tensors = _tensors(model)
        shapes = {name: tensor.shape for name, tensor in self.weights.items()}
        if {name: tensor.shape for name, tensor in tensors.items()} != shapes:
            raise SoonerError(
                f"{self.kind.__name__} makes another model of the draft's config; save the draft "
                "to a folder, and load it by from_pretrained onto the meta device"
            )
        for name, tensor in tensors.items():
            tensor.data = self.weights[name]
        if self.generation_config is not None:
            model.generation_config = self.generation_config
        return model.to(device).eval()


def _tensors(model: Any) -> dict[str, torch.Tensor]:
    """Returns weights and buffers by name, stored ones and others."""
    return dict(model.named_parameters()) | dict(model.named_buffers())
