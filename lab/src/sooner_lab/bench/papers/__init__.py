"""`sooner bench papers`: every table and figure of the five papers, and ours held against them."""
