"""What drafting costs and gives, measured as decoding runs, and what of it pays.

Every method sizes its drafts by this package and brings its own candidates: lengths of a chain,
trees of nodes and levels, what is drafted already. `costs.Costs` says what a round takes,
`chain.CostModel` what a chain gives, `pauses.Pauses` keeps decoding from being slower than plain
decoding, and `costs.Quickest` compares whole calls.
"""
