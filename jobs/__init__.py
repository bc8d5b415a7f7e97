"""Runnables: config in, artefact and manifest out, exit code. Ray lives here and nowhere else."""
