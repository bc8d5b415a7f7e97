"""Operators of our own."""
