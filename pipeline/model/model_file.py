"""An ONNX file with its weights inside, or beside it where they are too many for one message."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx

from schemas.bundle import DATA_FILE

if TYPE_CHECKING:
    from pathlib import Path

# A protobuf message ends at 2 GiB; the rest is left to the graph around the weights.
MAX_WEIGHT_BYTES = (2 << 30) - (64 << 20)
_SMALL_BYTES = 1024  # of a constant that shape inference may want to read stays in the graph


def save_model(
    model: onnx.ModelProto, path: Path, *, max_weight_bytes: int = MAX_WEIGHT_BYTES
) -> Path:
    """Writes `model` to `path`; weights of more than `max_weight_bytes` go beside it.

    The file beside it is always named `model.onnx.data`, whatever `path` is called: the graph holds
    that name, so that both can be copied into a bundle as they are. A folder holds one such model.
    """
    data = path.with_name(DATA_FILE)
    data.unlink(missing_ok=True)  # ONNX would append to it
    if weight_bytes(model) > max_weight_bytes:
        onnx.save(
            model, str(path), save_as_external_data=True, all_tensors_to_one_file=True,
            location=DATA_FILE, size_threshold=_SMALL_BYTES,
        )  # fmt: skip
    else:
        onnx.save(model, str(path))
    return path


def weight_bytes(model: onnx.ModelProto) -> int:
    """Bytes of all constants of a graph that was loaded with its weights."""
    return sum(int(tensor.ByteSize()) for tensor in model.graph.initializer)


def has_data_file(path: Path) -> bool:
    """Whether the weights of the model at `path` lie beside it."""
    return path.with_name(DATA_FILE).exists()


def model_files(path: Path) -> tuple[Path, ...]:
    """The files that the model at `path` consists of."""
    return (path, path.with_name(DATA_FILE)) if has_data_file(path) else (path,)
