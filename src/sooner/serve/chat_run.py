"""Runs `sooner serve MODEL`: the engine's thread, the processes that decode, uvicorn, and their end."""
