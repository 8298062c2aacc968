"""The artifact gateway: bytes and pages over HTTP."""
