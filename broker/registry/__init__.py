"""The registry in the metadata store: namespaces, topics, subscriptions, and their deletion.

Imports of its package: ``ledger_list``, ``limits``, ``names``, ``policy``.
"""
