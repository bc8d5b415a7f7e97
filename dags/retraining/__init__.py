"""What the retrain DAG says to the jobs and shows to the person who approves."""
