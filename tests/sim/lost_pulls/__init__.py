"""Consumers that give back what lost pulls have leased, and the order that they see."""
