"""Measurements of ledgers, bookies, HTTP and reads; the demo.

Imports of its package: ``client``, ``console``, ``drills.harness``, ``http``, ``local_cluster``,
``processes``.
"""
