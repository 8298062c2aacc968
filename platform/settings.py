"""Settings: where things live and how patient we are.

Every field can be set by an environment variable, ``MUTOSCOPE_<FIELD>``. The *home* holds the embedded
defaults: the SQLite catalog, the file store, Prefect's own database, logs and the record of the running
stack. Without ``MUTOSCOPE_HOME`` the nearest ``.mutoscope`` folder above the working directory is used (as
git finds its repository), else ``~/.mutoscope``.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict


def find_home(start: Path | None = None) -> Path:
    """The nearest existing `.mutoscope` folder at or above `start` (default: cwd), else `~/.mutoscope`."""
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents):
        if (folder / ".mutoscope").is_dir():
            return folder / ".mutoscope"
    return Path.home() / ".mutoscope"


class Settings(BaseSettings):
    """Resolved configuration of one process."""

    model_config = SettingsConfigDict(env_prefix="MUTOSCOPE_", frozen=True, extra="ignore")

    home: Path = Field(default_factory=find_home, description="Folder of the embedded defaults.")
    store_url: str = Field(
        "", description="Artifact store: file:///folder, s3://bucket/prefix. Default: file://HOME/store."
    )
    store_deadline_seconds: float = Field(
        60.0, gt=0, description="How long requests to an S3 store that does not answer are repeated."
    )
    database_url: str = Field(
        "", description="Catalog, a SQLAlchemy URL. Default: sqlite:///HOME/catalog.db."
    )
    host: str = Field("127.0.0.1", description="Address the local servers listen on.")
    prefect_port: int = Field(
        4200, ge=1, le=65535, description="Port `up` gives the Prefect server if it is free."
    )
    web_port: int = Field(
        4280, ge=1, le=65535, description="Port `up` gives the artifact gateway if it is free."
    )
    web_url: str = Field(
        "", description="Public base URL of the artifact gateway. Default: the running stack's."
    )
    prefect_auth: SecretStr | None = Field(
        None, description="user:password of the Prefect server: what it asks for, and what all of ours send."
    )
    prefect_keep: str = Field(
        "90d",
        description="How long Prefect keeps what has ended. The catalog keeps workflow runs for good.",
    )
    schedules: str = Field(
        "",
        description='What starts by itself, JSON: [{"workflow": "verify_store", "cron": "0 3 * * *"}].',
    )
    notice_url: str = Field(
        "", description="Where failures of scheduled runs are told: an address that takes JSON by POST."
    )
    flows_at_once: int | None = Field(
        None, ge=1, description="Quota of the flow pool, all hosts together. Default: none, or the UI's."
    )
    flows_per_host: int = Field(
        16, ge=1, le=1000, description="Flow processes that one host runs at a time; more wait on the pool."
    )
    pages_url: str = Field(
        "",
        description="Public base URL of the store, for links to run pages where a proxy stands before it. "
        "Default: the store's own address.",
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto", description="Device of a worker; auto prefers CUDA."
    )
    threads: int = Field(
        1, ge=1, le=256, description="Torch threads of a CPU worker; part of the numeric contract."
    )
    batching: Literal["off", "bitwise", "tolerance"] = Field(
        "bitwise",
        description="How steps share forward calls: not at all; where that keeps every bit; or at any size, "
        "with results that repeat up to rounding. Part of the numeric contract.",
    )
    batch_rows: int = Field(16, ge=1, le=256, description="Rows of the largest shared forward call.")
    concurrency: int | None = Field(
        None,
        ge=1,
        le=256,
        description="Runs one worker interleaves at a time. Default: as many as `batch_rows`, so that a "
        "queue fills a shared call. Whatever it is, no more are claimed while one waits for memory.",
    )
    lease_seconds: float = Field(15.0, gt=0, description="A worker silent for this long loses its runs.")
    heartbeat_seconds: float = Field(3.0, gt=0, description="How often a worker renews its leases.")
    poll_seconds: float = Field(
        0.01, gt=0, description="How often an idle worker or waiter looks at the catalog."
    )
    memory_bytes: int | None = Field(
        None, ge=2**20, description="Device memory a worker may use, bytes. Default: all there is."
    )
    trace: Path | None = Field(
        None, description="Folder in which each worker writes what ran when, for ui.perfetto.dev."
    )
    run_pages: bool = Field(True, description="Write browse pages into the store when a workflow run ends.")
    max_attempts: int = Field(3, ge=1, description="Times a run is taken before it is given up.")
    route_patience_seconds: float = Field(
        2.0,
        ge=0,
        description="How long a run may wait for a worker that has its weights in memory, and how far runs "
        "of equal weights may go before older ones.",
    )
    workflow_attempts: int = Field(
        5, ge=1, description="Times a workflow run of the flow pool is started when its process dies."
    )
    run_time_limit_seconds: float | None = Field(
        None, gt=0, description="How long one attempt of a run may take, unless it says so itself."
    )
    catalog_patience_seconds: float = Field(
        120.0, ge=0, description="How long a workflow waits for a catalog that does not answer."
    )
    worker_patience_seconds: float = Field(
        60.0, ge=0, description="How long a workflow waits for the worker of a card that is starting again."
    )

    @model_validator(mode="before")
    @classmethod
    def _derive(cls, values: dict[str, object]) -> dict[str, object]:
        home = Path(str(values.get("home") or find_home())).expanduser().resolve()
        values["home"] = home
        values["store_url"] = values.get("store_url") or f"file://{home / 'store'}"
        values["database_url"] = values.get("database_url") or f"sqlite:///{home / 'catalog.db'}"
        return values

    @model_validator(mode="after")
    def _lease_outlives_heartbeat(self) -> Settings:
        if self.lease_seconds < 2 * self.heartbeat_seconds:
            raise ValueError(
                f"lease_seconds={self.lease_seconds} is too short for heartbeat_seconds="
                f"{self.heartbeat_seconds}: use at least twice the heartbeat"
            )
        return self


@lru_cache(maxsize=1)
def get_settings() -> Settings:
    """The process's settings, read from the environment once."""
    return Settings()
