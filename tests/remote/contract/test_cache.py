"""The tests of `tests/contract/test_cache.py` over HTTP, as far as they are about a store."""

from tests.contract.test_cache import (
    kept,
    test_a_value_is_replaced_and_lives_anew,
    test_any_json_value_comes_back_as_it_went_in,
    test_any_text_is_a_key,
    test_many_at_once_leave_one_whole_value,
    test_one_key_or_a_whole_source_is_cleared,
    test_only_what_has_expired_is_forgotten_a_batch_at_a_time,
    test_sources_do_not_share_keys,
    test_the_largest_value_fits,
    test_what_cannot_be_kept_is_refused_by_name,
    test_what_is_past_its_time_is_not_there,
)

__all__ = [
    "kept",
    "test_a_value_is_replaced_and_lives_anew",
    "test_any_json_value_comes_back_as_it_went_in",
    "test_any_text_is_a_key",
    "test_many_at_once_leave_one_whole_value",
    "test_one_key_or_a_whole_source_is_cleared",
    "test_only_what_has_expired_is_forgotten_a_batch_at_a_time",
    "test_sources_do_not_share_keys",
    "test_the_largest_value_fits",
    "test_what_cannot_be_kept_is_refused_by_name",
    "test_what_is_past_its_time_is_not_there",
]
