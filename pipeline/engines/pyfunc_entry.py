"""What MLflow runs to load a registered bundle ("models from code")."""

from mlflow.models import set_model

from pipeline.engines.pyfunc import PyfuncModel

set_model(PyfuncModel())
