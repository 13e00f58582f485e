"""HunYuanVL (HunyuanOCR): M-RoPE whose axes are told by the config."""

from __future__ import annotations

from .base import Adapter


class HunYuanVL(Adapter):
    """Width, height and number of the picture, and in front of them, with four axes, the place.

    Positions of a picture start at 0 on those axes, so that they lie far behind the text's; the
    text goes on as if every visual token had taken one place.
    """

    model_types = ("hunyuan_vl",)
    mrope = True

    @property
    def axes(self) -> int:
        return len((self.text_config.rope_parameters or {}).get("mrope_section") or ()) or 1
