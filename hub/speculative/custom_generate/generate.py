"""Speculative decoding that sees pixels.

`model.generate(**inputs, custom_generate="ORG/speculative", trust_remote_code=True)`;
the README says what the options mean.
"""

from sooner.hub import decode


def generate(
    model,
    num_draft_tokens="auto",
    max_draft_tokens=16,
    **arguments,
):
    """A small model drafts a chain of tokens from the same text and pixels, and one forward of
    the target verifies them, for every row of a batch at its own pace."""
    options = {
        "num_draft_tokens": num_draft_tokens,
        "max_draft_tokens": max_draft_tokens,
    }
    return decode("Speculative", model, options, arguments, drafts="model")
