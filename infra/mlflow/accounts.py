"""MLflow's accounts: people read, one service account of the pipeline edits models."""

from __future__ import annotations

import os
import sys

import click
import requests

SERVICE = "nightmill"
MANAGED = ("experiment", "registered_model")
_TIMEOUT_S = 30
_USERS = "api/2.0/mlflow/users"
_GRANT = "api/3.0/mlflow/users/permissions/grant"


class AccountError(Exception):
    """MLflow refused a change of its accounts, or did not answer."""


class Accounts:
    """The accounts of one server, as its admin sees them."""

    def __init__(self, address: str, *, admin: str, password: str) -> None:
        self._address = address.rstrip("/")
        self._session = requests.Session()
        self._session.trust_env = False  # a .netrc or proxy of the machine has no say here
        self._session.auth = (admin, password)

    def ensure(self, name: str, password: str) -> None:
        """Makes an account, or gives an existing one this password.

        Raises:
            AccountError: the server refuses.
        """
        account = {"username": name, "password": password}
        if self._knows(name):
            self._change("PATCH", f"{_USERS}/update-password", account)
        else:
            self._change("POST", f"{_USERS}/create", account)

    def let_manage(self, name: str) -> None:
        """Lets an account edit and delete all experiments and models, also those to come.

        Raises:
            AccountError: the server refuses.
        """
        for kind in MANAGED:
            grant = {"username": name, "resource_type": kind, "resource_id": "*"}
            self._change("POST", _GRANT, grant | {"permission": "MANAGE"})

    def _knows(self, name: str) -> bool:
        answer = self._send("GET", f"{_USERS}/get", params={"username": name})
        if answer.status_code in {200, 404}:
            return answer.status_code == 200
        raise AccountError(f"account {name}: {_reason(answer)}")

    def _change(self, method: str, path: str, body: dict[str, str]) -> None:
        answer = self._send(method, path, json=body)
        if not answer.ok:
            raise AccountError(f"account {body['username']}: {_reason(answer)}")

    def _send(self, method: str, path: str, **arguments: object) -> requests.Response:
        try:
            return self._session.request(
                method,
                f"{self._address}/{path}",
                timeout=_TIMEOUT_S,
                **arguments,  # type: ignore[arg-type]
            )
        except requests.RequestException as error:
            raise AccountError(
                f"{self._address} does not answer ({type(error).__name__}); is MLflow running?"
            ) from None


def _reason(answer: requests.Response) -> str:
    mend = {401: "; the admin's name or password is wrong", 403: "; only an admin may do this"}
    return f"MLflow answered {answer.status_code}{mend.get(answer.status_code, '')}"


@click.command(
    epilog="\b\nExamples:\n"
    "  NIGHTMILL_ACCOUNT_PASSWORD=... python infra/mlflow/accounts.py ann\n"
    "  NIGHTMILL_ACCOUNT_PASSWORD=... python infra/mlflow/accounts.py nightmill --manage\n"
)
@click.argument("name")
@click.option("--address", envvar="MLFLOW_TRACKING_URI", required=True, help="MLflow's server.")
@click.option("--manage", is_flag=True, help="May edit and delete all experiments and models.")
def main(*, name: str, address: str, manage: bool) -> None:
    """Make the account NAME at MLflow, or give it a new password.

    Passwords come from the environment, so that they stand in no list of processes:
    NIGHTMILL_ACCOUNT_PASSWORD is the account's, MLFLOW_TRACKING_USERNAME and
    MLFLOW_TRACKING_PASSWORD are the admin's.
    """
    try:
        accounts = Accounts(
            address,
            admin=os.environ["MLFLOW_TRACKING_USERNAME"],
            password=os.environ["MLFLOW_TRACKING_PASSWORD"],
        )
        accounts.ensure(name, os.environ["NIGHTMILL_ACCOUNT_PASSWORD"])
        if manage:
            accounts.let_manage(name)
    except KeyError as error:
        raise click.UsageError(f"the variable {error.args[0]} is not set") from None
    except AccountError as error:
        click.echo(str(error), err=True)
        sys.exit(1)
    click.echo(f"account {name} {'manages all models' if manage else 'reads'}")


if __name__ == "__main__":
    main()
