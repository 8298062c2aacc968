"""Prefect flows, grouped by purpose. Importing them needs no GPU stack."""
