"""The endpoints that read: messages, offsets, and the compacted view.

Imports of its package: ``http``, ``routing``, ``subscriptions``.
"""
