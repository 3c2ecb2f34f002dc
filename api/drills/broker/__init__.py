"""Drills of brokers: killed, paused, drained, partitioned, restarted in turn.

Imports of its package: ``client``, ``drills.harness``, ``local_cluster``.
"""
