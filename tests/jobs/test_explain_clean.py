from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from schemas.bundle import TOKENIZER_FILE


@pytest.fixture
def explain(tiny_home):
    from jobs.explain_clean import command

    def run(*arguments, **options):
        result = tiny_home.root / "result.json"
        outcome = CliRunner().invoke(
            command,
            ["tiny", *arguments, "--home", str(tiny_home.root), "--result", str(result)],
            **options,
        )
        content = json.loads(result.read_text()) if outcome.exit_code == 0 else None
        return outcome.exit_code, content, outcome.output

    return run


def test_a_text_is_shown_before_after_and_step_by_step(explain):
    code, result, output = explain("--text", "mail <b>a@b.example</b>\u200b [SEP] now")
    assert code == 0
    steps = ["controls", "html", "pii_email", "special_tokens", "whitespace"]
    assert result["changed"] == steps
    assert result["changes"] == {"text": [{"pass": 1, "step": step} for step in steps]}
    assert result["special_tokens_of"].startswith("path:")
    shown = output[output.index("== text before") :]
    assert shown == (
        "== text before\nmail <b>a@b.example</b>\\u200b [SEP] now\n"
        "\n== controls (pass 1)\nmail <b>a@b.example</b>[-\\u200b-] [SEP] now\n"
        "\n== html (pass 1)\nmail [-<b>-]a@b.example[-</b>-] [SEP] now\n"
        "\n== pii_email (pass 1)\nmail [-a@b.example-]{+[EMAIL]+} [SEP] now\n"
        "\n== special_tokens (pass 1)\nmail [EMAIL][- [SEP] -]{+  sep  +}now\n"
        "\n== whitespace (pass 1)\nmail [EMAIL][-  -]{+ +}sep[-  -]{+ +}now\n"
        "\n== text after\nmail [EMAIL] sep now\n"
    )


def test_standard_input_and_overrides(explain):
    code, result, output = explain("clean.also=[repeats]", input="sooooo")
    assert (code, result["changed"]) == (0, ["repeats"])
    assert "repeats" in result["active"]
    assert output.endswith("== text after\nsooo\n")


def test_a_clean_text_is_said_to_be_one(explain):
    code, result, output = explain("--text", "all is well")
    assert (code, result["changes"]) == (0, {"text": []})
    assert output.endswith("(nothing changed)\n")


def test_a_record_is_shown_by_column(explain, write_night, tiny_home):
    write_night(tiny_home, "2026-11-28", rows=12)
    code, result, output = explain("--date", "2026-11-28", "--id", "2026-11-28-3")
    assert code == 0
    assert list(result["changes"]) == ["subject", "body"]
    assert "== subject before\ncard\n" in output


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--date", "2026-11-28"], 2, "give both, or --text"),
        (["--date", "2026-11-28", "--id", "x", "--text", "y"], 2, "give one of them"),
        (["--date", "2026-11-28", "--id", "nobody"], 2, "none of the 12 rows of 2026-11-28"),
        (["--date", "2026-11-28", "--id", "2026-11-28-empty"], 3, "before cleaning: missing_text"),
        (["--text", "x", "clean.also=[pii_national_id]", "clean.national_ids=[us.sn]"], 2, "us.sn"),
    ],
)
def test_what_is_wrong_is_said(explain, write_night, tiny_home, arguments, code, message):
    write_night(tiny_home, "2026-11-28", rows=12)
    got, _, output = explain(*arguments)
    assert got == code
    assert message in output


def test_without_a_model_tokens_are_the_backbones_or_common_ones(
    home, tiny_task, tiny_backbone, tmp_path
):
    from jobs.explain_clean import special_tokens_for
    from pipeline.special_tokens import GENERIC_TOKENS

    assert (tiny_backbone / TOKENIZER_FILE).is_file()
    assert special_tokens_for(tiny_task, home) == (
        ("[CLS]", "[MASK]", "[PAD]", "[SEP]", "[UNK]"), "backbone",
    )  # fmt: skip
    train = tiny_task.train.model_copy(update={"backbone": f"path:{tmp_path / 'nowhere'}"})
    lost = tiny_task.model_copy(update={"train": train})
    assert special_tokens_for(lost, home)[0] == GENERIC_TOKENS
    assert list(home.root.iterdir()) == []  # looking has made no registry
