"""Store URLs as they may be shown: without anything that could be a secret."""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit


def scrubbed(url: str) -> str:
    """`url` without user, password, query and fragment: ``sftp://***@host/path``. Every message and log
    shows a URL through this."""
    parts = urlsplit(url)
    _, at, host = parts.netloc.rpartition("@")
    query = "***" if parts.query else ""
    shown = urlunsplit((parts.scheme, f"***@{host}" if at else parts.netloc, parts.path, query, ""))
    # urlunsplit drops empty slashes: file:///x and memory:// must stay what they were.
    return shown if at or query or parts.fragment else url


def holds_secret(url: str) -> bool:
    """Whether the URL carries a user, a password, or anything behind its path that could be a key."""
    parts = urlsplit(url)
    return "@" in parts.netloc or bool(parts.query or parts.fragment)
