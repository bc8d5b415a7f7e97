"""The parts of a nightly DAG: when it runs, what it waits for, what it tells the world."""
