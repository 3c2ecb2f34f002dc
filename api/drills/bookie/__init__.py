"""Drills of bookies: killed, paused, full, lost, and with a lost disk.

Imports of its package: ``client``, ``drills.harness``, ``local_cluster``, ``streams``.
"""
