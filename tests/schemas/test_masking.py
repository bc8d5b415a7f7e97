"""Secrets are masked by their place in an address and by what the environment holds."""

from __future__ import annotations

import json
import logging

import pytest

from jobs.logs import Masked
from schemas.errors import ConfigError
from schemas.home import Home
from schemas.load import parse_task
from schemas.masking import MASK, holds_password, mask_secrets

TASK = {
    "name": "tiny",
    "data": {"incoming": "in/{date}", "text_columns": ["body"]},
    "heads": {"queue": {"column": "queue", "labels": ["a", "b"]}},
}


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("at postgresql://ann:pw@host:5432/x", "at postgresql://ann:***@host:5432/x"),
        ("s3://KEY:a+b=c@bucket/x and http://u:v@h", "s3://KEY:***@bucket/x and http://u:***@h"),
        ("http://u:p@ss@host/", "http://u:***@host/"),
        ("redis://:pw@host", "redis://:***@host"),
        ("https://host/x?user=ann&token=abc&n=1", "https://host/x?user=ann&token=***&n=1"),
        ("s3://b?aws_secret_access_key=abc;x=1", "s3://b?aws_secret_access_key=***;x=1"),
        ("postgresql://ann@host/x stays", "postgresql://ann@host/x stays"),
        ("http://127.0.0.1:5000/health stays", "http://127.0.0.1:5000/health stays"),
        ("at 10:30 ann@example.org wrote", "at 10:30 ann@example.org wrote"),
    ],
)
def test_addresses_lose_their_secrets_only(text, masked):
    assert mask_secrets(text, environment={}) == masked


def test_values_of_secret_variables_are_masked_wherever_they_stand():
    environment = {
        "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI",
        "AWS_ACCESS_KEY_ID": "AKIAEXAMPLE",
        "PGPASSWORD": "hunter-two",
        "HF_TOKEN": "hunter-two-and-more",
        "DEBUG_TOKEN": "true",
        "MLFLOW_TRACKING_URI": "postgresql://ann:p%40ssword@host/x",
    }
    text = "wJalrXUtnFEMI AKIAEXAMPLE hunter-two-and-more hunter-two true p@ssword p%40ssword"
    assert mask_secrets(text, environment=environment) == "*** AKIAEXAMPLE *** *** true *** ***"


def test_a_secret_with_quotes_is_masked_in_json_lines_too():
    word = 'a"quoted\\word'
    line = json.dumps({"message": f"with {word}"})
    assert mask_secrets(line, environment={"DB_PASSWORD": word}) == '{"message": "with ***"}'


def test_masking_twice_is_masking_once():
    once = mask_secrets("postgresql://ann:pw@host?password=abc", environment={})
    assert mask_secrets(once, environment={}) == once


def test_an_address_is_asked_for_its_password():
    assert holds_password("s3://key:secret@bucket/x")
    assert not holds_password("s3://bucket/date={date}/x@2:3")


@pytest.mark.parametrize(
    ("section", "where"),
    [
        ({"data": TASK["data"] | {"incoming": "s3://KEY:abcdefgh@bucket/x"}}, "data.incoming"),
        ({"data": TASK["data"] | {"labelled": "s3://KEY:abcdefgh@bucket/x"}}, "data.labelled"),
        ({"score": {"sinks": [{"location": "s3://KEY:abcdefgh@b/x"}]}}, "score.sinks.0.location"),
        # Cut for the message in the middle of the password.
        ({"data": TASK["data"] | {"test": f"s3://KEY:{'abcdefgh' * 20}@bucket"}}, "data.test"),
    ],
)
def test_a_task_file_takes_no_password(section, where):
    with pytest.raises(ConfigError, match=f"{where}: an address must hold no password") as caught:
        parse_task(TASK | section, source="task.yaml")
    assert "abcdefgh" not in str(caught.value)
    assert "AWS_SECRET_ACCESS_KEY" in str(caught.value)
    assert f"KEY:{MASK}@" in str(caught.value)


def test_log_lines_and_their_traces_are_masked(monkeypatch):
    monkeypatch.setenv("SERVICE_PASSWORD", "correct-horse")
    formatter = Masked(logging.Formatter("%(levelname)s %(message)s"))
    try:
        raise OSError("refused correct-horse at http://u:secret-word@host")
    except OSError as error:
        record = logging.LogRecord(
            "x", logging.ERROR, "x.py", 1, "as %s", ("correct-horse",), (OSError, error, None)
        )
    assert formatter.format(record) == ("ERROR as ***\nOSError: refused *** at http://u:***@host")


def test_an_error_of_ours_tells_no_password():
    error = ConfigError("cannot reach postgresql://ann:pw@host")
    assert str(error) == "cannot reach postgresql://ann:***@host"


def test_home_does_not_mask_what_it_hands_on(monkeypatch, tmp_path):
    address = "postgresql+psycopg2://ann:pw@host/x"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    assert Home(tmp_path).tracking_uri == address
