"""Searches: single and batched, exact and in some lists."""
