"""`sooner bench act`: a robot policy decoded plainly, strictly and with a tolerance.

`run` is the whole; `offline` times the arms on recorded observations behind a parity gate, `loops`
counts successes in closed loops.
"""
