"""The commands of self-healing: checks, ledgers without all their copies, bookies that leave.

Imports of its package: ``admin``, ``client``, ``console``, ``local_cluster``, ``processes``.
"""
