"""Histories in which the metadata store goes back to a backup."""
