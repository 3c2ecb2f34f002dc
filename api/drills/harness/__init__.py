"""The parts of every drill: a cluster, a load, and the account of messages.

Imports of its package: ``client``, ``local_cluster``, ``routing``.
"""
