//! One round: wait for a permit, call the model and stream its drafts, give the permit back. The permit is never held across
//! a wait for anything else (invariant 8), and is released even if the task is aborted.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
    time::Duration,
};

use annie_core::{
    aloud::VoiceFormat,
    event::{EventBody, NewEvent, Priority},
    ids::{AgentId, ConversationId, Epoch, TaskId, UserId},
    message::{ModelError, ModelErrorKind, ModelReply, ModelRequest},
    ports::{Append, AppendError, Fence},
    redact::Redaction,
    route,
    spend::{Cap, Unit},
    time::Micros,
    turn::Shows,
    workflow::WORKFLOW,
};
use parking_lot::Mutex;

use super::{drafts, facts::reply_to_end};
use crate::{
    log_writer::{LogError, append},
    observe::task_point,
    scheduler::{PermitRequest, RequestHandle, RoundChoice, Verdict, acquire},
    spend::{Payer, input_tokens},
    tasks::caught,
    wiring::{Backend, Wiring},
};

/// Attempts to store the mark that a round began before the round is given up; together about ten seconds.
const MARKS_MAX: u32 = 9;

/// The persona in a request to an agentic backend.
const PERSONA: &str =
    "You work for Annie, an assistant, on one task of a user. Do it, and report in words what you did.";

/// Whether a round may begin on an agentic backend, and whether it has begun. The round shares this with its Engine, which
/// may end the turn at any moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Begin(Arc<AtomicU8>);

impl Begin {
    const OPEN: u8 = 0;
    const BEGUN: u8 = 1;
    const FORBIDDEN: u8 = 2;

    /// Marks the round as begun. Returns false if the round was forbidden before.
    fn begin(&self) -> bool {
        let before = self.0.compare_exchange(Self::OPEN, Self::BEGUN, Ordering::SeqCst, Ordering::SeqCst);
        before != Err(Self::FORBIDDEN)
    }

    /// Whether the round may have begun.
    pub(crate) fn has_begun(&self) -> bool {
        self.0.load(Ordering::SeqCst) == Self::BEGUN
    }

