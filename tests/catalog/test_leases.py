"""Leases: kept while the holder lives, gone when it does not, by the database's clock."""

from __future__ import annotations

import pytest
from sqlalchemy import update

from mutoscope.platform.catalog import Catalog
from mutoscope.platform.catalog.tables import leases
from mutoscope.platform.errors import InvalidParameter, LeaseLost
from tests.support.deadline import until
from tests.support.records import an_artifact


def expire(catalog: Catalog) -> None:
    """As if every holder had stood still for too long."""
    with catalog._database.write() as connection:
        connection.execute(update(leases).values(expires_at=leases.c.expires_at - 3600.0))


def test_a_lease_is_there_while_its_block_runs(catalog: Catalog) -> None:
    digests = [an_artifact(name).digest for name in "ab"]
    with catalog.leases.reading([*digests, digests[0]], "a reader"), catalog.leases.writing("a writer"):
        held = catalog.leases.list()
        assert sorted((lease.kind, lease.holder, lease.digest) for lease in held) == sorted(
            [
                ("reader", "a reader", digests[0]),
                ("reader", "a reader", digests[1]),
                ("writer", "a writer", None),
            ],
            key=str,
        )
        assert all(lease.expires_at > lease.started_at + 59.0 for lease in held)
    assert catalog.leases.list() == []
    with catalog.leases.reading([], "nobody"):
        assert catalog.leases.list() == []


def test_a_holder_may_have_a_long_name(catalog: Catalog) -> None:
    with catalog.leases.writing(f"import of {'x' * 255} for flux-t2i"):
        (lease,) = catalog.leases.list()
        assert lease.holder == f"import of {'x' * 245}"


def test_a_lease_is_renewed_for_as_long_as_the_block_takes(catalog: Catalog) -> None:
    with catalog.leases.writing("a slow writer", seconds=3.0):
        (first,) = catalog.leases.list()
        until(lambda: catalog.leases.list()[0].expires_at > first.expires_at, "a renewal")


def test_a_dead_holders_lease_runs_out(catalog: Catalog) -> None:
    catalog.leases.take("writer", [None], "a writer that died", seconds=0.2)
    until(lambda: catalog.leases.list() == [], "the lease to run out")
    assert catalog.tombstones.writer_age() is None


def test_a_holder_that_stood_still_is_told(catalog: Catalog) -> None:
    told = "1 of 1 leases ran out before they were renewed: repeat what they were for"
    with pytest.raises(LeaseLost, match=told), catalog.leases.writing("a sleeper"):
        expire(catalog)
    assert catalog.leases.list() == []


def test_an_error_within_the_block_is_not_hidden_by_a_lost_lease(catalog: Catalog) -> None:
    def fail() -> None:
        expire(catalog)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), catalog.leases.writing("a writer"):
        fail()


def test_the_longest_active_writer_is_known(catalog: Catalog) -> None:
    assert catalog.tombstones.writer_age() is None
    with catalog.leases.writing("a writer"):
        with catalog._database.write() as connection:
            connection.execute(update(leases).values(started_at=leases.c.started_at - 100.0))
        with catalog.leases.writing("another"):
            age = catalog.tombstones.writer_age()
            assert age is not None
            assert age >= 100.0


def test_a_lease_lasts_for_some_time(catalog: Catalog) -> None:
    with pytest.raises(InvalidParameter, match="use a positive number of seconds"):
        catalog.leases.take("writer", [None], "a writer", seconds=0.0)
