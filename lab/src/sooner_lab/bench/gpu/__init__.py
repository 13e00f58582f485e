"""`sooner bench gpu`: kernels and decoding on one NVIDIA GPU; torch and transformers are enough."""
