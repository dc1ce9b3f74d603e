//! Metrics for `/metrics`, set up once per process; a second call changes nothing.

mod process;

use std::sync::OnceLock;

use annie_actors::{BackendLoad, Kernel};
use annie_core::{event::Priority, spend::Cap};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

/// Upper bounds of the buckets of time histograms, in seconds.
const SECONDS: [f64; 14] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0];
/// The same for whole tasks: some wait for others, for a person or for a time.
const TURN_SECONDS: [f64; 14] = [0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1_800.0, 7_200.0];

type Help = (&'static str, &'static str);

const COUNTERS: &[Help] = &[
    ("annie_conversations_lost_total", "Engines that ended because this process did not own their conversation"),
    ("annie_conversations_quarantined_total", "Conversations put into quarantine because their Engine kept crashing"),
    ("annie_answers_redacted_total", "Secrets and numbers of persons replaced in answers"),
    ("annie_answers_spoken_total", "Changes of answers that are read aloud, by kind"),
    ("annie_guard_findings_total", "What guards of input found, by guard and action"),
    ("annie_reply_cache_total", "Rounds whose reply may be used again, by result: hit or miss"),
    ("annie_agents_controlled_total", "Texts to sub-agents and sub-agents that a person ended"),
    ("annie_approvals_requested_total", "Calls of skills that waited for a person"),
    ("annie_llm_cost_nanodollars_total", "Money that model calls cost, in billionths of a US dollar"),
    ("annie_conversations_deleted_total", "Conversations that were deleted by a request"),
    ("annie_erased_conversations_total", "Deleted conversations whose content was erased"),
    ("annie_erased_events_total", "Events whose content was erased"),
    ("annie_erasure_failures_total", "Erasures of a conversation, and applications of the retention, that failed"),
    ("annie_retention_conversations_total", "Conversations that the retention deleted"),
    ("annie_retention_working_data_total", "Snapshots that the retention deleted"),
    (
        "annie_audit_failures_total",
        "Conversations whose events could not be sealed in a pass, because a row cannot be read",
    ),
    ("annie_audit_sealed_events_total", "Stored events that were sealed for the audit chain"),
    (
        "annie_untrusted_calls_total",
        "Effects outside that wait for a person because their agent has read text of others",
    ),
    ("annie_api_panics_total", "Request handlers that panicked"),
    ("annie_log_appends_total", "Appends to the log"),
    ("annie_log_commits_total", "Transactions that carried the appends"),
    ("annie_log_refusals_total", "Appends refused because too many wait for a commit"),
    ("annie_alternatives_total", "Requests of agents for another approach that were answered"),
    ("annie_loops_detected_total", "Loops of agents found by the loop guard, by pattern and level"),
    ("annie_messages_total", "Messages stored and acknowledged"),
    ("annie_error_steps_total", "Steps decided after failures of skills, by kind of error, step and who takes it"),
    ("annie_hook_failures_total", "Hooks that failed: they panicked or gave no valid answer in time"),
    (
        "annie_hook_verdicts_total",
        "Verdicts of hooks: refuse; replace of programs only; continue of programs and failures only",
    ),
    ("annie_node_leases_lost_total", "Times that this process was declared dead by another one on the same database"),
    ("annie_notifications_total", "Notifications of work that ended while its user was away"),
    ("annie_reminders_total", "Reminders by result: sent, refused"),
    ("annie_workflow_steps_total", "Replies that came from a workflow in place of a model"),
    ("annie_schedule_occurrences_total", "Occurrences of schedules by result: submitted, skipped, missed, refused"),
    ("annie_operations_expired_total", "Long-running operations whose result did not come in time"),
    ("annie_actions_unrecorded_total", "Entries of operators' actions that the store did not take in time"),
    ("annie_operations_total", "Actors stopped, killed or restarted by operators"),
    ("annie_queue_moves_total", "Waiting rounds moved to another backend"),
    ("annie_queue_parks_total", "Tasks whose next round was withheld for a task of class high"),
    ("annie_results_flagged_total", "Results of skills that may not answer the request"),
    ("annie_routes_refused_total", "Turns that no backend may run"),
    ("annie_telemetry_dropped_total", "Traces that were not sent: too many waited, or the collector refused them"),
    ("annie_wrong_keys_total", "Requests with a wrong, expired or revoked key"),
];

