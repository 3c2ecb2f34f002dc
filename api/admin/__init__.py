"""The endpoints that administer: topics, namespaces, partitions, brokers, self-healing.

Imports of its package: ``http``, ``routing``, ``subscriptions``.
"""
