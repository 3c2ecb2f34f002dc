"""Partitions and streams for the tests of the Spark connector."""
