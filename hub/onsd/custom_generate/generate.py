"""Speculative decoding with a draft of words alone.

`model.generate(**inputs, custom_generate="ORG/onsd", trust_remote_code=True)`;
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
    """A language model drafts for a vision-language model: it gets the words, not the pixels."""
    if assistant_model is None:
        raise sooner.SoonerError("OnSD: give assistant_model, a small model that is loaded")
    method = sooner.OnSD(
        assistant_model,
        num_draft_tokens=num_draft_tokens,
        max_draft_tokens=max_draft_tokens,
    )
    return model.generate(**arguments, custom_generate=method)
