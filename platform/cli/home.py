"""The opened home: settings, catalog, store and running stack, each opened on first use."""

from __future__ import annotations

from contextlib import ExitStack
from functools import cached_property
from typing import TYPE_CHECKING

from mutoscope.platform.errors import InvalidParameter, SchemaMismatch

if TYPE_CHECKING:
    from pathlib import Path

    from mutoscope.platform.artifacts.store import ArtifactStore
    from mutoscope.platform.catalog.catalog import Catalog
    from mutoscope.platform.catalog.workflows import WorkflowRecord
    from mutoscope.platform.orchestration.runtime import Runtime
    from mutoscope.platform.orchestration.stack import StackRecord
    from mutoscope.platform.settings import Settings

handles = ExitStack()
"""What commands have opened; `main` closes it at their end, so that a server need not find out by itself that
nobody is there."""


class Home:
    """Lazy handles on one home. Commands make one and ask it for what they need."""

    @cached_property
    def settings(self) -> Settings:
        """Raises InvalidParameter when an environment variable cannot be used."""
        from pydantic import ValidationError

        from mutoscope.platform.engine.card import invalid_parameter
        from mutoscope.platform.settings import get_settings

        try:
            return get_settings()
        except ValidationError as error:
            bad = invalid_parameter(error, {})
            raise InvalidParameter(f"MUTOSCOPE_{bad.field.upper()}", bad.value, bad.remedy) from None

    @property
    def path(self) -> Path:
        return self.settings.home

    @property
    def has_catalog(self) -> bool:
        """False on a home that has never been up; a catalog that lies elsewhere is taken to exist."""
        embedded = self.settings.database_url == f"sqlite:///{self.path / 'catalog.db'}"
        return not embedded or (self.path / "catalog.db").is_file()

    @cached_property
    def catalog(self) -> Catalog:
        """The catalog. Raises SchemaMismatch where there is none yet."""
        from mutoscope.platform.catalog import Catalog

        if not self.has_catalog:
            raise SchemaMismatch(f"{self.path} holds no catalog: create it with `mutoscope up`")
        opened = Catalog.open(self.settings.database_url)
        handles.callback(opened.close)
        return opened

    @cached_property
    def store(self) -> ArtifactStore:
        """The store. Raises OtherStore when the catalog's bytes are kept in another one."""
        from mutoscope.platform.artifacts import ArtifactStore
        from mutoscope.platform.custody.tie import tie

        opened = ArtifactStore.of(self.settings)
        if self.has_catalog:
            tie(self.catalog, opened)
        return opened

    @cached_property
    def runtime(self) -> Runtime:
        """The same handles, as orchestration takes them."""
        from mutoscope.platform.orchestration.runtime import Runtime

        return Runtime(self.settings, self.catalog, self.store)

    @cached_property
    def stack(self) -> StackRecord | None:
        """The running stack, which this process joins: its addresses become this process's environment."""
        from mutoscope.platform.orchestration import stack
        from mutoscope.platform.settings import get_settings

        record = stack.join(self.path)
        if record is not None:
            get_settings.cache_clear()
            self.__dict__["settings"] = get_settings()
        return record

    def workflow_id(self, name: str) -> str:
        """The id, under which rows know a workflow, of one that goes by that name or id.

        Raises:
            UnknownWorkflow: none is declared under that name, and none has run.
        """
        from mutoscope.platform.orchestration.registry import discover

        if self.catalog.workflows.list(workflow=name, limit=1):
            return name
        return discover().get(name).id

    def run_page_url(self, run: WorkflowRecord) -> str:
        """Address of a workflow run's browse page in the store."""
        from mutoscope.platform.custody.pages_path import page_of

        return self.store.web_url(page_of(run))

    def artifact_url(self, digest: str) -> str | None:
        """Address of an artifact's page at the gateway, or None when no gateway runs."""
        return self.runtime.page_url(digest)