const LABELLED_COUNTERS: &[Help] = &[
    ("annie_actor_crashes_total", "Crashes of actors by kind"),
    ("annie_actor_restarts_total", "Restarts of actors by a supervisor"),
    ("annie_actors_stuck_total", "Actors killed because a handler ran too long"),
    ("annie_breaker_transitions_total", "State changes of circuit breakers"),
    ("annie_chaos_faults_total", "Faults injected by operators"),
    ("annie_chaos_injections_total", "Times that an injected fault took effect"),
    ("annie_connections_cut_total", "Connections closed by the limits of the listener"),
    (
        "annie_deliveries_total",
        "Attempts to deliver a text to an address by channel and end: delivered, retried, diverted",
    ),
    ("annie_embeddings_total", "Requests for embeddings by backend and outcome: ok, or the kind of failure"),
    ("annie_interface_fallbacks_total", "Backends whose turns went from tools to commands"),
    ("annie_llm_repairs_total", "Replies that were mended, by kind: thinking, stop_token, text_call, arguments"),
    ("annie_llm_requests_total", "Rounds by backend and outcome: ok, or the kind of failure"),
    ("annie_llm_tokens_total", "Tokens: input (not from a cache), cached, cache_written, output"),
    ("annie_compactions_total", "Conversations whose older part was summarised"),
    ("annie_rounds_failed_over_total", "Rounds tried on another backend after this one failed"),
    ("annie_routes_total", "Turns by the backend that is first on their route"),
    ("annie_spend_refusals_total", "Model calls not made because of a cap on spending: turn, conversation, user_day"),
    ("annie_skill_refusals_total", "Skill runs not begun: breaker open, or busy"),
    ("annie_skill_runs_total", "Skill runs by skill and outcome"),
    ("annie_tasks_refused_total", "Messages refused because a queue is full"),
    ("annie_telemetry_spans_total", "Spans by result: sent, or refused by the collector"),
];

const GAUGES: &[Help] = &[
    ("annie_actors_alive", "Actors alive, by kind"),
    ("annie_backend_up", "1 while the backend is there and its last round was answered"),
    ("annie_breaker_state", "State of a skill's circuit breaker: 0 closed, 1 half-open, 2 open"),
    ("annie_build_info", "Version; always 1"),
    ("annie_class_paused", "1 while an operator has paused the class"),
    ("annie_conversations_in_memory", "Conversations whose Engine is in memory"),
    ("annie_dead_letters_waiting", "Failed work that may be tried again"),
    ("annie_llm_cache_hit_ratio", "Input tokens read from a cache, as a part of all input tokens since the start"),
    ("annie_permits_in_use", "Rounds that run, by backend"),
    ("annie_permits_max", "Rounds that may run at the same time, by backend"),
    ("annie_queue_depth", "Tasks that wait, by class"),
    ("annie_sse_clients", "Open event streams"),
    ("annie_telemetry_queue", "Traces that wait to be sent"),
    ("annie_workers_blocked_seconds", "Time in which no worker thread has run anything; 0 while they work"),
    ("annie_voice_gate_closed", "1 while voice keeps other rounds out of the backend"),
];

const HISTOGRAMS: &[Help] = &[
    ("annie_llm_request_seconds", "Time of a round after its permit"),
    ("annie_log_commit_seconds", "Time of a commit with its fsync"),
    ("annie_queue_wait_seconds", "Wait of a round for its permit, by class"),
    ("annie_request_seconds", "Time of requests by route and outcome: ok, refused, failed"),
    ("annie_turn_seconds", "Time of tasks from their acceptance to their end, by outcome"),
    ("annie_voice_gate_closed_seconds", "Spans in which voice kept other rounds out"),
];

