"""The endpoints that administer: topics, namespaces, partitions, brokers, self-healing, events.

Imports of its package: ``admin.doctor``, ``http``, ``routing``, ``streams``, ``subscriptions``.
"""
