//! The contract of every store. Each case is one function that gets an empty store; the list below runs every case on every
//! store. A new store needs one line, and a new case its name.
// Tests and their helpers report failures by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod dead_letters;
mod deletions;
mod deliveries;
mod document_search;
mod documents;
mod examine;
mod fence;
mod golden;
mod histories;
mod intents;
mod load;
mod log;
mod make;
mod moved;
mod nodes;
mod operations;
mod outbox;
mod plain;
mod postgres_faults;
mod postgres_only;
mod postgres_tls;
mod records;
mod remembered;
mod sqlite_only;
mod stores;
mod tasks;
mod views;

macro_rules! run {
    ($open:path; $($noun:ident: [$($case:ident),* $(,)?]),* $(,)?) => {$(
        mod $noun {$(
            #[tokio::test]
            async fn $case() {
                let Some(bench) = $open().await else { return };
                crate::$noun::$case(bench.store.clone()).await;
                bench.store.close().await;
            }
        )*}
    )*};
}

macro_rules! contract {
    ($store:ident, $open:path) => {
        mod $store {
            run! { $open;
                log: [
                    sequence_numbers_are_dense_and_start_at_one,
                    event_is_read_exactly_as_it_was_appended,
                    long_text_of_several_events_is_read_in_each,
                    batch_is_answered_in_the_order_of_its_appends,
                    refused_append_stores_nothing_and_does_not_affect_the_others,
                    empty_batch_and_empty_append_store_nothing,
                    page_of_events_begins_after_its_sequence_number_and_obeys_its_limit,
                    large_append_is_stored_whole,
                    repeated_message_is_a_duplicate_that_names_the_first,
                    client_id_is_unique_per_user_and_within_one_batch,
                    append_to_a_conversation_of_another_user_is_refused,
                    task_id_that_is_in_use_is_refused,
                ],
                examine: [
                    examine_finds_nothing_wrong_in_an_unchanged_store,
                ],
                fence: [
                    conversation_has_no_owner_before_it_is_claimed,
                    claim_raises_the_epoch_and_returns_the_last_sequence_number,
                    earlier_owner_is_fenced_and_writes_nothing,
                    front_end_may_append_regardless_of_the_owner,
                    opening_append_owns_the_conversation_that_it_creates_and_no_other,
                    snapshot_is_stored_only_for_the_current_owner,
                    racing_claims_get_different_epochs,
                ],
                nodes: [
                    node_holds_its_lease_as_long_as_it_renews_it,
                    expired_node_is_declared_dead_for_good_by_one_that_may,
                    new_incarnation_replaces_the_previous_one,
                    node_that_leaves_is_dead_at_once,
                    claim_that_spares_live_owners_takes_no_conversation_of_a_live_node,
                    racing_claims_that_spare_live_owners_have_one_winner,
                    open_work_is_listed_for_its_owner_and_for_all_nodes_if_the_owner_is_dead,
                ],
                histories: [
                    store_agrees_with_the_model_on_every_short_history_of_two_owners,
                ],
                intents: [
                    once_run_starts_exactly_once,
                    run_that_ended_with_its_task_has_an_unknown_outcome,
                    idempotent_run_may_start_again_until_its_receipt,
                    read_run_stores_no_intent,
                    refused_start_refuses_its_whole_append,
                    receipt_is_final_and_an_unknown_outcome_is_not,
                    intents_are_listed_in_the_order_of_their_plans,
                    run_is_refused_if_it_was_never_planned_or_belongs_to_another_conversation,
                    once_run_with_two_starts_in_one_batch_starts_once,
                ],
                records: [
                    task_moves_from_queued_to_its_end_and_never_leaves_it,
                    failed_task_keeps_its_error_code,
                    events_change_the_state_of_tasks_of_their_own_conversation_only,
                    user_cannot_see_data_of_another_user,
                    pages_are_newest_first_and_continue_before_an_instant,
                    stateless_conversations_are_left_out_of_lists,
                    conversation_title_is_its_first_words,
                    open_conversations_are_those_with_open_tasks,
                    tables_are_the_same_after_a_rebuild_and_deliveries_are_kept,
                    usage_is_summed_by_each_key_and_within_its_borders,
                    absurd_usage_of_a_broken_server_does_not_keep_a_conversation_from_being_stored,
                    usage_of_one_batch_and_after_a_rebuild_is_the_same,
                ],
                tasks: [
                    task_keeps_its_start_time_and_dependencies,
                    task_without_a_queue_position_is_marked,
                    task_that_is_suspended_resumes_in_its_former_state,
                    task_that_is_suspended_is_open,
                    task_that_is_deferred_keeps_its_state_and_its_time,
                    task_keeps_whether_it_was_last_deferred_because_its_model_failed,
                    task_changes_its_class,
                    task_that_has_ended_never_changes,
                    task_changes_in_one_batch_equal_single_changes,
                    tasks_are_changed_only_by_events_of_their_conversation,
                    tasks_are_the_same_after_a_rebuild,
                ],
                deletions: [
                    deleted_conversation_is_hidden_and_accepts_nothing_until_it_is_restored,
                    deletion_is_refused_while_a_task_is_open,
                    deletion_of_a_conversation_that_has_changed_since_is_refused,
                    deletion_and_a_message_at_the_same_time_never_lose_the_message,
                    deleted_conversation_wakes_no_background_work_and_delivers_nothing,
                    erasure_leaves_no_content_and_the_links_of_the_audit_chain,
                    erasure_takes_the_text_of_a_notification_about_several_tasks_and_leaves_it_to_the_others,
                    erasure_begins_without_an_event_if_none_is_asked_for,
                    erasure_in_steps_and_by_two_at_once_ends_with_the_same_rows,
                    tables_of_an_erased_conversation_are_the_same_after_a_rebuild,
                    erasures_are_due_at_their_time_and_until_they_are_done,
                    shared_text_without_events_is_deleted_after_two_hours_only,
                    old_snapshots_of_conversations_without_open_tasks_are_deleted,
                ],
                dead_letters: [
                    failure_with_a_dead_letter_is_stored_as_one,
                    task_has_one_dead_letter_and_only_if_its_failure_ended_it,
                    dead_letter_moves_once_and_only_while_it_is_waiting,
                    dead_letter_is_taken_by_a_retry_and_names_the_retrying_task,
                    dead_letter_made_due_is_listed_as_due_and_not_among_the_others,
                    dead_letter_made_due_in_the_batch_that_puts_or_moves_it_keeps_the_last_time,
                    pages_of_one_row_list_rows_of_one_instant_once_each,
                    dead_letters_are_moved_only_by_events_of_their_conversation,
                    dead_letters_are_listed_newest_first_by_state,
                    dead_letters_are_filtered_and_counted_by_error_class_and_age,
                    due_dead_letters_are_those_to_retry_and_those_to_archive,
                    dead_letters_that_are_waiting_are_counted,
                    dead_letters_are_hidden_from_other_users,
                    dead_letters_are_the_same_after_a_rebuild,
                ],
                operations: [
                    pending_outcome_opens_an_operation,
                    operation_is_opened_once_and_closed_once,
                    operations_are_closed_only_by_events_of_their_conversation,
                    operations_are_listed_newest_first,
                    expiring_operations_are_the_open_ones_in_order_of_expiry,
                    operations_are_hidden_from_other_users,
                    repeated_operation_result_is_a_duplicate,
                    operations_are_the_same_after_a_rebuild,
                    secret_is_created_once_for_each_name,
                ],
                outbox: [
                    outbox_lists_each_final_message_until_it_is_delivered,
                    outbox_marks_many_messages_delivered_at_once,
                    notification_delivers_its_messages,
                    notification_is_refused_if_one_of_its_messages_was_delivered,
                    notification_is_refused_if_one_of_its_messages_belongs_to_another_user,
                    notifications_are_read_after_an_id,
                    outbox_sweep_removes_old_delivered_messages,
                    notification_id_is_never_reused,
                    notifications_and_deliveries_survive_a_rebuild,
                ],
                deliveries: [
                    delivery_list_has_the_oldest_message_of_each_address,
                    delivery_order_within_a_conversation_is_that_of_its_log,
                    delivery_address_in_the_batch_of_its_answer_is_known,
                    delivery_attempt_begins_on_one_node_only,
                    delivery_that_is_diverted_is_to_be_notified,
                    deliveries_survive_a_rebuild,
                ],
                documents: [
                    document_numbers_count_per_user_and_namespace_and_are_never_reused,
                    document_is_written_once_per_intent,
                    document_that_an_intent_replaced_or_archived_is_the_answer_to_its_repetition,
                    document_is_read_as_written_and_can_be_replaced,
                    document_that_is_archived_is_no_longer_found,
                    archived_document_is_listed_and_restored,
                    archived_document_is_purged_once_it_is_old,
                    document_of_another_user_or_namespace_is_never_found,
                    document_decision_that_keeps_or_fails_writes_nothing,
                    document_that_is_not_valid_is_refused,
                    document_filters_narrow_and_combine,
                    documents_are_sorted_by_their_keys,
                    documents_are_counted_in_groups,
                    documents_that_are_due_are_those_of_all_users_in_order_of_time,
                    documents_that_were_used_are_touched,
                    documents_are_exported_in_pages_and_deleted,
                    document_that_was_deleted_is_not_brought_back_by_its_intent,
                    racing_document_writes_lose_no_change,
                ],
                document_search: [
                    document_search_requires_all_parts_in_any_case_and_any_script,
                    document_search_treats_pattern_characters_as_text,
                    document_word_search_finds_any_word_in_any_form_and_ranks_by_number,
                    document_word_search_ranks_rarer_words_higher,
                    document_word_search_is_narrowed_by_filters,
                    document_ranking_without_words_is_by_number,
                    document_word_search_treats_a_hostile_query_as_words,
                    document_word_search_finds_replaced_words_only,
                    document_word_search_by_similarity_ignores_numbers,
                    write_sees_the_documents_that_its_query_finds,
                ],
                plain: [
                    api_key_is_read_as_written_and_replaced_by_its_id,
                    api_keys_are_listed_oldest_first,
                    api_key_use_keeps_a_revocation_by_another_process,
                    sealed_secret_is_read_as_written_by_its_owner_only_and_can_be_deleted,
                    breaker_row_is_read_as_written_and_replaced,
                    open_breakers_lists_every_row_that_is_not_closed,
                    store_answers_a_ping_and_has_a_known_name,
                ],
                load: [
                    store_loses_nothing_of_ten_thousand_appends_in_a_hundred_conversations,
                ],
            }
        }
    };
}

contract!(sqlite, crate::stores::sqlite);
contract!(memory, crate::stores::memory);
contract!(postgres, crate::stores::postgres);
