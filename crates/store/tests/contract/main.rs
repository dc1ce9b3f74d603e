//! What every store must do. Each case is one function that is given an empty store; the list below runs every case on
//! every store, so a store is added with one line and a case with its name.
// A test says what went wrong by panicking, in its helpers too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod examine;
mod fence;
mod golden;
mod histories;
mod intents;
mod letters;
mod load;
mod log;
mod make;
mod memories;
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
mod todos;

macro_rules! run {
    ($open:path; $($noun:ident: [$($case:ident),* $(,)?]),* $(,)?) => {$(
        mod $noun {$(
            #[tokio::test]
            async fn $case() {
                let Some(bench) = $open().await else { return };
                crate::$noun::$case(std::sync::Arc::clone(&bench.store)).await;
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
                    an_event_comes_back_exactly_as_it_was,
                    a_batch_answers_in_the_order_of_its_appends,
                    a_refused_append_leaves_nothing_and_does_not_hinder_the_others,
                    an_empty_batch_and_an_empty_append_store_nothing,
                    a_page_of_events_begins_after_its_place_and_keeps_its_limit,
                    a_large_append_is_stored_whole,
                    a_repeated_message_is_a_duplicate_that_names_the_first,
                    a_client_id_is_unique_per_user_and_within_one_batch,
                    another_users_conversation_is_refused,
                    a_used_task_id_is_refused,
                ],
                examine: [
                    a_store_that_nobody_touched_is_as_its_log_says,
                ],
                fence: [
                    nobody_owns_a_conversation_before_it_is_claimed,
                    a_claim_raises_the_epoch_and_says_the_last_place,
                    an_earlier_owner_is_fenced_and_writes_nothing,
                    a_door_may_write_whoever_owns_the_conversation,
                    a_snapshot_is_kept_for_the_present_owner_only,
                    racing_claims_get_different_epochs,
                ],
                nodes: [
                    node_holds_its_lease_as_long_as_it_renews_it,
                    expired_node_is_declared_dead_for_good_by_one_that_may,
                    new_incarnation_takes_the_place_of_the_one_before,
                    node_that_leaves_is_dead_at_once,
                    claim_that_spares_the_living_takes_from_nobody_else,
                    racing_claims_that_spare_the_living_have_one_winner,
                    open_work_is_listed_for_its_owner_and_if_that_is_dead_for_everybody,
                ],
                histories: [
                    every_short_history_of_two_owners_is_judged_as_the_model_says,
                ],
                intents: [
                    a_once_run_starts_exactly_once,
                    a_run_that_was_cut_off_with_its_task_is_unknown,
                    an_idempotent_run_starts_again_until_its_receipt,
                    a_read_leaves_no_intent,
                    a_refused_start_refuses_its_whole_append,
                    a_receipt_is_final_and_an_unknown_outcome_is_not,
                    intents_are_listed_in_the_order_of_their_plans,
                    a_run_that_was_never_planned_or_is_another_conversations_is_refused,
                    two_starts_in_one_batch_are_one_start,
                ],
                records: [
                    a_task_moves_from_queued_to_its_end_and_never_leaves_it,
                    a_failed_task_keeps_its_code,
                    events_move_only_tasks_of_their_own_conversation,
                    one_user_never_sees_anothers_anything,
                    pages_are_newest_first_and_continue_before_an_instant,
                    stateless_conversations_are_left_out_of_lists,
                    a_conversation_is_named_after_its_first_words,
                    open_conversations_are_those_with_work_left,
                    a_rebuild_gives_the_same_tables_and_keeps_deliveries,
                ],
                tasks: [
                    what_a_task_waits_for_comes_back,
                    what_takes_no_place_of_its_own_is_marked,
                    a_held_task_is_suspended_and_goes_on_where_it_was,
                    a_held_task_is_open_work,
                    a_deferred_task_keeps_its_state_and_its_time,
                    a_task_changes_its_class,
                    a_task_that_has_ended_never_changes,
                    changes_in_one_batch_are_the_same_as_one_by_one,
                    only_a_conversations_own_events_change_its_tasks,
                    a_rebuild_gives_the_same_tasks,
                ],
                letters: [
                    a_failure_with_a_letter_is_a_dead_letter,
                    a_task_has_one_letter_and_only_if_its_failure_ended_it,
                    a_letter_moves_once_and_only_while_it_waits,
                    a_retry_takes_the_letter_and_says_which_task_tries,
                    letter_that_is_made_due_is_due_and_left_out_of_those_that_are_not,
                    letter_made_due_in_the_batch_that_puts_or_moves_it_has_the_last_time,
                    pages_of_one_row_list_rows_of_one_instant_once_each,
                    only_a_conversations_own_events_move_its_letters,
                    letters_are_listed_newest_first_by_state,
                    letters_are_filtered_and_counted_by_error_class_and_age,
                    due_letters_are_those_to_retry_and_those_to_archive,
                    the_waiting_letters_are_counted,
                    a_wrong_owner_sees_no_letter,
                    a_rebuild_gives_the_same_letters,
                ],
                operations: [
                    a_pending_outcome_opens_an_operation,
                    an_operation_is_opened_once_and_closed_once,
                    only_a_conversations_own_events_close_its_operations,
                    operations_are_listed_newest_first,
                    expiring_operations_are_the_awaited_ones_in_time,
                    a_wrong_owner_sees_no_operation,
                    a_repeated_result_is_a_duplicate,
                    a_rebuild_gives_the_same_operations,
                    a_secret_is_made_once_for_each_name,
                ],
                outbox: [
                    the_outbox_gives_each_final_word_until_it_is_delivered,
                    many_words_are_delivered_at_once,
                    a_notification_delivers_its_words,
                    words_that_were_delivered_are_not_notified_again,
                    a_word_of_another_user_is_not_notified,
                    notifications_are_read_from_a_place_on,
                    a_sweep_takes_what_is_old_and_delivered,
                    a_place_is_never_given_again,
                    a_rebuild_keeps_notifications_and_delivers_nothing_again,
                ],
                todos: [
                    numbers_count_per_user_and_are_never_given_again,
                    the_same_intent_makes_one_todo,
                    every_field_comes_back_and_can_be_changed,
                    a_search_wants_all_words_in_any_case_and_any_script,
                    filters_narrow_and_combine,
                    due_ones_come_first_then_the_important,
                    an_archived_todo_is_gone,
                    the_summary_counts_what_is_open_overdue_and_due_today,
                    nothing_in_a_text_is_taken_for_a_pattern,
                ],
                memories: [
                    a_search_finds_any_word_in_any_form_and_ranks_by_importance,
                    rarer_words_weigh_more,
                    filters_narrow_a_search,
                    no_words_at_all_list_the_most_important,
                    a_hostile_query_is_only_words,
                    a_near_duplicate_is_merged_into_what_is_there,
                    another_category_user_or_fact_is_not_merged,
                    the_same_intent_changes_nothing_more,
                    a_merged_text_is_found_by_its_new_words_only,
                    found_memories_are_touched,
                    an_importance_out_of_range_is_brought_into_it,
                ],
                plain: [
                    a_key_comes_back_whole_and_is_replaced_by_its_id,
                    keys_are_listed_oldest_first,
                    note_of_a_use_keeps_the_revocation_of_another_process,
                    a_breaker_row_comes_back_and_is_replaced,
                    open_breakers_lists_every_row_that_is_not_closed,
                    the_store_answers_and_says_what_it_is,
                ],
                load: [
                    ten_thousand_appends_of_a_hundred_conversations_lose_nothing,
                ],
            }
        }
    };
}

contract!(sqlite, crate::stores::sqlite);
contract!(memory, crate::stores::memory);
contract!(postgres, crate::stores::postgres);
