"""What tickets are about, and how people who sort them decide.

A scenario that belongs to one queue is clear; one that belongs to several is decided by what the
customer asks for, or by a coin where the customer asks for nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

PRIORITIES = ("low", "normal", "high")
QUEUE_SHARES = {
    "billing": 0.20,
    "technical": 0.21,
    "shipping": 0.20,
    "account": 0.15,
    "returns": 0.14,
    "other": 0.10,
}
_CALM = (0.62, 0.33, 0.05)
_USUAL = (0.17, 0.66, 0.17)
_PRESSING = (0.05, 0.35, 0.60)


@dataclass(frozen=True)
class Scenario:
    """One thing to write about: weights by queue, and of low, normal and high priority."""

    name: str
    queues: Mapping[str, float]
    priorities: tuple[float, float, float]


def _clear(queue: str, names: str, priorities: tuple[float, float, float]) -> list[Scenario]:
    return [Scenario(name, {queue: 1.0}, priorities) for name in names.split()]


CLEAR = (
    *_clear("billing", "double_charge payment_declined missing_refund", _USUAL),
    *_clear("billing", "wrong_invoice price_change", _CALM),
    *_clear("technical", "app_crash feature_broken", _USUAL),
    *_clear("technical", "sync_failure", _PRESSING),
    *_clear("technical", "slow", _CALM),
    *_clear("shipping", "late_parcel tracking_stuck", _USUAL),
    *_clear("shipping", "lost_parcel wrong_address", _PRESSING),
    *_clear("account", "password_reset", _USUAL),
    *_clear("account", "locked_out suspicious_login", _PRESSING),
    *_clear("account", "change_details delete_account", _CALM),
    *_clear("returns", "wrong_item damaged_item", _USUAL),
    *_clear("returns", "return_request exchange", _CALM),
    *_clear("other", "praise opening_hours partnership product_question feedback", _CALM),
)
AMBIGUOUS = (
    Scenario("refund_lost_parcel", {"shipping": 0.5, "billing": 0.32, "returns": 0.18}, _USUAL),
    Scenario("damaged_in_transit", {"returns": 0.65, "shipping": 0.35}, _USUAL),
    Scenario("login_error", {"account": 0.55, "technical": 0.45}, _PRESSING),
    Scenario("cancel_subscription", {"billing": 0.65, "account": 0.35}, _CALM),
    Scenario("refund_after_return", {"billing": 0.5, "returns": 0.5}, _USUAL),
    Scenario("paid_not_active", {"billing": 0.45, "technical": 0.35, "account": 0.2}, _PRESSING),
    Scenario("vague", {"other": 0.5, "technical": 0.3, "account": 0.2}, _USUAL),
)
