"""OpenAI's API over `serve.engine_thread`: what `sooner serve MODEL` answers to its clients."""
