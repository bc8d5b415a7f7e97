"""One DAG a file; jobs are reached by command line only, so no torch, Ray or MLflow is needed."""
