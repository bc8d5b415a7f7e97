"""ONNX Runtime: one session for one bundle, one thread, one window a call."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from pipeline.batch import window_inputs
from schemas.errors import ArtifactError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pipeline.window import Window

CPU_PROVIDER = "CPUExecutionProvider"


class OnnxEncoder:
    """Logits from an ONNX file, the same bytes for a window whoever stands beside it.

    Each window is a call of its own, unpadded: dynamic INT8 takes its activation scale from the
    whole batch, so that in a batch a row's scores would depend on its neighbours.

    Raises:
        ArtifactError: the file is missing or broken, or another provider than asked for answers.
    """

    def __init__(self, path: Path, *, threads: int = 1, provider: str = CPU_PROVIDER) -> None:
        if provider not in ort.get_available_providers():
            raise ArtifactError(
                f"provider {provider} is not available, this wheel has "
                f"{', '.join(ort.get_available_providers())}; install the extra for this host"
            )
        try:
            self._session = ort.InferenceSession(
                str(path), session_options(threads), providers=[provider]
            )
        except Exception as error:  # onnxruntime's own errors share no public base
            raise ArtifactError(f"{path} cannot be loaded by ONNX Runtime: {error}") from error
        if (got := self._session.get_providers()[0]) != provider:
            raise ArtifactError(f"asked for provider {provider}, the session runs on {got}")
        self.input_names = tuple(node.name for node in self._session.get_inputs())

    def logits(self, windows: Sequence[Window]) -> npt.NDArray[np.float32]:
        """Logits `(W, L)` of `windows`."""
        return np.concatenate([self.run(window_inputs([window])) for window in windows])

    def run(self, inputs: dict[str, npt.NDArray[np.int64]]) -> npt.NDArray[np.float32]:
        """Logits `(B, L)` of a padded batch; only the gates look at more than one row."""
        feed = {name: inputs[name] for name in self.input_names}
        (logits,) = self._session.run(None, feed)
        return np.asarray(logits, dtype=np.float32)


def session_options(threads: int) -> ort.SessionOptions:
    """Options for a worker that shares its host: no spinning, `threads` threads, no other pool."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    return options
