"""What an archive holds: names, the manifest, rows as lines of JSON. `docs/archive.md` says it for people.

    manifest.json       first, so that a reader knows at once what it has
    README.txt
    rows/<table>.jsonl  one row a line
    objects/3f/3fa9…    the bytes, named by their SHA-256
    outputs/<name>      links to the objects that were asked for, with names a person would give them
    SHA256SUMS          last: an archive without it is incomplete

Equal content gives equal bytes: members and rows are sorted, fields stand in the order of their record, and
nothing says when or where it was written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from typing import Any, BinaryIO, Literal, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from mutoscope.platform.catalog.bulk import Member
from mutoscope.platform.catalog.calls import Call
from mutoscope.platform.catalog.graph import Edge
from mutoscope.platform.catalog.incidents import Incident
from mutoscope.platform.catalog.records import RunRecord
from mutoscope.platform.catalog.transfer import Alias
from mutoscope.platform.catalog.weights import WeightVersion
from mutoscope.platform.catalog.workflows import WorkflowRecord
from mutoscope.platform.errors import ArchiveInvalid, InvalidInput, InvalidParameter
from mutoscope.platform.refs import ArtifactRef

FORMAT = "mutoscope.archive/1"
MANIFEST, README, SUMS = "manifest.json", "README.txt", "SHA256SUMS"

README_TEXT = """\
A Mutoscope archive: artifacts, and everything they came from.

