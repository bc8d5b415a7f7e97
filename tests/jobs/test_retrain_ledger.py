"""Which of the retrainings that are asked for are granted."""

from __future__ import annotations

import datetime as dt
import threading

from jobs.retrain_ledger import Claim, claim_retraining
from schemas.monitor import MonitorConfig

FIRST = dt.date(2026, 11, 20)


def claim(task="tiny", *, day=0, key="k"):
    date = FIRST + dt.timedelta(days=day)
    return Claim(task=task, date=date, key=key, evidence="poor")


def test_the_same_claim_is_granted_again_and_the_day_is_bounded_over_all_tasks(home):
    rules = MonitorConfig(max_retrains_per_day=2)
    assert claim_retraining(home, claim("a"), rules) is None
    assert claim_retraining(home, claim("a"), rules) is None
    assert claim_retraining(home, claim("b"), rules) is None
    refusal = claim_retraining(home, claim("c"), rules)
    assert refusal == (
        "2 retrainings were started for 2026-11-20, monitor.max_retrains_per_day is 2"
    )
    assert claim_retraining(home, claim("c", day=1), rules) is None


def test_of_two_askers_at_once_one_is_granted(home):
    rules, start, answers = MonitorConfig(), threading.Barrier(8), []

    def ask(number):
        start.wait(timeout=60)
        answers.append(claim_retraining(home, claim(f"task{number}"), rules))

    askers = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()
    assert answers.count(None) == 1
    assert len(answers) == 8
