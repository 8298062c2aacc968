"""Flows that make media."""
