"""Pruning: attention heads, feed-forward neurons and layers out of a fine-tuned encoder."""
