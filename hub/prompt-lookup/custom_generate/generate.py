"""Prompt lookup in batches.

`model.generate(**inputs, custom_generate="ORG/prompt-lookup", trust_remote_code=True)`;
the README says what the options mean.
"""

import sooner


def generate(
    model,
    num_draft_tokens="auto",
    max_draft_tokens=32,
    max_ngram=3,
    min_ngram=1,
    **arguments,
):
    """What followed the last few tokens earlier in the text is proposed; no model is needed."""
    if arguments.pop("assistant_model", None) is not None:
        raise sooner.SoonerError("PromptLookup drafts without a model; leave assistant_model out")
    method = sooner.PromptLookup(
        num_draft_tokens=num_draft_tokens,
        max_draft_tokens=max_draft_tokens,
        max_ngram=max_ngram,
        min_ngram=min_ngram,
    )
    return model.generate(**arguments, custom_generate=method)
