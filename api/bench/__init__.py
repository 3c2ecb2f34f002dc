"""Measurements of ledgers, bookies, HTTP and reads.

Imports of its package: ``bench.harness``, ``client``, ``console``, ``local_cluster``,
``processes``.
"""
