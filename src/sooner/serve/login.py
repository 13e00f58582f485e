"""A form that takes a server's token, for browsers: it becomes an HttpOnly cookie."""

from __future__ import annotations

import hmac
import secrets
from html import escape
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

COOKIE = "sooner_session"
LOGIN_PATH = "/login"
LONGEST = 4096
"""Bytes of a login."""
FORM = """<!doctype html><html lang="en"><meta charset="utf-8"><title>sooner: log in</title>
<meta name="viewport" content="width=device-width,initial-scale=1">
<style>:root{{color-scheme:light dark}}body{{font:16px/1.5 system-ui,sans-serif;max-width:24rem;
margin:15vh auto;padding:0 1rem}}input,button{{font:inherit;padding:.5rem;width:100%;
box-sizing:border-box;margin:.3rem 0}}</style><main><h1>sooner</h1><p role="alert">{told}</p>
<form method="post" action="/login"><label>Token of this server
<input type="password" name="token" required autocomplete="current-password"></label>
<button>Log in</button></form></main></html>"""


def is_same(actual: str, expected: str) -> bool:
    """Returns whether two secrets are the same, in a time that tells nothing of them."""
    return hmac.compare_digest(actual.encode(), expected.encode())


class Login:
    """Who has logged in to a server, in this process.

    Args:
        token: of the server; without one there is nothing to log in to.
    """

    def __init__(self, token: str | None) -> None:
        self.token = token
        self._session = secrets.token_urlsafe(32)  # the token itself stays out of the browser

    def has_cookie(self, headers: Headers) -> bool:
        """Returns whether a request carries the cookie of a login."""
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            return False
        return cookie is not None and is_same(cookie.value, self._session)

    def form(self, message: str = "This server asks for its token.", status: int = 401) -> Response:
        """Returns the form, with a line above it."""
        headers = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}
        return HTMLResponse(FORM.format(told=escape(message)), status, headers)

    async def answer(self, request: Request) -> Response:
        """Returns a cookie and the way to the page for the right token; else the form again."""
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > LONGEST:
                return self.form("That was too long for a token.", 413)
        token = parse_qs(body.decode("utf-8", "replace")).get("token", [""])[0]
        if self.token is not None and not is_same(token, self.token):
            return self.form("That is not the token; whoever started the server knows it.")
        answer = RedirectResponse("/", 303)
        answer.set_cookie(COOKIE, self._session, httponly=True, samesite="strict", path="/")
        return answer