/// Installs the metrics recorder. Returns nothing if another recorder is installed already, or if the bucket bounds are not
/// valid.
pub fn metrics() -> Option<PrometheusHandle> {
    static HANDLE: OnceLock<Option<PrometheusHandle>> = OnceLock::new();
    let make = || {
        let builder = PrometheusBuilder::new().set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &SECONDS);
        let turns = Matcher::Full("annie_turn_seconds".to_owned());
        let builder = builder.ok()?.set_buckets_for_metric(turns, &TURN_SECONDS);
        let handle = builder.ok()?.install_recorder().ok()?;
        metrics::gauge!("annie_build_info", "version" => env!("CARGO_PKG_VERSION")).set(1.0);
        describe();
        process::describe();
        Some(handle)
    };
    HANDLE.get_or_init(make).clone()
}

/// Notes for how many seconds no worker thread has run anything; 0 while they work.
pub fn workers_blocked(seconds: f64) {
    metrics::gauge!("annie_workers_blocked_seconds").set(seconds);
}

/// The kind of the actor that runs a conversation in memory.
const ENGINE: &str = "engine";

/// The page for Prometheus, with the current actor counts and the memory, file descriptors and CPU time of the process.
#[must_use]
pub fn render(recorder: &PrometheusHandle, kernel: &Kernel) -> String {
    let actors = kernel.actors_by_kind();
    #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52 actors")]
    for (kind, count) in &actors {
        metrics::gauge!("annie_actors_alive", "kind" => *kind).set(*count as f64);
        if *kind == ENGINE {
            metrics::gauge!("annie_conversations_in_memory").set(*count as f64);
        }
    }
    measure_backends(kernel);
    process::measure();
    recorder.run_upkeep();
    recorder.render()
}

#[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52 permits")]
fn measure_backends(kernel: &Kernel) {
    for BackendLoad { backend, permits, slots, is_gate_closed } in kernel.backend_loads() {
        metrics::gauge!("annie_permits_in_use", "backend" => backend.clone()).set(permits as f64);
        metrics::gauge!("annie_permits_max", "backend" => backend.clone()).set(slots as f64);
        metrics::gauge!("annie_voice_gate_closed", "backend" => backend).set(f64::from(u8::from(is_gate_closed)));
    }
}

/// Registers the help texts, and a zero for every counter without labels: if a counter first appears with the value 1,
/// Prometheus' `increase` misses its first event.
fn describe() {
    for (name, help) in COUNTERS {
        metrics::describe_counter!(*name, *help);
        metrics::counter!(*name).increment(0);
    }
    for (name, help) in LABELLED_COUNTERS {
        metrics::describe_counter!(*name, *help);
    }
    for (name, help) in GAUGES {
        metrics::describe_gauge!(*name, *help);
    }
    for (name, help) in HISTOGRAMS {
        metrics::describe_histogram!(*name, *help);
    }
    // Permanent actors register their gauges when they start; actors of these kinds start with the first work.
    metrics::gauge!("annie_conversations_in_memory").set(0.0);
    workers_blocked(0.0);
    for kind in [ENGINE, "sub_agent", "breaker"] {
        metrics::gauge!("annie_actors_alive", "kind" => kind).set(0.0);
        metrics::counter!("annie_actor_crashes_total", "kind" => kind).increment(0);
        metrics::counter!("annie_actors_stuck_total", "kind" => kind).increment(0);
    }
    metrics::gauge!("annie_llm_cache_hit_ratio").set(0.0);
    for kind in ["input", "cached", "cache_written", "output"] {
        metrics::counter!("annie_llm_tokens_total", "type" => kind).increment(0);
    }
    for cap in [Cap::Turn, Cap::Conversation, Cap::UserDay] {
        metrics::counter!("annie_spend_refusals_total", "cap" => cap.as_str()).increment(0);
    }
    for class in Priority::ALL {
        metrics::counter!("annie_tasks_refused_total", "priority" => class.as_str()).increment(0);
        if class != Priority::Realtime {
            metrics::gauge!("annie_class_paused", "priority" => class.as_str()).set(0.0);
        }
    }
}
