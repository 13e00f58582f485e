"""Servers: OpenAI's API over a model (`chat_run`), and `POST /act` over a robot policy (`run`).

Importing this imports no web framework.
"""
