"""`sooner bench imagine`: how coupled Jacobi decoding draws, against what it must equal and beat.

`run` is the whole; `speed` times the arms behind a parity gate, `study` collects what the paper's
figures show.
"""
