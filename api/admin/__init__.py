"""The endpoints that administer: topics, namespaces, partitions and brokers.

Imports of its package: ``http``, ``routing``, ``subscriptions``.
"""
