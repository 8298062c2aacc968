"""Where things lie below the root of a store, the same on every medium.

    README.txt                   says what this folder is
    store.json                   the store's id, by which a catalog knows it again
    objects/3f/3fa9c1…           one object per artifact, named by the SHA-256 of its bytes; never changes
    trash/3f/3fa9c1…             collected objects, until their grace period has passed
    quarantine/3fa9c1….<id>      objects whose bytes were not what their name says, kept for inspection
    runs/…                       browse pages: documents that may be written again at any time
    users/<id>.json              the catalogs that use the store; a collector must have been shown them all
    tmp/…                        writes under way

Whatever lies in ``objects/``, ``trash/`` or ``quarantine/`` under another kind of name is *foreign*: it is
listed for people and otherwise left alone.
"""

from __future__ import annotations

import re

from mutoscope.platform.errors import InvalidParameter
from mutoscope.platform.ids import new_id

OBJECTS, TRASH, QUARANTINE, RUNS, TMP = "objects", "trash", "quarantine", "runs", "tmp"
USERS = "users"
README_NAME = "README.txt"
MARKER_NAME = "store.json"
README = """\
A Mutoscope artifact store.

objects/ab/ab12...  one file per artifact, named by the SHA-256 of its bytes: `sha256sum FILE` prints
                    its name. Files never change; what each one is (image, video, weights, ...) stands
                    in the catalog, and `file FILE` tells the format.
trash/              artifacts that were collected. They are read from here until their grace period has
                    passed; `mutoscope gc` removes them after it.
quarantine/         files whose bytes were not what their name says, kept for inspection. Nothing reads
                    them; they may be deleted.
runs/               pages to look at in a browser, written from the catalog and the objects. They can be
                    deleted and written again.
store.json          the store's id: the catalog refuses a store with another one. Copy it along with the rest.
users/              one small file per catalog that uses this store, so that none collects what another needs.
tmp/                writes under way. Leftovers of a killed writer may be deleted while nothing is writing.
"""

_SHARDED = re.compile(r"([0-9a-f]{2})/(\1[0-9a-f]{62})")
_QUARANTINED = re.compile(r"([0-9a-f]{64})\.[0-9a-f-]{36}")
_PAGE = re.compile(r"(runs|users)(/[^/\\\x00-\x1f\x7f]+)+")


def object_name(digest: str) -> str:
    """Two digits spread the objects over 256 folders. Raises InvalidParameter for a prefix."""
    return f"{OBJECTS}/{_key(digest)}"


def trash_name(digest: str) -> str:
    return f"{TRASH}/{_key(digest)}"


def quarantine_name(digest: str) -> str:
    """A fresh name: each damaged object is kept."""
    return f"{QUARANTINE}/{digest}.{new_id()}"


def page_name(path: str) -> str:
    """`path`, if it may hold a document. Raises InvalidParameter for one outside ``runs/`` and ``users/``."""
    if not _PAGE.fullmatch(path) or not {".", ".."}.isdisjoint(path.split("/")):
        raise InvalidParameter("path", path, "use a relative path below runs/, such as runs/a/index.html")
    return path


def digest_of(name: str) -> str | None:
    """The digest that a name in ``objects/``, ``trash/`` or ``quarantine/`` stands for; None if foreign."""
    area, _, rest = name.partition("/")
    if area == QUARANTINE:
        match = _QUARANTINED.fullmatch(rest)
        return match[1] if match else None
    match = _SHARDED.fullmatch(rest)
    return match[2] if match else None


def _key(digest: str) -> str:
    if len(digest) != 64:
        raise InvalidParameter("digest", digest, "use all 64 hex digits; the catalog resolves prefixes")
    return f"{digest[:2]}/{digest}"
