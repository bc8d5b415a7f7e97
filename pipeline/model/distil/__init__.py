"""Distillation: a student that learns from what teachers say, beside or in place of labels."""
