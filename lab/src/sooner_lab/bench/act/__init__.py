"""`sooner bench act`: a robot policy decoded plainly, strictly and with a tolerance.

`run` is the whole; `offline` times the arms on recorded observations behind a parity gate, `loops`
counts successes in closed loops, `clients` asks a server from several sides at once, `cases` writes
out how single actions came about; `goals`, `page` and `plots` show it.
"""
