"""ONNX Runtime: one session for one bundle, windows of equal length in a call, never padded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from pipeline.batch import equal_inputs
from pipeline.batch_plan import ONE_A_CALL, BatchTable, equal_length_calls
from pipeline.engines.host import has_vnni
from schemas.errors import ArtifactError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pipeline.window import Window

CPU_PROVIDER = "CPUExecutionProvider"
# Their CPU kernels take longer than the operators they replace: a tenth of a window's time.
SLOWER_FUSIONS = ["SkipLayerNormFusion", "BiasGeluFusion"]


class OnnxEncoder:
    """Logits from an ONNX file, the same bytes for a window whoever stands beside it.

    Windows are never padded. Each is a call of its own unless `batches` says otherwise, which it
    may where this host was seen to give the same bytes: dynamic INT8, for one, takes its activation
    scale from the whole call, so that there a row's scores would depend on its neighbours.

    Raises:
        ArtifactError: the file is missing or broken, or another provider than asked for answers.
    """

    def __init__(
        self,
        path: Path,
        *,
        threads: int = 1,
        provider: str = CPU_PROVIDER,
        batches: BatchTable = ONE_A_CALL,
    ) -> None:
        if provider not in ort.get_available_providers():
            raise ArtifactError(
                f"provider {provider} is not available, this wheel has "
                f"{', '.join(ort.get_available_providers())}; install the extra for this host"
            )
        try:
            self._session = ort.InferenceSession(
                str(path), session_options(threads), providers=[provider],
                disabled_optimizers=SLOWER_FUSIONS,
            )  # fmt: skip
        except Exception as error:  # onnxruntime's own errors share no public base
            raise ArtifactError(f"{path} cannot be loaded by ONNX Runtime: {error}") from error
        if (got := self._session.get_providers()[0]) != provider:
            raise ArtifactError(f"asked for provider {provider}, the session runs on {got}")
        self.input_names = tuple(node.name for node in self._session.get_inputs())
        self._batches = batches

    def logits(self, windows: Sequence[Window]) -> npt.NDArray[np.float32]:
        """Logits `(W, L)` of `windows`, in their order."""
        calls = list(equal_length_calls([window.n_tokens for window in windows], self._batches))
        outputs = np.concatenate([self.one_call([windows[i] for i in call]) for call in calls])
        order = np.fromiter((i for call in calls for i in call), np.intp, len(windows))
        in_order = np.empty_like(outputs)
        in_order[order] = outputs
        return in_order

    def one_call(self, windows: Sequence[Window]) -> npt.NDArray[np.float32]:
        """Logits `(B, L)` of windows of equal length, all in one call."""
        return self.run(equal_inputs(windows))

    def run(self, inputs: dict[str, npt.NDArray[np.int64]]) -> npt.NDArray[np.float32]:
        """Logits `(B, L)` of a padded batch; only the gates look at rows of unequal length."""
        feed = {name: inputs[name] for name in self.input_names}
        (logits,) = self._session.run(None, feed)
        return np.asarray(logits, dtype=np.float32)


def session_options(threads: int) -> ort.SessionOptions:
    """Options for a worker that shares its host: no spinning, `threads` threads, no other pool.

    Where a processor has no VNNI, its fast INT8 kernel adds pairs in 16 bits that overflow, and
    labels come out wrong. The precise one gives the sums that VNNI gives. It is asked for only
    there: with VNNI it takes 1.7 times as long for the same bytes.
    """
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if not has_vnni():
        options.add_session_config_entry("session.x64quantprecision", "1")
    options.log_severity_level = 3
    return options
