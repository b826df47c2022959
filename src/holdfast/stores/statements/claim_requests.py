"""Which leases were granted to which request."""

from __future__ import annotations

from holdfast.stores.statements.batches import delete_batch
from holdfast.stores.statements.words import Statement, Words


def _begin(_words: Words) -> str:
    """Postgres only: nobody else answers this request until the transaction ends. And where a row of its name is being
    written all the same, that is not waited for."""
    return """
        SELECT pg_try_advisory_xact_lock(CAST(:key AS bigint)), set_config('lock_timeout', '250ms', true)"""


def _granted(_words: Words) -> str:
    return """
        SELECT c.nonce, c.jobs FROM holdfast_claim_requests c
        WHERE c.credential = :credential AND c.request = :request"""


def _grant(words: Words) -> str:
    jobs = "CAST(:jobs AS json)" if words.postgres else ":jobs"
    return f"""
        INSERT INTO holdfast_claim_requests (credential, request, nonce, jobs, at)
        VALUES (:credential, :request, :nonce, {jobs}, {words.now})
        ON CONFLICT (credential, request) DO NOTHING RETURNING request"""


def _forget(words: Words) -> str:
    ago = words.after("-CAST(:keep AS float8)" if words.postgres else "-:keep")
    chosen = f"""
          SELECT c.credential, c.request FROM holdfast_claim_requests c WHERE c.at < {ago} ORDER BY c.at LIMIT :limit"""
    return delete_batch("holdfast_claim_requests", "credential, request", chosen)


def _known(words: Words) -> str:
    return f"""
        SELECT c.credential, c.request FROM {words.rows({"credential": "text", "request": "text"})}
        JOIN holdfast_claim_requests c ON c.credential = r.credential AND c.request = r.request"""


BEGIN = Statement("claim_requests.begin", _begin)
GRANTED = Statement("claim_requests.granted", _granted)
KNOWN = Statement("claim_requests.known", _known)
GRANT = Statement("claim_requests.grant", _grant)
FORGET = Statement("claim_requests.forget", _forget)
