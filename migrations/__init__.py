"""Alembic migrations of the catalog.

Applied by `Catalog.migrate`. Revisions are numbered in order (``0001_initial``) and spell the tables out: a
revision describes the past, so it never imports the package, whose tables describe the present.
`tests/catalog` proves that the upgraded schema equals the tables.
"""
