"""OpenAI's API over `serve.jobs`: what `sooner serve MODEL` answers to HTTP."""
