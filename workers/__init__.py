"""The GPU worker: claims queued runs, keeps cards resident, records what it made."""
