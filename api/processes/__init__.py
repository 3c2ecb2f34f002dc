"""The processes of the service: standalone, bookie and broker.

Imports of its package: ``http``, ``routing``, ``server``.
"""
