"""Speculative decoding that sees pixels.

`model.generate(**inputs, custom_generate="ORG/speculative", trust_remote_code=True)`;
the README says what the options mean.
"""

import sooner


def generate(
    model,
    assistant_model=None,
    num_draft_tokens="auto",
    max_draft_tokens=16,
    **arguments,
):
    """A small model drafts a chain of tokens from the same text and pixels, and one forward of
    the target verifies them, for every row of a batch at its own pace."""
    if assistant_model is None:
        raise sooner.SoonerError("Speculative: give assistant_model, a small model that is loaded")
    method = sooner.Speculative(
        assistant_model,
        num_draft_tokens=num_draft_tokens,
        max_draft_tokens=max_draft_tokens,
    )
    return model.generate(**arguments, custom_generate=method)