    /// Clears the mark, because the backend did nothing: the round may begin on another backend.
    fn take_back(&self) {
        let _ = self.0.compare_exchange(Self::BEGUN, Self::OPEN, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// Forbids the round. Returns false if it may have begun already.
    pub(crate) fn forbid(&self) -> bool {
        let before = self.0.compare_exchange(Self::OPEN, Self::FORBIDDEN, Ordering::SeqCst, Ordering::SeqCst);
        before != Err(Self::BEGUN)
    }
}

/// How long rounds wait for their permits, shared with the actor that runs the rounds: this time does not count against the
/// task.
#[derive(Debug, Clone, Default)]
pub(crate) struct Waits(Arc<Mutex<Waited>>);

#[derive(Debug, Default)]
struct Waited {
    /// The sum of all finished waits, in milliseconds.
    ms: u64,
    /// Since when a round waits for its permit.
    since: Option<Micros>,
    /// How long models have read prompts before their first tokens, in milliseconds, and since when one reads now.
    prefill_ms: u64,
    reads_since: Option<Micros>,
}

impl Waits {
    /// Starts a wait, unless one is under way.
    pub(crate) fn begin(&self, now: Micros) {
        self.0.lock().since.get_or_insert(now);
    }

    /// Ends the wait and returns its length, in milliseconds.
    pub(super) fn end(&self, now: Micros) -> u64 {
        let mut waited = self.0.lock();
        let ms = waited.since.take().map_or(0, |since| now.since_ms(since));
        waited.ms = waited.ms.saturating_add(ms);
        ms
    }

    /// Whether a round waits for its permit now.
    pub(crate) fn is_waiting(&self) -> bool {
        self.0.lock().since.is_some()
    }

    /// Records that a model starts to read a prompt.
    fn begin_to_read(&self, now: Micros) {
        self.0.lock().reads_since = Some(now);
    }

    /// Records that the first token has arrived, or that none will arrive. Returns how long the model read, in milliseconds;
    /// 0 if that was recorded before.
    pub(super) fn has_read(&self, now: impl FnOnce() -> Micros) -> u64 {
        let mut waited = self.0.lock();
        let ms = waited.reads_since.take().map_or(0, |since| now().since_ms(since));
        waited.prefill_ms = waited.prefill_ms.saturating_add(ms);
        ms
    }

    /// Whether a model reads a prompt now.
    pub(crate) fn is_reading(&self) -> bool {
        self.0.lock().reads_since.is_some()
    }

    /// How long models have read prompts until `now`, in milliseconds.
    pub(crate) fn read_ms_until(&self, now: Micros) -> u64 {
        let waited = self.0.lock();
        waited.prefill_ms.saturating_add(waited.reads_since.map_or(0, |since| now.since_ms(since)))
    }

    /// How long rounds have waited for permits until `now`, in milliseconds.
    pub(crate) fn ms_until(&self, now: Micros) -> u64 {
        let waited = self.0.lock();
        waited.ms.saturating_add(waited.since.map_or(0, |since| now.since_ms(since)))
    }
}

/// The input of one round.
pub(crate) struct ModelCall {
    pub task: TaskId,
    pub user: UserId,
    pub conversation: ConversationId,
    pub agent: AgentId,
    pub priority: Priority,
    pub round: u32,
    pub request: ModelRequest,
    /// Time limit of the model call, in milliseconds, without the wait for the permit.
    pub ms_max: u64,
    /// The epoch under which marks of the round are stored.
    pub epoch: Epoch,
    /// The backends that may run the round, the preferred one first.
    pub route: Vec<String>,
    /// The round starts after these tasks have ended.
    pub after: Vec<TaskId>,
    /// Moves the task within its class, in milliseconds; follows from the user's mood.
    pub shift_ms: i64,
    /// Lets the Engine withdraw the permit request, unless the permit has been granted.
    pub handle: RequestHandle,
    /// Whether the round may begin on an agentic backend, and has begun.
    pub begin: Begin,
    /// The round's number and the maximum, for a round of the orchestrator; `None` for a sub-agent.
    pub progress: Option<(u32, u32)>,
    /// How long the round waits for its permits.
    pub waits: Waits,
    /// What is redacted in drafts, and the user's own words, which are not.
    pub redaction: Arc<(Vec<Redaction>, String)>,
    /// What listeners see of drafts.
    pub shows: Shows,
    /// Whether the reply may be that of an earlier equal request.
    pub may_reuse: bool,
    /// The form of drafts, if the answer is read aloud.
    pub voice: Option<VoiceFormat>,
    /// Whose accounts the round uses.
    pub payer: Payer,
}

impl ModelCall {
    fn permit_request(&self, route: Vec<String>, now: Micros) -> PermitRequest {
        PermitRequest {
            task: self.task,
            user: self.user.clone(),
            conversation: self.conversation,
            priority: self.priority,
            since: now.plus_ms(self.shift_ms),
            after: self.after.clone(),
            route,
            progress: self.progress,
            is_task: true,
        }
    }
}

/// The result of a round.
#[derive(Debug)]
pub(crate) struct ModelDone {
    pub task: TaskId,
    pub round: u32,
    pub result: Result<ModelReply, ModelError>,
    pub backend: String,
    /// How long the model calls ran after their permits, in milliseconds.
    pub ran_ms: u64,
    /// How long the round waited for its permits, in milliseconds.
    pub waited_ms: u64,
    /// How long models read the prompt before their first tokens, in milliseconds.
    pub prefill_ms: u64,
    /// Why the round was next on each backend that was tried, where others waited.
    pub choices: Vec<RoundChoice>,
    /// Whether an agentic backend was used that may have had effects.
    pub acted: bool,
    /// Whether the backend was called. If not, the failure does not concern the backend, and no fallback is tried.
    is_asked: bool,
    /// Whether the backend was not called because a cap on money is reached. A backend that costs nothing may run the round.
    is_too_expensive: bool,
    /// The cap below which only the reservations of rounds under way keep the round. The backend was not called.
    waits_for: Option<Cap>,
}

impl ModelDone {
    /// The end of a round whose reply comes from the workflow of the turn. No backend was called.
    pub fn of_workflow(task: TaskId, round: u32, reply: ModelReply, waited_ms: u64) -> Self {
        Self {
            task,
            round,
            result: Ok(reply),
            backend: WORKFLOW.to_owned(),
            ran_ms: 0,
            waited_ms,
            prefill_ms: 0,
            choices: Vec::new(),
            acted: false,
            is_asked: false,
            is_too_expensive: false,
            waits_for: None,
        }
    }
}

/// Runs a round on the first backend of its route that grants a permit. If the round fails in a way that another backend may
/// not, it is retried on the next one, with a permit of its own.
pub(crate) async fn call_model(wiring: Arc<Wiring>, call: ModelCall) -> ModelDone {
    let mut route = call.route.clone();
    let (mut ran_ms, mut waited_ms, mut prefill_ms) = (0, 0, 0);
    let mut choices = Vec::new();
    loop {
        let done = call_once(&wiring, &call, route.clone()).await;
        let mut done = unless_it_never_began(&wiring, &call, done).await;
        choices.append(&mut done.choices);
        ran_ms += done.ran_ms;
        waited_ms += done.waited_ms;
        prefill_ms += done.prefill_ms;
        let rest = match &done.result {
            Err(error) if done.is_asked => route::stand_ins(&route, &done.backend, error, &wiring.known_facts()),
            Err(_) if done.is_too_expensive => wiring.spend.free_of(&route, &wiring.known_facts()),
            Ok(_) | Err(_) => Vec::new(),
        };
        if rest.is_empty() {
            return ModelDone { ran_ms, waited_ms, prefill_ms, choices, ..done };
        }
        metrics::counter!("annie_rounds_failed_over_total", "backend" => done.backend.clone()).increment(1);
        tracing::info!(task = %call.task, from = done.backend, to = ?rest, "retrying a round on another backend");
        route = rest;
    }
}

/// Stores that an agentic backend did nothing, before another backend is called. Otherwise the reply of the other backend,
/// or an interruption, would be taken for the work of the first.
async fn unless_it_never_began(wiring: &Arc<Wiring>, call: &ModelCall, done: ModelDone) -> ModelDone {
    match &done.result {
        Err(error) if done.acted && route::is_without_effect(error) => {}
        Ok(_) | Err(_) => return done,
    }
    let body = EventBody::RoundNotBegun { round: call.round, backend: done.backend.clone() };
    match mark(wiring, call, body).await {
        Ok(()) => {
            call.begin.take_back();
            ModelDone { acted: false, ..done }
        }
        // The log still says that the round began on that backend, so no other backend may begin it.
        Err(e) => {
            let why = format!("{}; and that it did nothing could not be stored: {e}", done.backend);
            ModelDone { result: Err(ModelError::new(ModelErrorKind::InDoubt, why)), ..done }
        }
    }
}

/// Runs a round on the first backend of the route that grants a permit. If only reservations of other rounds keep it below a cap
/// on spending, it waits for their ends without a permit, so that others use the backend meanwhile.
async fn call_once(wiring: &Arc<Wiring>, call: &ModelCall, route: Vec<String>) -> ModelDone {
    let (mut releases, since, mut waited_ms) = (wiring.spend.releases(), wiring.env.now(), 0);
    loop {
        releases.mark();
        let done = call_permitted(wiring, call, (route.clone(), since)).await;
        waited_ms += done.waited_ms;
        let Some(cap) = done.waits_for else { return ModelDone { waited_ms, ..done } };
        call.waits.begin(wiring.env.now());
        let may_fit = match wiring.backends.get(&done.backend) {
            Some(endpoint) => {
                let (facts, cost) = (&endpoint.facts, cost_of(wiring, call, endpoint));
                wiring.spend.may_fit_in_time(&mut releases, &call.payer, (facts, cost), &wiring.env).await
            }
            None => false,
        };
        waited_ms += call.waits.end(wiring.env.now());
        if !may_fit {
            note_refusal(call, cap);
            return ModelDone { waited_ms, ..done };
        }
    }
}

/// The tokens of the round's prompt and of its longest answer on this backend.
fn cost_of(wiring: &Wiring, call: &ModelCall, endpoint: &Backend) -> (u64, u32) {
    let window = wiring.leases.window(&endpoint.name);
    (input_tokens(&call.request), route::output_tokens(&call.request, &endpoint.facts, window))
}

/// Logs and counts a round that is not run because of a cap on spending.
fn note_refusal(call: &ModelCall, cap: Cap) {
    metrics::counter!("annie_spend_refusals_total", "cap" => cap.as_str()).increment(1);
    tracing::info!(task = %call.task, cap = cap.as_str(), "a round would exceed a cap on spending");
}

async fn call_permitted(wiring: &Arc<Wiring>, call: &ModelCall, (route, since): (Vec<String>, Micros)) -> ModelDone {
    let clock = wiring.env.clock.clone();
    let wanted = call.permit_request(route, since);
    let (task, round) = (call.task, call.round);
    wiring.spend.read(wiring.store.as_ref(), &call.payer, wiring.env.now()).await;
    call.waits.begin(wiring.env.now());
    let unavailable = |why: &dyn std::fmt::Display| Err(ModelError::new(ModelErrorKind::Unavailable, why.to_string()));
    let permit = acquire(&wiring.scheduler, wanted, &call.handle).await;
    let waited_ms = call.waits.end(wiring.env.now());
    let mut permit = match permit {
        Ok(permit) => permit,
        Err(why) => return not_asked(call, why.into_error(wiring.env.now()), waited_ms),
    };
    let choices = permit.take_choice().map(|choice| *choice).into_iter().collect();
    let backend = permit.backend().to_owned();
    let from_us = clock.monotonic_us();
    let asked = |result| Asked { is_asked: true, ..Asked::not(result) };
    let Asked { result, acted, prefill_ms, is_asked, is_too_expensive, waits_for } =
        match (task_point(&wiring.env, "round", "permitted").await, wiring.backends.get(&backend)) {
            (Err(why), _) => asked(unavailable(&why)),
            (Ok(()), Some(endpoint)) => ask(wiring, call, endpoint).await,
            (Ok(()), None) => asked(unavailable(&format!("there is no backend {backend:?}"))),
        };
    // After an agentic backend may have acted, the round must not be retried, whatever happened to its result.
    let lost = |why: &dyn std::fmt::Display| {
        let kind = if acted { ModelErrorKind::InDoubt } else { ModelErrorKind::Unavailable };
        Err(ModelError::new(kind, why.to_string()))
    };
    let result = match task_point(&wiring.env, "round", "replied").await {
        Ok(()) => result,
        Err(why) => lost(&why),
    };
    let ran_us = clock.monotonic_us().saturating_sub(from_us);
    if is_asked {
        permit.explained(&result).give_back(ran_us / 1_000, Verdict::of(&result));
        measure(&backend, &result, ran_us);
        if let Ok(reply) = &result {
            wiring.hub.pulse().tokens_written(reply.usage.output_tokens, wiring.env.now());
            wiring.hub.pulse().round_spoke(waited_ms.saturating_add(prefill_ms), wiring.env.now());
        }
    } else {
        permit.give_back(0, Verdict::Unused);
    }
    let result = match task_point(&wiring.env, "round", "given_back").await {
        Ok(()) => result,
        Err(why) => lost(&why),
    };
    let ran_ms = ran_us / 1_000;
    ModelDone {
        task,
        round,
        result,
        backend,
        ran_ms,
        waited_ms,
        prefill_ms,
        choices,
        acted,
        is_asked,
        is_too_expensive,
        waits_for,
    }
}

/// What became of a round with a permit.
struct Asked {
    result: Result<ModelReply, ModelError>,
    acted: bool,
    prefill_ms: u64,
    is_asked: bool,
    is_too_expensive: bool,
    waits_for: Option<Cap>,
}

impl Asked {
    /// A round that called no backend.
    const fn not(result: Result<ModelReply, ModelError>) -> Self {
        Self { result, acted: false, prefill_ms: 0, is_asked: false, is_too_expensive: false, waits_for: None }
    }
}

/// Runs a round, unless it would exceed a cap on spending or may not begin.
async fn ask(wiring: &Arc<Wiring>, call: &ModelCall, endpoint: &Backend) -> Asked {
    let may_keep = call.may_reuse && !endpoint.facts.acts;
    let key = may_keep.then(|| wiring.replies.key(&call.user, &endpoint.name, &call.request)).flatten();
    if let Some(reply) = key.and_then(|key| wiring.replies.reply(key, wiring.env.now())) {
        tracing::info!(task = %call.task, "an earlier reply to an equal request is used again");
        return Asked::not(Ok(reply));
    }
    let cost = cost_of(wiring, call, endpoint);
    let reservation = match wiring.spend.reserve(&call.payer, &endpoint.facts, cost, wiring.env.now()) {
        Ok(reservation) => reservation,
        Err(refusal) => {
            let waits_for = refusal.may_pass().then_some(refusal.cap);
            if waits_for.is_none() {
                note_refusal(call, refusal.cap);
            }
            let is_too_expensive = refusal.unit == Unit::Money;
            return Asked { waits_for, is_too_expensive, ..Asked::not(Err(refusal.into_error(wiring.env.now()))) };
        }
    };
    // After the reservation: a round that goes on with another backend counts once.
    if let Err(refusal) = wiring.spend.count_call(&call.payer, wiring.limits.guards.calls, wiring.env.now()) {
        metrics::counter!("annie_guard_findings_total", "guard" => "model_calls", "action" => "refuse").increment(1);
        tracing::info!(task = %call.task, used = refusal.used, "a round would exceed the cap on model calls");
        return Asked::not(Err(refusal.into_error()));
    }
    match prepare(wiring, call, endpoint).await {
        Ok(handed_over) => {
            let acted = handed_over.is_some();
            let (result, prefill_ms) = run(wiring, call, endpoint, (handed_over, cost.1)).await;
            if let Ok(reply) = &result {
                reservation.settle(&reply.usage);
                if let Some(key) = key {
                    wiring.replies.keep(key, reply, wiring.env.now());
                }
            }
            Asked { acted, prefill_ms, is_asked: true, ..Asked::not(result) }
        }
        Err(why) => Asked::not(Err(why)),
    }
}

/// The result of a round that got no permit.
fn not_asked(call: &ModelCall, error: ModelError, waited_ms: u64) -> ModelDone {
    ModelDone {
        task: call.task,
        round: call.round,
        result: Err(error),
        backend: String::new(),
        ran_ms: 0,
        waited_ms,
        prefill_ms: 0,
        choices: Vec::new(),
        acted: false,
        is_asked: false,
        is_too_expensive: false,
        waits_for: None,
    }
}

/// Prepares a round on an agentic backend: stores the mark that the round begins, and builds a request from the task instead
/// of the conversation. Returns `None` for other backends.
async fn prepare(
    wiring: &Arc<Wiring>,
    call: &ModelCall,
    endpoint: &Backend,
) -> Result<Option<ModelRequest>, ModelError> {
    if !endpoint.facts.acts {
        return Ok(None);
    }
    let not_begun = |why: &dyn std::fmt::Display| {
        call.begin.take_back();
        Err(ModelError::new(ModelErrorKind::Protocol, format!("it was not begun: {why}")))
    };
    if !call.begin.begin() {
        return Err(ModelError::new(ModelErrorKind::Protocol, "it was not begun: its turn has ended"));
    }
    let holder = wiring.lease.incarnation();
    // The mark is stored before the round begins: a round that is found begun is never run again.
    let body = EventBody::RoundBegan { round: call.round, backend: endpoint.name.clone() };
    if let Err(e) = mark(wiring, call, body).await {
        return not_begun(&e);
    }
    // A process that was frozen after it stored the mark may have been replaced; the new owner treats the round as in doubt.
    if wiring.lease.holds(holder, &*wiring.env.clock).await {
        Ok(Some(hand_over(call, endpoint)))
    } else {
        not_begun(&"the lease of this process has run out")
    }
}

async fn run(
    wiring: &Arc<Wiring>,
    call: &ModelCall,
    endpoint: &Backend,
    (handed_over, output_tokens_max): (Option<ModelRequest>, u32),
) -> (Result<ModelReply, ModelError>, u64) {
    let read_ms = Arc::new(AtomicU64::new(0));
    let sink = drafts::sink(wiring, call, &read_ms);
    let ms_max = endpoint.round_ms_max.unwrap_or(call.ms_max);
    let wait = Duration::from_millis(ms_max);
    let is_fitting = handed_over.is_some() || output_tokens_max == call.request.output_tokens_max;
    let fitted = (!is_fitting).then(|| ModelRequest { output_tokens_max, ..call.request.clone() });
    let request = handed_over.as_ref().or(fitted.as_ref()).unwrap_or(&call.request);
    // An agentic backend acts from the start, so it has no reading phase.
    if handed_over.is_none() {
        call.waits.begin_to_read(wiring.env.now());
    }
    let reply = async {
        match reply_to_end(&*endpoint.model, request) {
            Some(reply) => Ok(reply),
            None => endpoint.model.call(request, sink).await,
        }
    };
    let result = match tokio::time::timeout(wait, caught(reply)).await {
        Ok(Ok(result)) => result,
        Ok(Err(panic)) => Err(ModelError::new(ModelErrorKind::Protocol, format!("the client panicked: {panic}"))),
        Err(_) => {
            let detail = format!("no complete answer within {} s", ms_max / 1_000);
            Err(ModelError::new(ModelErrorKind::Timeout, detail))
        }
    };
    read_ms.fetch_add(call.waits.has_read(|| wiring.env.now()), Ordering::Relaxed);
    let result = result.map_err(|error| if handed_over.is_some() { in_doubt(error) } else { error });
    (result, read_ms.load(Ordering::Relaxed))
}

/// Stores whether this round began on an agentic backend.
async fn mark(wiring: &Arc<Wiring>, call: &ModelCall, body: EventBody) -> Result<(), LogError> {
    let mark = NewEvent { at: wiring.env.now(), task: call.task, agent: call.agent.clone(), body };
    let what = Append {
        conversation: call.conversation,
        user: call.user.clone(),
        fence: Fence::Owner(call.epoch),
        events: vec![mark],
    };
    let mut attempt = 0;
    loop {
        attempt += 1;
        match append(&wiring.log, what.clone()).await {
            Ok(_) => return Ok(()),
            // Whether the mark is stored is unknown. A second mark does no harm, since this task alone begins this round.
            Err(LogError::Lost(_) | LogError::Refused(AppendError::Store(_))) if attempt < MARKS_MAX => {
                tokio::time::sleep(Duration::from_millis(20 << attempt)).await;
            }
            Err(e) => return Err(e),
        }
    }
}

/// Marks a failure during work that may have had effects as in doubt.
fn in_doubt(error: ModelError) -> ModelError {
    match error.kind {
        ModelErrorKind::Timeout | ModelErrorKind::Truncated | ModelErrorKind::Protocol => {
            ModelError { kind: ModelErrorKind::InDoubt, ..error }
        }
        _ => error,
    }
}

fn hand_over(call: &ModelCall, endpoint: &Backend) -> ModelRequest {
    const TOKENS_MAX: u32 = 8_000;
    let tokens_max = endpoint.facts.context_tokens_max.unwrap_or(TOKENS_MAX);
    ModelRequest {
        messages: route::hand_over(PERSONA, &call.request.messages, tokens_max),
        stable_messages: 0,
        system: Vec::new(),
        tools: Vec::new(),
        ..call.request.clone()
    }
}

fn measure(backend: &str, result: &Result<ModelReply, ModelError>, ran_us: u64) {
    let outcome = match result {
        Ok(_) => "ok",
        Err(e) => e.kind.as_str(),
    };
    metrics::counter!("annie_llm_requests_total", "backend" => backend.to_owned(), "outcome" => outcome).increment(1);
    #[expect(clippy::cast_precision_loss, reason = "a duration in a histogram")]
    metrics::histogram!("annie_llm_request_seconds", "backend" => backend.to_owned()).record(ran_us as f64 / 1e6);
    if let Ok(reply) = result {
        let count = |kind: &'static str, tokens: u64| {
            metrics::counter!("annie_llm_tokens_total", "type" => kind).increment(tokens);
        };
        // The provider's input count includes cached and written tokens; the types reported here are disjoint, so they can
        // be summed.
        let from_cache = reply.usage.cached_tokens.saturating_add(reply.usage.cache_written_tokens);
        count("input", reply.usage.input_tokens.saturating_sub(from_cache));
        count("cached", reply.usage.cached_tokens);
        for repair in &reply.repairs {
            metrics::counter!("annie_llm_repairs_total", "kind" => repair.as_str()).increment(1);
        }
        count("cache_written", reply.usage.cache_written_tokens);
        count("output", reply.usage.output_tokens);
    }
}
