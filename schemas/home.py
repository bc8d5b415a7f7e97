"""Where things lie: one folder, the home, holds tasks, data, scores, models and metadata."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

HOME_VARIABLE = "NIGHTMILL_HOME"
DEFAULT_HOME = "nightmill-home"


@dataclass(frozen=True)
class Home:
    """Paths inside the home folder; nothing is created by naming it."""

    root: Path

    @classmethod
    def find(cls, explicit: Path | None = None) -> Home:
        """The home by `--home`, else by `NIGHTMILL_HOME`, else `./nightmill-home`."""
        return cls((explicit or Path(os.environ.get(HOME_VARIABLE, DEFAULT_HOME))).resolve())

    def resolve(self, location: str) -> Path:
        """A path from a task file: absolute as it is, relative from the home."""
        return (self.root / location).absolute()

    @property
    def tasks(self) -> Path:
        """Task files of the user's own."""
        return self.root / "tasks"

    def scores(self, task: str) -> Path:
        """Published partitions of a task: `date=D/manifest.json` and `date=D/run=ID/`."""
        return self.root / "scores" / task

    def staging(self, task: str) -> Path:
        """Unpublished shards; outside of `scores`, so that no reader's glob finds them."""
        return self.root / "staging" / task

    def quarantine(self, task: str) -> Path:
        """Rejected rows of published partitions: `date=D/run=ID/`."""
        return self.root / "quarantine" / task

    def superseded(self, task: str) -> Path:
        """Runs that a later one replaced; kept for a while, out of the way of readers' globs."""
        return self.root / "superseded" / task

    def quality(self, task: str) -> Path:
        """Great Expectations pages by date."""
        return self.root / "quality" / task

    def monitor(self, task: str) -> Path:
        """What was seen of published nights: `date=D.json`."""
        return self.root / "monitor" / task

    def models(self, task: str) -> Path:
        """Working folders of training runs."""
        return self.root / "models" / task

    def cache(self, task: str) -> Path:
        """Answers kept from night to night; safe to delete."""
        return self.root / "cache" / task

    def cascades(self, task: str) -> Path:
        """What was measured of a small model before a large one, by both digests."""
        return self.root / "cascades" / task

    @property
    def downloads(self) -> Path:
        """Bundles fetched from the registry, by digest."""
        return self.root / "downloads"

    @property
    def plans(self) -> Path:
        """What hosts have measured of models' speed; safe to delete."""
        return self.root / "plans"

    @property
    def verified(self) -> Path:
        """What hosts have measured of bundles made elsewhere: `BUNDLE/HOST/verified.json`."""
        return self.root / "verified"

    @property
    def tracking_uri(self) -> str:
        """MLflow's address: `MLFLOW_TRACKING_URI`, else SQLite in the home."""
        return os.environ.get("MLFLOW_TRACKING_URI", f"sqlite:///{self.root / 'mlflow.db'}")

    @property
    def artifacts(self) -> Path:
        """MLflow's artefacts where no server keeps them."""
        return self.root / "mlartifacts"