manifest.json        what this archive is, what was asked for (roots), and how much it holds
rows/*.jsonl         the records, one JSON object a line: artifacts, the runs that used and made them
                     (edges.jsonl), the workflow runs that asked for those, the weight versions behind them
objects/3f/3fa9...   the bytes. A file's name is the SHA-256 of what it holds; rows/artifacts.jsonl says
                     what each one is (kind, media_type)
outputs/             what was asked for, again, under names with the usual endings
SHA256SUMS           check all of it with `sha256sum --check SHA256SUMS`

Unpack it with `tar xf`, or bring it into another home with `mutoscope import FILE`.
"""

OBJECT_NAME = re.compile(r"objects/([0-9a-f]{2})/(\1[0-9a-f]{62})")
_ID = re.compile(r"0[0-9a-f]{7}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
"""UUIDv7 of a year below 2500: ids are taken apart for their time."""

OUTPUT_NAME = re.compile(r"outputs/[A-Za-z0-9][A-Za-z0-9._-]{0,127}")

ROW_BYTES = 16 << 20
"""Longest line of a table: far above any row of ours, and a bound on what a reader holds."""

BytesState = Literal["archived", "left_out", "collected"]

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class ArtifactLine:
    """A line of ``rows/artifacts.jsonl``. `bytes` says where they are: ``archived`` (in ``objects/``),
    ``left_out`` of this archive, or ``collected`` before it was written."""

    digest: str
    kind: str
    media_type: str
    size: int
    meta: Mapping[str, Any]
    created_at: float
    bytes: BytesState

    @property
    def ref(self) -> ArtifactRef:
        return ArtifactRef(self.digest, self.kind, self.media_type, self.size, self.meta)


TABLES: Mapping[str, type] = {
    "artifacts": ArtifactLine,
    "members": Member,
    "workflow_runs": WorkflowRecord,
    "runs": RunRecord,
    "edges": Edge,
    "calls": Call,
    "incidents": Incident,
    "weight_versions": WeightVersion,
    "weight_aliases": Alias,
}


@dataclass(frozen=True, slots=True)
class Root:
    """What somebody asked for: ``artifact``, ``run`` or ``workflow_run``, its name then, digest or id."""

    kind: Literal["artifact", "run", "workflow_run"]
    name: str
    key: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """The archive in numbers. `rows` counts lines by table; sizes are bytes."""

    roots: tuple[Root, ...]
    rows: Mapping[str, int]
    objects: int
    object_bytes: int
    left_out: int
    collected: int
    format: str = FORMAT
    written_by: str = field(default="mutoscope")

    def to_bytes(self) -> bytes:
        return (json.dumps(asdict(self), indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()

    @classmethod
    def parse(cls, data: bytes) -> Manifest:
        """Raises ArchiveInvalid: not a manifest, or of a format that this version does not read."""
        try:
            form = json.loads(data)["format"]
        except (ValueError, KeyError, TypeError):
            raise ArchiveInvalid(f"its {MANIFEST} is not one") from None
        if form != FORMAT:
            raise ArchiveInvalid(_other_format(str(form)))
        return _read(cls, data, MANIFEST)


_ADAPTERS: Mapping[type, TypeAdapter[Any]] = {
    record: TypeAdapter(record) for record in (*TABLES.values(), Manifest)
}


_FIELDS = {record: tuple(item.name for item in fields(record)) for record in _ADAPTERS}


_LATER = frozenset({"warnings"})
"""Fields that came after the format. Left out where they are empty, so that older readers take such rows."""


def row_line(row: Any) -> bytes:
    """A record as one line of its table. Raises InvalidInput for a number that JSON has no word for."""
    values = {name: getattr(row, name) for name in _FIELDS[type(row)]}
    values = {name: value for name, value in values.items() if name not in _LATER or value is not None}
    try:
        return _ENCODER.encode(values).encode() + b"\n"
    except ValueError as error:
        raise InvalidInput(
            f"{type(row).__name__} {values.get('id', '')} cannot be exported ({error}): JSON has none such"
        ) from None


def read_rows(table: str, source: BinaryIO) -> Iterator[Any]:
    """The records of a table. Raises ArchiveInvalid for a line that is none."""
    name, record = f"rows/{table}.jsonl", TABLES[table]
    number = 0
    while line := source.readline(ROW_BYTES + 1):
        number += 1
        if len(line) > ROW_BYTES:
            raise ArchiveInvalid(f"line {number} of {name} is longer than {ROW_BYTES >> 20} MiB")
        yield _checked(_read(record, line, f"line {number} of {name}"), f"line {number} of {name}")


def _checked(row: Row, where: str) -> Row:
    if isinstance(row, ArtifactLine):
        try:
            ref = row.ref
        except InvalidParameter as error:
            raise ArchiveInvalid(f"{where}: {error}") from None
        if len(ref.media_type) > 127:
            raise ArchiveInvalid(f"{where}: media_type is longer than 127 characters")
    key = getattr(row, "id", None)
    if isinstance(key, str) and not _ID.fullmatch(key):
        raise ArchiveInvalid(f"{where}: id={key[:40]!r} is no UUIDv7")
    return row


def _other(value: Any) -> Any:
    """What JSON has no word for: a record within a record, a mapping that is no dict."""
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} in a row")


def _read(record: type[Row], data: bytes, where: str) -> Row:
    try:
        values = _DECODER.decode(data.decode())
        if not isinstance(values, dict):
            raise ArchiveInvalid(f"{where} is no JSON object")
        unknown = values.keys() - set(_FIELDS[record])
        if unknown:
            raise ArchiveInvalid(f"{where} has a field {min(unknown)!r}, which this Mutoscope does not know")
        return cast("Row", _ADAPTERS[record].validate_python(values))
    except ValidationError as error:
        wrong = error.errors(include_url=False)[0]
        path = ".".join(map(str, wrong["loc"])) or "it"
        raise ArchiveInvalid(f"{where}: {path} is wrong ({wrong['msg']})") from None
    except (ValueError, RecursionError) as error:
        raise ArchiveInvalid(f"{where} is not JSON ({error})") from None


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")


_DECODER = json.JSONDecoder(parse_constant=_no_number)
_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=_other)


def _other_format(form: str) -> str:
    family, _, number = FORMAT.rpartition("/")
    given, _, version = form.rpartition("/")
    if given != family or not version.isdecimal():
        return f"its format is {form!r}, not {FORMAT}"
    if int(version) > int(number):
        return f"its format is {form}, newer than this Mutoscope reads ({FORMAT}): upgrade Mutoscope here"
    return (
        f"its format is {form}, which this Mutoscope no longer reads ({FORMAT}): import it with an older one"
    )
