"""Secrets are known by their form, wherever in a line they stand."""

from holdfast.observe.redaction import redact

ID, SECRET, LEASE = "0123456789abcdef", "5" * 64, "c" * 64
TOKEN = f"hf_{ID}_{SECRET}"


def test_tokens_are_hidden_in_any_text_and_a_bearer_tokens_id_stays() -> None:
    line = {
        "event": f"refused Bearer {TOKEN} from there",
        "url": f"http://127.0.0.1/welcome?code={TOKEN}",
        "upper": TOKEN.upper(),
        "cut": TOKEN[:-20],
        "error": ValueError(f"lease {LEASE} is lost"),
        "nested": {"lines": [LEASE, {"lease": LEASE}]},
    }
    shown = repr(redact(None, "info", dict(line)))
    assert SECRET[:20] not in shown
    assert LEASE not in shown
    assert f"hf_{ID}_***" in shown


def test_a_hash_is_shown_where_it_is_called_one() -> None:
    shown = redact(None, "info", {"event": "enqueued", "spec_hash": LEASE, "digest": LEASE})
    assert (shown["spec_hash"], shown["digest"]) == (LEASE, LEASE)
