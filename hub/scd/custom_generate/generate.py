"""Speculative coupled decoding.

`model.generate(**inputs, custom_generate="ORG/scd", trust_remote_code=True)`;
the README says what the options mean.
"""

from sooner.hub import draw


def generate(
    model,
    jacobi_window=64,
    coupling="gumbel",
    strength=1.0,
    init=None,
    count=1,
    seed=None,
    guidance=None,
    **arguments,
):
    """Pictures and clips of autoregressive models: a window of the last iteration is the
    draft, and its draws are coupled with the target's."""
    options = {
        "jacobi_window": jacobi_window,
        "coupling": coupling,
        "strength": strength,
        "init": init,
        "count": count,
        "seed": seed,
        "guidance": guidance,
    }
    return draw(model, options, arguments)
