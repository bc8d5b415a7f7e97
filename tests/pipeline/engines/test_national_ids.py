from __future__ import annotations

import pytest

from pipeline.engines.national_ids import NationalIdMask
from schemas.errors import ConfigError

NAMES = ("us.ssn", "de.idnr", "pl.pesel", "es.dni", "it.codicefiscale", "fr.nir", "in.aadhaar")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SSN 536-90-4399.", "SSN [ID]."),
        ("36 574 261 809 and 36574261809", "[ID] and [ID]"),
        ("44051401359 54362315K RCCMNL83S18D969H", "[ID] [ID] [ID]"),
        ("2 95 10 99 126 111 93 rest", "[ID] rest"),
        ("536904399 099-999999 666-00-0000 X536-90-4399 536-90-43990", None),
        ("54362315Z 44051401358 order 2026-11-28", None),
    ],
)
def test_ids_of_the_named_modules(text, expected):
    assert NationalIdMask(NAMES)(text) == (text if expected is None else expected)


def test_no_module_no_mask():
    assert NationalIdMask(())("536-90-4399") == "536-90-4399"


@pytest.mark.parametrize("name", ["us.sssn", "xx.id", "us.__init__"])
def test_an_unknown_module_is_an_error(name):
    with pytest.raises(ConfigError, match=f"python-stdnum has no module '{name}'"):
        NationalIdMask((name,))
