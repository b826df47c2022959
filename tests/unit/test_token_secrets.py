"""A secret fits the digest of the whole of it."""

from holdfast.domain.tokens import fits, secret_digest

SECRET = "5e" * 32


def test_a_secret_fits_its_own_digest() -> None:
    assert fits(SECRET, secret_digest(SECRET))


def test_wherever_a_digest_differs_the_secret_does_not_fit() -> None:
    digest = secret_digest(SECRET)
    for place, letter in enumerate(digest):
        other = digest[:place] + ("0" if letter != "0" else "1") + digest[place + 1 :]
        assert not fits(SECRET, other), place
    assert not fits(SECRET, digest[:-1])
    assert not fits(SECRET, "")
