"""What every test on Flower needs."""

import pytest

pytest.importorskip("flwr")


@pytest.fixture(autouse=True)
def _identity_of_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Flower's runtime sets in a process before an app may make messages."""
    from flwr.supercore.task_identity import TaskIdentity

    for name in ("_run_id", "_task_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)
