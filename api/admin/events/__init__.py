"""The timeline of events: how it is found and shown, and appended to its topic.

Imports of its package: ``http``, ``routing``, ``subscriptions``.
"""
