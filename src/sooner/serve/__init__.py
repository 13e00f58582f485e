"""Servers: OpenAI's API over a model (`model`), and `POST /act` over a robot policy (`act`).

Importing this imports no web framework.
"""
