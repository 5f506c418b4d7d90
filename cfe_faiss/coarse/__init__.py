"""Coarse quantizer: clustering, list assignment and list ranking."""
