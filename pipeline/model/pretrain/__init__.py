"""Continued pretraining of an encoder on a task's own texts, without labels."""
