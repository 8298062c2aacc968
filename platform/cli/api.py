"""Asking servers of the stack for JSON, the Prefect API among them, without importing Prefect.

That API wants credentials where it has been given some, and from whoever changes anything a token that it
hands out: a page in somebody's browser could send the request, but not read the token.
"""

from __future__ import annotations

import base64
import json
import os
import urllib.error
import urllib.request
import uuid
from collections.abc import Mapping
from typing import Any

_API = "/api/"
_LOOPBACK = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""The stack's own servers are never behind a proxy, whatever the environment says."""


def get_json(
    url: str, *, body: Mapping[str, Any] | None = None, timeout: float = 2.0, auth: str | None = None
) -> Any:
    """GET, or POST when there is a body.

    Args:
        auth: ``user:password`` for the Prefect API; PREFECT_API_AUTH_STRING where None.

    Raises:
        OSError: nobody answers, or not well; an HTTPError carries the status.
    """
    headers = {"content-type": "application/json", **_credentials(url, auth)}
    if body is not None and _API in url:
        headers |= _token(url, headers, timeout)
    return _ask(url, headers, json.dumps(body).encode() if body is not None else None, timeout)


def answers(url: str) -> bool:
    """Whether a health address says that its server is up."""
    try:
        get_json(url)
    except (OSError, ValueError):
        return False
    return True


def _ask(url: str, headers: Mapping[str, str], data: bytes | None, timeout: float) -> Any:
    request = urllib.request.Request(url, data=data, headers=dict(headers))
    with _LOOPBACK.open(request, timeout=timeout) as answer:
        text = answer.read()
    return json.loads(text) if text else None


def _credentials(url: str, auth: str | None) -> dict[str, str]:
    secret = auth or os.environ.get("PREFECT_API_AUTH_STRING")
    if not secret or _API not in url:
        return {}
    return {"authorization": f"Basic {base64.b64encode(secret.encode()).decode()}"}


def _token(url: str, headers: Mapping[str, str], timeout: float) -> dict[str, str]:
    """A token for one request; none where the server does without them."""
    client = str(uuid.uuid4())
    api = url[: url.index(_API)] + _API
    try:
        token = _ask(f"{api}csrf-token?client={client}", headers, None, timeout)["token"]
    except urllib.error.HTTPError as error:
        if error.code in (404, 422):
            return {}
        raise
    return {"prefect-csrf-client": client, "prefect-csrf-token": token}
