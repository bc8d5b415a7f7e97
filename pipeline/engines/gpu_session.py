"""ONNX Runtime on a GPU: one session, buffers that stay on the device, and no silent fall back."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from pipeline.engines.onnx_session import CPU_PROVIDER, session_options
from pipeline.engines.tokenizer import BackboneTokenizer
from pipeline.shaped_encoder import OutOfDeviceMemoryError, ShapedEncoder
from pipeline.token_batches import Budget
from schemas.bundle import MODEL_FILE, TOKENIZER_FILE
from schemas.errors import ArtifactError, ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from schemas.task import TaskConfig

CUDA_PROVIDER = "CUDAExecutionProvider"
_DEVICES = {CUDA_PROVIDER: "cuda", CPU_PROVIDER: "cpu"}
_PROVIDER_OPTIONS = {
    CUDA_PROVIDER: {
        "use_tf32": "0",  # on by default: fp32 products with 10 bits of mantissa
        # Several workers share a GPU, and an arena that doubles takes what the others need.
        "arena_extend_strategy": "kSameAsRequested",
    }
}
_WHEELS = ("onnxruntime", "onnxruntime-gpu")
# What costs time. Shape arithmetic does stay on the CPU, by ONNX Runtime's own choice.
_HEAVY = {
    "Attention", "DynamicQuantizeMatMul", "Gemm", "LayerNormalization", "MatMul", "MatMulInteger",
    "MatMulIntegerToFloat", "MatMulNBits", "MultiHeadAttention", "QLinearMatMul", "Softmax",
    "SkipLayerNormalization",
}  # fmt: skip
_OUT_OF_MEMORY = (
    "out of memory", "failed to allocate memory", "cuda failure 2:", "cublas_status_alloc_failed",
)  # fmt: skip
_NUMPY_TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16}


@dataclass(frozen=True)
class _Bound:
    """Buffers on the device for one shape, made once."""

    inputs: dict[str, ort.OrtValue]
    logits: ort.OrtValue
    binding: ort.IOBinding
    options: ort.RunOptions


class GpuSession:
    """A model on one GPU; each shape has buffers of its own, so that a run allocates none.

    Inputs go from ordinary memory: 24 bytes a token, far less than a batch's arithmetic takes. With
    `cuda_graphs` the kernels of each shape are recorded in its first run and then started as one.

    Raises:
        ArtifactError: the file is missing or broken, both wheels of ONNX Runtime are installed, or
            any part of the model that costs time would run elsewhere.
    """

    def __init__(
        self, path: Path, *, provider: str = CUDA_PROVIDER, cuda_graphs: bool = False
    ) -> None:
        self._session = _open(path, provider, cuda_graphs=cuda_graphs)
        self._device = _DEVICES[provider]
        self._names = [node.name for node in self._session.get_inputs()]
        output = self._session.get_outputs()[0]
        self._output, self._type = output.name, _NUMPY_TYPES[output.type]
        self.n_logits = int(output.shape[1])
        self._bound: dict[tuple[int, ...], _Bound] = {}

    def run(self, inputs: dict[str, npt.NDArray[np.int64]]) -> npt.NDArray[np.float32]:
        """Logits `(B, L)` of a padded batch `(B, T)`.

        Raises:
            OutOfDeviceMemoryError: the batch does not fit; the session can still be used.
        """
        try:
            bound = self._buffers(inputs["input_ids"].shape)
            for name, buffer in bound.inputs.items():
                buffer.update_inplace(inputs[name])
            self._session.run_with_iobinding(bound.binding, bound.options)
            # A copy: on a CPU the buffer itself would be answered, and change with the next run.
            return np.array(bound.logits.numpy(), dtype=np.float32)
        except Exception as error:  # onnxruntime's own errors share no public base
            if any(sign in str(error).lower() for sign in _OUT_OF_MEMORY):
                raise OutOfDeviceMemoryError(str(error)[:300]) from error
            raise

    def _buffers(self, shape: tuple[int, ...]) -> _Bound:
        if shape not in self._bound:
            inputs = {name: self._buffer(shape, np.int64) for name in self._names}
            logits = self._buffer((shape[0], self.n_logits), self._type)
            binding = self._session.io_binding()
            for name, buffer in inputs.items():
                binding.bind_ortvalue_input(name, buffer)
            binding.bind_ortvalue_output(self._output, logits)
            options = ort.RunOptions()
            # Which recording is meant: each shape has its own. Without CUDA graphs nobody asks.
            options.add_run_config_entry("gpu_graph_id", str(len(self._bound) + 1))
            self._bound[shape] = _Bound(inputs, logits, binding, options)
        return self._bound[shape]

    def _buffer(self, shape: tuple[int, ...], element: npt.DTypeLike) -> ort.OrtValue:
        return ort.OrtValue.ortvalue_from_shape_and_type(list(shape), element, self._device, 0)


def gpu_encoder(folder: Path, task: TaskConfig) -> ShapedEncoder:
    """The encoder of the bundle in `folder`, proven on the GPU that this process was given.

    Raises:
        ArtifactError: see `GpuSession` and `ShapedEncoder`.
        ConfigError: there is no GPU runtime, or `score.max_batch_tokens` is over its memory.
    """
    tokenizer = BackboneTokenizer(folder / TOKENIZER_FILE)
    return ShapedEncoder(
        GpuSession(folder / MODEL_FILE, provider=CUDA_PROVIDER, cuda_graphs=task.score.cuda_graphs),
        Budget(task.score.max_batch_tokens, task.window.max_tokens),
        pad_id=tokenizer.pad_id,
        vocabulary_size=tokenizer.vocabulary_size,
    )


def check_gpu_runtime() -> None:
    """Makes sure, before anything is started, that the installed runtime is the one for GPUs.

    Raises:
        ArtifactError: both wheels are installed, and which of them is imported is chance.
        ConfigError: it is the one for CPUs.
    """
    if len(found := _installed_wheels()) > 1:
        raise ArtifactError(
            f"both {' and '.join(found)} are installed and overwrite each other: "
            f"pip uninstall -y {' '.join(found)}, then install the extra `gpu` alone"
        )
    if CUDA_PROVIDER not in ort.get_available_providers():
        raise ConfigError(
            f"score.device=gpu needs {CUDA_PROVIDER}, installed is {', '.join(found) or 'none'} "
            f"with {', '.join(ort.get_available_providers())}; install the extra `gpu` instead of "
            f"`cpu`, or set score.device=cpu"
        )


def _installed_wheels() -> list[str]:
    found = []
    for wheel in _WHEELS:
        try:
            found.append(f"{wheel}=={metadata.version(wheel)}")
        except metadata.PackageNotFoundError:
            continue
    return found


def _open(path: Path, provider: str, *, cuda_graphs: bool) -> ort.InferenceSession:
    if provider == CUDA_PROVIDER:
        check_gpu_runtime()
        ort.preload_dlls()  # CUDA's libraries as pip installs them, where they came that way
    settings = _PROVIDER_OPTIONS.get(provider, {})
    if cuda_graphs:
        settings = settings | {"enable_cuda_graph": "1"}
    options = session_options(1)
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    try:
        session = ort.InferenceSession(
            str(path), options, providers=[(provider, settings)],
            enable_fallback=0,
        )  # fmt: skip
    except Exception as error:  # onnxruntime's own errors share no public base
        raise ArtifactError(f"{path} cannot be loaded by ONNX Runtime: {error}") from error
    _check_assignment(session, provider)
    return session


def _check_assignment(session: ort.InferenceSession, provider: str) -> None:
    """The provider is the one asked for, and has all nodes that cost time."""
    if (got := session.get_providers()[0]) != provider:
        raise ArtifactError(
            f"asked for provider {provider}, the session runs on {got}; most often CUDA's or "
            f"cuDNN's libraries are missing or of another version than {ort.__version__} was built "
            f"with"
        )
    elsewhere = Counter(
        f"{node.op_type} on {part.ep_name}"
        for part in session.get_provider_graph_assignment_info()
        if part.ep_name != provider
        for node in part.get_nodes()
        if node.op_type in _HEAVY
    )
    if elsewhere:
        named = ", ".join(f"{count} {what}" for what, count in sorted(elsewhere.items()))
        raise ArtifactError(
            f"asked for provider {provider}, but it lacks kernels for this model: {named}; "
            f"take another variant, compress.prefer=[fp16, fp32]"
        )
