"""`sooner bench replay`: every method at a set acceptance, on real decoders, beside theory."""
