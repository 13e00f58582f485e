"""MMInference.

`model.generate(**inputs, custom_generate="ORG/mminference", trust_remote_code=True)`;
the README says what the options mean.
"""

from sooner.hub import prefill


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
    options = {
        "table": table,
        "dense_below": dense_below,
        "mlp_chunk": mlp_chunk,
        "backend": backend,
    }
    return prefill(model, options, arguments)
