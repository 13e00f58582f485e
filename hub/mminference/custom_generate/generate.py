"""MMInference.

`model.generate(**inputs, custom_generate="ORG/mminference", trust_remote_code=True)`;
the README says what the options mean.
"""

from functools import partial

import sooner


def generate(
    model,
    table=None,
    dense_below=None,
    mlp_chunk=None,
    backend=None,
    **arguments,
):
    """Prefills long prompts with sparse attention that knows modalities; decoding stays as it
    was. The result is approximate."""
    if arguments.pop("assistant_model", None) is not None:
        raise sooner.SoonerError("MMInference drafts without a model; leave assistant_model out")
    options = {
        "dense_below": dense_below,
        "mlp_chunk": mlp_chunk,
        "backend": backend,
    }
    sparse = sooner.MMInference if table is None else partial(sooner.MMInference.load, table)
    with sparse(**options)(model):
        return model.generate(**arguments, custom_generate=sooner.Autoregressive())
