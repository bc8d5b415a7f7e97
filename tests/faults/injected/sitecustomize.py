"""Faults put in from outside: Python imports this wherever PYTHONPATH names its folder.

`INJECTED_FAULTS` is a JSON object: `segfault`, `exhaust`, `hang` and `memory_error` name records at
whose windows that happens; `slow_s` is spent on every record. Product code knows nothing of it.
"""

import importlib.abc
import importlib.util
import json
import os
import signal
import sys
import threading

FAULTS = json.loads(os.environ.get("INJECTED_FAULTS", "{}"))


def _exhaust():
    held = []
    while True:  # touched, so that it is resident
        held.append(bytearray(os.urandom(1 << 20)) * 16)


def _hang():
    threading.Event().wait()


def _segfault():
    os.kill(os.getpid(), signal.SIGSEGV)


def _memory_error():
    raise MemoryError


ACTIONS = {"segfault": _segfault, "exhaust": _exhaust, "hang": _hang, "memory_error": _memory_error}


def _disturb_windows(module):
    original = module.TextFlow.windows

    def windows(self, prepared):
        for name, action in ACTIONS.items():
            if prepared.record.record_id in FAULTS.get(name, ()):
                action()
        if "slow_s" in FAULTS:
            threading.Event().wait(FAULTS["slow_s"])
        return original(self, prepared)

    module.TextFlow.windows = windows


DISTURBED = {"pipeline.flow": _disturb_windows}


class _Disturber(importlib.abc.MetaPathFinder):
    """Lets a module be loaded as ever, and changes it before its importer sees it."""

    def find_spec(self, name, path=None, target=None):
        if name not in DISTURBED:
            return None
        disturb = DISTURBED.pop(name)
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            disturb(module)

        spec.loader.exec_module = exec_module
        return spec


if FAULTS:
    sys.meta_path.insert(0, _Disturber())
