"""Readers that have the ranges of a log from its owner, and its entries from bookies: their roles,
the staged histories that they have for themselves, and the judgement of what owners answer them."""
