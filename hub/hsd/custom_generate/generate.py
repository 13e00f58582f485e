"""Hierarchical speculative decoding of documents: verification.

`model.generate(**inputs, custom_generate="ORG/hsd", trust_remote_code=True)`;
the README says what the options mean.
"""

import sooner


def generate(
    model,
    drafts=None,
    tokenizer=None,
    reference_window=3,
    acceptance_threshold=1.0,
    nodes="auto",
    max_nodes=64,
    depth=64,
    width=8,
    **arguments,
):
    """Texts that something quick and rough made beforehand, such as OCR, are aligned with what
    the target says and verified as a tree."""
    if arguments.pop("assistant_model", None) is not None:
        raise sooner.SoonerError("HSD drafts without a model; leave assistant_model out")
    if drafts is None:
        raise sooner.SoonerError("HSD: give drafts, a list of texts for each prompt")
    method = sooner.HSD(
        drafts,
        tokenizer=tokenizer,
        reference_window=reference_window,
        acceptance_threshold=acceptance_threshold,
        nodes=nodes,
        max_nodes=max_nodes,
        depth=depth,
        width=width,
    )
    return model.generate(**arguments, tokenizer=tokenizer, custom_generate=method)
