"""The Prefect seam: workflows, engine runs as tasks, deployments."""
