"""What `unknown` says to whoever can do something about it."""

from .history_script import Script


def test_where_nothing_worked_it_says_where_a_store_is_made_ready() -> None:
    script = Script(ok_ops_min=10)
    for _ in range(3):
        script.append(1, outcome="unknown")
    reason = script.verdict().reason or ""
    assert reason.startswith(
        "only 0 operations succeeded, 10 are needed; the most frequent error: timed out. "
    )
    assert "belongs in the factory, which may be `async def`" in reason
