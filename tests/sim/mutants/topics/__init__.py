"""Mutants of brokers, of subscriptions and of the way of requests to them."""
