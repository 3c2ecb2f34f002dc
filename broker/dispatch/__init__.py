"""Dispatch: the assignment of messages to consumers, by subscription type, with leases.

Imports of its package: ``ledger_list``, ``limits``, ``registry``.
"""
