"""Dispatch: which consumer gets which message, by subscription type, with leases.

Imports of its package: ``ledger_list``, ``limits``, ``registry``.
"""
