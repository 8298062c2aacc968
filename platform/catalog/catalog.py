"""The catalog: one database, and a noun for each thing it knows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mutoscope.platform.catalog import naming, schema
from mutoscope.platform.catalog.approvals import Approvals
from mutoscope.platform.catalog.artifacts import Artifacts
from mutoscope.platform.catalog.audit import Audit
from mutoscope.platform.catalog.bulk import Bulk
from mutoscope.platform.catalog.calendar import Calendar
from mutoscope.platform.catalog.calls import Calls
from mutoscope.platform.catalog.collections import Collections
from mutoscope.platform.catalog.contradictions import Contradictions
from mutoscope.platform.catalog.database import Database
from mutoscope.platform.catalog.ends import Ends
from mutoscope.platform.catalog.identity import BoundStore, bind_store, bound_store, identity_of
from mutoscope.platform.catalog.incidents import Incidents
from mutoscope.platform.catalog.leases import Leases
from mutoscope.platform.catalog.lineage import Lineage
from mutoscope.platform.catalog.merge import Merging
from mutoscope.platform.catalog.naming import Named
from mutoscope.platform.catalog.pins import Pins
from mutoscope.platform.catalog.pool import Pool
from mutoscope.platform.catalog.queues import Queues
from mutoscope.platform.catalog.reachability import Reachability
from mutoscope.platform.catalog.reasons import Reasons
from mutoscope.platform.catalog.retention import Retention
from mutoscope.platform.catalog.runs import Runs
from mutoscope.platform.catalog.tombstones import Tombstones
from mutoscope.platform.catalog.trainings import Trainings
from mutoscope.platform.catalog.watch import Watch
from mutoscope.platform.catalog.weights import Weights, WeightVersion
from mutoscope.platform.catalog.why import Why
from mutoscope.platform.catalog.workers import Workers
from mutoscope.platform.catalog.workflows import Workflows
from mutoscope.platform.refs import ArtifactRef


class Catalog:
    """Rows about artifacts and runs. Synchronous and thread-safe; each call is one transaction unless it says
    so."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.artifacts = Artifacts(database)
        self.runs = Runs(database)
        self.ends = Ends(database)
        self.weights = Weights(database)
        self.trainings = Trainings(database)
        self.workers = Workers(database)
        self.queues = Queues(database)
        self.pool = Pool(database)
        self.workflows = Workflows(database)
        self.approvals = Approvals(database)
        self.lineage = Lineage(database)
        self.incidents = Incidents(database)
        self.calls = Calls(database)
        self.transfer = Merging(database)
        self.calendar = Calendar(database)
        self.why = Why(database)
        self.audit = Audit(database)
        self.contradictions = Contradictions(database)
        self.leases = Leases(database)
        self.pins = Pins(database)
        self.retention = Retention(database)
        self.reachability = Reachability(database)
        self.reasons = Reasons(database)
        self.tombstones = Tombstones(database)
        self.collections = Collections(database)

    @classmethod
    def open(cls, database_url: str) -> Catalog:
        """Connect to a catalog of the code's own schema revision.

        Args:
            database_url: a SQLAlchemy URL, ``sqlite:////path/to/catalog.db`` or ``postgresql+psycopg://…``.

        Raises:
            SchemaMismatch: no schema, an older or a newer one; the message says what to do.
        """
        database = Database(database_url)
        try:
            schema.check(database)
        except BaseException:
            database.close()
            raise
        return cls(database)

    @staticmethod
    def migrate(database_url: str, progress: schema.Progress | None = None) -> None:
        """Create or upgrade the database to the code's revision. Safe from several processes at once.

        Args:
            progress: told how far a long upgrade is: what it does, and rows done of rows in all.
        """
        database = Database(database_url)
        try:
            schema.migrate(database, progress)
        finally:
            database.close()

    @staticmethod
    def check_upgradable(database_url: str) -> None:
        """Raise SchemaMismatch for a catalog of a newer revision, CatalogError for one that does not answer.
        One that `migrate` would create or upgrade is fine."""
        database = Database(database_url)
        try:
            schema.check_upgradable(database)
        finally:
            database.close()

    @staticmethod
    def schema_status(database_url: str) -> schema.SchemaStatus:
        """Which revision the database has, whatever it is. Raises CatalogError when it does not answer."""
        database = Database(database_url)
        try:
            return schema.SchemaStatus(database.shown_url, schema.current(database))
        finally:
            database.close()

    def faults(self) -> list[str]:
        """Where the tables differ from what the code expects, and what is damaged in a SQLite file, in words;
        empty for a sound catalog. Reads the whole of the file."""
        facts = self.contradictions
        damage = [*facts.damaged_pages(), *facts.broken_references()]
        return [*schema.differences(self._database), *(f"{one.subject}: {one.detail}" for one in damage)]

    @contextmanager
    def bulk(self) -> Iterator[Bulk]:
        """Record many rows in one transaction, all or nothing; see `Bulk`.

        A writer keeps others waiting on SQLite: a history of millions of rows goes in several blocks.
        """
        with self._database.write(at_leisure=True) as connection:
            yield Bulk(self._database, connection)

    def find(self, name: str) -> Named:
        """What a name that a person typed stands for; see `naming.find`."""
        return naming.find(self, name)

    def find_artifact(self, name: str) -> ArtifactRef | WeightVersion:
        """The same where bytes are meant; see `naming.find_artifact`."""
        return naming.find_artifact(self, name)

    def watch(self) -> Watch:
        """A cheap way to wait for news; see `Watch`. Close it when done."""
        return Watch(self._database)

    def identity(self) -> str:
        """A name that no other catalog has, a copy of this one included."""
        return identity_of(self._database)

    def store(self) -> BoundStore | None:
        """The one store that holds this catalog's bytes; None before it has met one. See `custody.tie`."""
        return bound_store(self._database)

    def bind_store(self, store: BoundStore) -> BoundStore:
        """Make `store` the catalog's unless it has one; returns the one it has."""
        return bind_store(self._database, store)

    @property
    def url(self) -> str:
        """The database's URL, without its password."""
        return self._database.shown_url

    def close(self) -> None:
        """Close idle connections; the catalog opens new ones if it is used again."""
        self.ends.close()
        self._database.close()
