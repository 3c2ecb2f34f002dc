"""Measurements of ledgers, bookies, HTTP and reads; the demo.

Imports of its package: ``bench.harness``, ``client``, ``console``, ``drills.harness``,
``local_cluster``, ``processes``.
"""
