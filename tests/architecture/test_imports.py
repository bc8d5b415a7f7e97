"""Who may import whom, and what a light start must not load."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
HEAVY = (
    "torch", "transformers", "ray", "mlflow", "onnxruntime", "onnx", "pandas", "numpy", "pyarrow",
    "great_expectations", "sklearn", "airflow",
)  # fmt: skip
SCHEMAS = sorted(path.stem for path in (REPOSITORY / "schemas").glob("[a-z]*.py"))


def run(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def loaded_by(code: str) -> set[str]:
    """Which heavy packages are loaded after `code` has run in a fresh interpreter."""
    found = f"[name for name in {HEAVY!r} if name in sys.modules]"
    report = f"import json, sys; print('\\n' + json.dumps({found}))"
    return set(json.loads(run("-c", f"{code}\n{report}").splitlines()[-1]))


def test_the_contracts_of_import_linter_hold() -> None:
    """Also fails where a contract names a module that does not exist."""
    command = "from importlinter.cli import lint_imports_command as c; c(['--no-cache'])"
    assert "0 broken" in run("-c", command)


def test_schemas_load_nothing_heavy() -> None:
    """A scheduler reads schemas; it must not pay for torch, Arrow or pandas."""
    assert loaded_by(f"import {', '.join(f'schemas.{name}' for name in SCHEMAS)}") == set()


def test_loading_a_task_loads_nothing_heavy() -> None:
    code = (
        "from pathlib import Path; from schemas.home import Home\n"
        "from schemas.load import load_task; load_task('tickets', Home(Path('nowhere')))"
    )
    assert loaded_by(code) == set()


def test_failure_20_what_runs_jobs_for_airflow_never_has_ray_in_its_process() -> None:
    """Ray's driver does not survive a worker that was forked; each job is a process of its own."""
    assert "ray" not in loaded_by("import dags.operators.runner, dags.operators.job")


def test_failure_22_a_process_that_has_tokenized_can_fork_and_tokenize(
    tiny_tokenizer_path: Path,
) -> None:
    """The tokenizer's threads are not there after a fork: the entry point has switched them off.

    Tokenizers that were used before a fork now do so themselves, which is not to be relied on.
    """
    code = f"""
import os, signal, sys
from pathlib import Path
os.environ.pop("TOKENIZERS_PARALLELISM", None)
from jobs.__main__ import main
sys.argv = ["nightmill", "--version"]
try:
    main()
except SystemExit:
    pass
from pipeline.engines.tokenizer import BackboneTokenizer
tokenizer = BackboneTokenizer(Path({str(tiny_tokenizer_path)!r}))
texts = ["the app is slow"] * 500
expected = [text.ids for text in tokenizer.tokenize(texts)]
child = os.fork()
if child == 0:
    signal.alarm(30)  # ends the child where it hangs
    os._exit([text.ids for text in tokenizer.tokenize(texts)] != expected)
_, status = os.waitpid(child, 0)
print(os.environ["TOKENIZERS_PARALLELISM"], os.waitstatus_to_exitcode(status))
"""
    assert run("-c", code).splitlines()[-1] == "false 0"


@pytest.mark.parametrize("arguments", [["--help"], ["jobs"], ["no-such-job"], ["--version"]])
def test_the_command_line_answers_without_heavy_imports(arguments: list[str]) -> None:
    code = (
        f"from jobs.__main__ import app\ntry:\n    app({arguments!r})\nexcept SystemExit:\n    pass"
    )
    assert loaded_by(code) == set()


def test_importing_a_module_makes_no_file_and_sets_no_variable(tmp_path: Path) -> None:
    """Modules define, the entry point does."""
    code = (
        "import os; before = dict(os.environ)\n"
        f"import {', '.join(f'schemas.{name}' for name in SCHEMAS)}, jobs.__main__\n"
        "import pipeline.flow, pipeline.publish, pipeline.plan, pipeline.staging\n"
        "print(dict(os.environ) == before, os.listdir('.'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert done.stdout == "True []\n"
