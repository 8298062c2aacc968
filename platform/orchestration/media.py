"""Files from outside, as recorded imports: an artifact, and a run that says where it came from."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from mutoscope.platform.artifacts.codecs import Encoded, image, json
from mutoscope.platform.custody.users import register
from mutoscope.platform.errors import InvalidParameter
from mutoscope.platform.ids import sha256
from mutoscope.platform.orchestration.runtime import Runtime, get_runtime
from mutoscope.platform.refs import ArtifactRef


def ingest_image(path: Path, runtime: Runtime | None = None) -> ArtifactRef:
    """Take a picture into the store and record an import run.

    The picture is kept as 8-bit RGB; an alpha channel is laid over white. The same picture gives the same
    artifact, and a file that was taken in before leaves no second run.

    Raises:
        InvalidParameter: no such file, or not a picture.
        StoreUnwritable: the store refuses.
    """
    data, pixels = _read(path)
    return _ingested(path, "image", data, image.encode(pixels, {}), runtime or get_runtime())


def ingest_json(path: Path, runtime: Runtime | None = None) -> ArtifactRef:
    """Take JSON data, such as a set of prompts, into the store and record an import run.

    Raises:
        InvalidParameter: no such file, or no JSON.
        StoreUnwritable: the store refuses.
    """
    try:
        data = path.read_bytes()
        encoded = json.encode(json.decode(data), {})
    except OSError as error:
        raise InvalidParameter("json", str(path), f"give a JSON file ({error.strerror})") from None
    except InvalidParameter as error:
        raise InvalidParameter("json", str(path), f"give a JSON file ({error.remedy})") from None
    return _ingested(path, "json", data, encoded, runtime or get_runtime())


INGEST = {"image": ingest_image, "json": ingest_json}
"""How a file becomes an artifact of a kind."""


def _ingested(path: Path, kind: str, data: bytes, encoded: Encoded, runtime: Runtime) -> ArtifactRef:
    catalog, store = runtime.catalog, runtime.store
    facts = {"file": path.name, "sha256": sha256(data)}
    register(catalog, store)
    with catalog.leases.writing(f"import of {path.name}"):
        ref = store.put(encoded.data, kind=kind, media_type=encoded.media_type, meta=encoded.meta)
        earlier = catalog.runs.generated_by(ref.digest)
        if any(run.kind == "import" and run.parameters == facts for run in earlier):
            catalog.artifacts.record(ref)  # it may have been collected since
        else:
            catalog.runs.record_completed("import", parameters=facts, generated={kind: ref})
    return ref


def _read(path: Path) -> tuple[bytes, np.ndarray[Any, np.dtype[np.uint8]]]:
    """The file's bytes, and its pixels as uint8 (H, W, 3)."""
    try:
        data = path.read_bytes()
        with warnings.catch_warnings():
            # Pillow only warns of a picture large enough to be an attack on memory.
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            return data, image.decode(data)
    except OSError as error:
        raise InvalidParameter("image", str(path), f"give a PNG or JPEG file ({error.strerror})") from None
    except InvalidParameter:
        raise InvalidParameter("image", str(path), "give a PNG or JPEG file (it is not a picture)") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise InvalidParameter("image", str(path), "give a picture of at most 89 megapixels") from None
