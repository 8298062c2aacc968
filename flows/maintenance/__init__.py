"""Flows that keep the platform in order."""
