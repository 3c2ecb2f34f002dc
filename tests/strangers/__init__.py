"""Requests of strangers: anything that the document allows, and anything else."""
