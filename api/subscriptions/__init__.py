"""The endpoints of subscriptions: pull, acknowledge, seek, over all partitions of a topic.

Imports of its package: ``http``, ``routing``.
"""
