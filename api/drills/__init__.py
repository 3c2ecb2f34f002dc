"""Failover drills: real clusters are broken, and every message is accounted for.

Imports of its package: ``local_cluster``.
"""
