"""Whether Triton runs these kernels on a GPU or through its interpreter."""

from __future__ import annotations

import triton

INTERPRETED = bool(triton.knobs.runtime.interpret)
"""`TRITON_INTERPRET=1` asks for the interpreter; what counts is its value when kernels are
imported, which is now."""
