"""What tests ask of transformers that versions before 5.21 lack: the reason, and tests by name.

The core lane on the lowest version that pyproject.toml allows (`make test-versions LANE=core`)
skips these, with their reasons.
"""

from __future__ import annotations

BELOW = "5.21"

FILES = {"test_recurrent.py"}
"""Modules about layers that keep a state, which older versions hand out otherwise."""

LACKING: dict[str, tuple[str, ...]] = {
    "layers that keep a state are refused": (
        "test_a_target_whose_layers_keep_a_state_is_drafted_chains",
        "test_refused_in_a_single_line[state]",
        "test_a_refusal_of_a_type_names_the_reason_in_a_single_line[minimax_m3_vl]",
        "test_a_refusal_of_a_type_names_the_reason_in_a_single_line[inkling_mm_model]",
        "test_a_refusal_of_a_type_names_the_reason_in_a_single_line[mllama]",
    ),
    "the tiny model's pictures fail in its own forward": (
        "test_a_tree_or_where_it_is_none_a_chain_equals_generate[granite4_vision]",
        "test_a_tree_or_where_it_is_none_a_chain_equals_generate[gemma4]",
        "test_answers_end_where_the_family_s_do",
        "test_a_page_has_the_official_prompt_and_reads_as_generate_does[got-ocr-2]",
    ),
    "Janus' own generate() lacks an argument of _prepare_static_cache()": (
        "test_janus_draws_what_its_generate_draws[1.5]",
        "test_janus_draws_what_its_generate_draws[5.0]",
        "test_an_interrupted_run_keeps_its_kinds",
        "test_the_peer_draws_whole_spans_and_leaves_the_global_generator[picture_subject]",
    ),
    "long RoPE fails on rows that are all short": (
        "test_rows_on_both_sides_of_the_switch_in_a_batch[gemma3-longrope-itself]",
        "test_rows_on_both_sides_of_the_switch_in_a_batch[gemma3-longrope-tree]",
    ),
    "sampled ids were frozen with a version whose logits differ in the last bits": (
        "test_ids_and_counts_are_the_frozen_ones[sampled-llama-noisy-7-text-b2-session-n13-eos-sampled]",
        "test_ids_and_counts_are_the_frozen_ones[sampled-llava_onevision-stranger-uneven-b2-session-n13-sampled]",
        "test_ids_and_counts_are_the_frozen_ones[sampled-llava_onevision-assistant-uneven-b2-session-n13-sampled]",
        "test_ids_and_counts_are_the_frozen_ones[sampled-qwen3_vl-domino-uneven-b2-session-n13-eos-sampled]",
    ),
    "LLaVA-OneVision's features lack the token that ends a clip, and are not kept": (
        "test_the_second_question_on_a_clip_forwards_only_its_tokens[llava_onevision-False]",
        "test_the_second_question_on_a_clip_forwards_only_its_tokens[llava_onevision-True]",
        "test_a_clip_behind_another_question_is_not_encoded_again",
    ),
    "Qwen's processors can't count the tokens of a video": ("test_counting_ahead_is_right",),
    "chat templates do not sanitize control tokens": (
        "test_a_user_writes_letters_and_no_control_tokens",
    ),
    "tokenizers of GGUF files do not load": ("test_a_gguf_file_is_the_model_that_it_holds",),
    "forwards wait for the host, or copy what later ones do not": (
        "test_what_waits_is_refused_and_nothing_else_is[aria-eager]",
        "test_what_waits_is_refused_and_nothing_else_is[aria-grouped_mm]",
        "test_a_7b_plain_step_reads_its_weights_and_keys_once",
        "test_a_rule_with_a_planted_wait_fails[upload]",
    ),
}


def reason(test: str) -> str | None:
    """Returns why a test, by its name with or without parameters, can't pass on older versions."""
    return next((why for why, tests in LACKING.items() if test in tests), None)
