"""DFlash: a drafter that fills a block in one forward; DDTree: trees of its marginals."""
