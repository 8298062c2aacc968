"""Rows: runs, artifacts, edges, weight versions and workers, and the queries over them."""
