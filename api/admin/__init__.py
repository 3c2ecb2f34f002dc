"""The endpoints that administer: topics, namespaces, partitions, brokers, self-healing.

Imports of its package: ``admin.doctor``, ``http``, ``routing``, ``streams``, ``subscriptions``.
"""
