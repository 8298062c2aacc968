"""Cosmos3: one transformer that reads and draws, driven by two loops."""
