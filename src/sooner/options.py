"""The generation options that `sooner.generate` and `sooner.Engine` hand to transformers.

They are keyword arguments with the names of transformers' `GenerationConfig`, typed so that editors
complete them. What stands there and not here works, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from transformers import GenerationConfig, LogitsProcessorList, StoppingCriteriaList


class GenerateOptions(TypedDict, total=False):
    """Keyword arguments of `model.generate` that every method honours.

    Attributes:
        generation_config: the defaults of all others; the model's own if it is left out.
        max_new_tokens, max_length, min_new_tokens, min_length: limits of the output, in tokens.
        max_time: seconds after which the call stops.
        do_sample: draws tokens; otherwise the likeliest token is taken.
        temperature, top_k, top_p, min_p, typical_p, epsilon_cutoff, eta_cutoff, top_h: what of the
            distribution is drawn from.
        num_return_sequences: samples of each prompt.
        repetition_penalty, no_repeat_ngram_size: as in transformers, over prompt and output.
        presence_penalty, frequency_penalty: as in OpenAI's API, over the output alone; -2 to 2.
        bad_words_ids, suppress_tokens, sequence_bias: tokens that are avoided or preferred.
        eos_token_id, pad_token_id: ids that end a row and fill it.
        stop_strings, tokenizer: texts that end a row, and the tokenizer that decodes it.
        logits_processor, stopping_criteria: objects of transformers, applied at each step.
        prefill_chunk_size: prompt tokens of one prefill forward; all at once if it is left out.
        cache_implementation: `"offloaded"` keeps keys and values in host memory, and those of two
            layers at a time on the GPU; each round copies all of them there.
    """

    generation_config: GenerationConfig
    max_new_tokens: int | None
    max_length: int | None
    min_new_tokens: int | None
    min_length: int | None
    max_time: float | None
    do_sample: bool | None
    temperature: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    top_h: float | None
    typical_p: float | None
    epsilon_cutoff: float | None
    eta_cutoff: float | None
    num_return_sequences: int | None
    repetition_penalty: float | None
    no_repeat_ngram_size: int | None
    presence_penalty: float | None
    frequency_penalty: float | None
    bad_words_ids: Sequence[Sequence[int]] | None
    suppress_tokens: Sequence[int] | None
    sequence_bias: Any
    eos_token_id: int | Sequence[int] | None
    pad_token_id: int | None
    stop_strings: str | Sequence[str] | None
    tokenizer: Any
    logits_processor: LogitsProcessorList | list[Any]
    stopping_criteria: StoppingCriteriaList | list[Any]
    prefill_chunk_size: int | None
    cache_implementation: str | None
