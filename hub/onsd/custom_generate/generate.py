"""Speculative decoding with a draft of words alone.

`model.generate(**inputs, custom_generate="ORG/onsd", trust_remote_code=True)`;
the README says what the options mean.
"""

from sooner.hub import decode


def generate(
    model,
    num_draft_tokens="auto",
    max_draft_tokens=16,
    **arguments,
):
    """A language model drafts for a vision-language model: it gets the words, not the pixels."""
    options = {
        "num_draft_tokens": num_draft_tokens,
        "max_draft_tokens": max_draft_tokens,
    }
    return decode("OnSD", model, options, arguments, drafts="model")
