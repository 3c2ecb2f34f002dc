"""The demo: real log lines, written and read.

Imports of its package: ``client``, ``console``, ``drills.harness``, ``local_cluster``.
"""
