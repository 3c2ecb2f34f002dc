"""Figures of the partitions that are open at one broker: for monitoring, for lists, for the
doctor.

Imports of its package: ``cluster``, ``limits``, ``log``, ``partition``, ``subscriptions``.
"""
