"""A cluster on one machine, for development, with a real ZooKeeper.

Imports of its package: ``client``, ``http``, ``processes``.
"""
