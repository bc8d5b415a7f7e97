"""What the DAG `monitor` does with a verdict: a retraining, or dates to score again."""
