"""Histories of administration: topics deleted and made again, growth, settings, the sweep."""
