"""Histories in which bookies are lost for good, and replication workers restore their copies."""
