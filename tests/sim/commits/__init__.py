"""Histories with committers, whose sealed ledgers join the log."""
