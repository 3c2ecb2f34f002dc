"""The endpoints that append: single messages, batches, producers and their access.

Imports of its package: ``http``, ``routing``, ``subscriptions``.
"""
