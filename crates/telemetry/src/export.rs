//! The exporter: it receives the final events of tasks, folds their logs into spans and sends these in batches.
//!
//! No turn waits for it. Ended tasks that do not fit into its queue are dropped and counted. What the process has not sent when it
//! ends is lost, as after a crash: the log keeps the facts, and traces are a copy of them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use annie_core::{
    event::{Event, EventBody, Scope, Topics},
    ids::Seq,
    ports::{Clock, LogSubscriber, Store, StoreError},
    time::Micros,
};
use tokio::sync::{Notify, watch};

use crate::{
    missed::{Known, ended_since},
    otlp::{Service, request},
    post::{Collector, Posted},
    queue::{Ended, Queue, TelemetryLimits},
    span::Span,
    trace::{TraceRules, spans_of},
};

/// The first and the longest wait before a request is repeated, in milliseconds.
const RETRY_MS: (u64, u64) = (1_000, 60_000);
/// How many events of a conversation are read at a time, from the final event of a task back to its message: at first, and then
/// up to so many.
const PAGE: (u64, u64) = (32, 256);
/// How far back the message of a task is looked for, in events. A longer trace begins in its middle.
const EVENTS_MAX: u64 = 16_384;

/// What an exporter is made of.
pub struct TelemetryParts {
    /// The log.
    pub store: Arc<dyn Store>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The receiver of the spans.
    pub collector: Collector,
    /// What the spans contain.
    pub rules: TraceRules,
    /// The limits.
    pub limits: TelemetryLimits,
    /// The name of the service in the spans.
    pub service: String,
    /// The id of this process.
    pub instance: String,
}

/// Sends the traces of ended tasks to a collector.
pub struct Exporter {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    /// When the exporter was made: traces of earlier runs are not sent.
    since: Micros,
    collector: Collector,
    rules: TraceRules,
    limits: TelemetryLimits,
    service: Service,
    queue: Queue,
    known: Known,
    /// Whether notifications may have been lost.
    must_reread: AtomicBool,
    /// Notified of a new task in the queue.
    added: Notify,
    /// Whether the process ends: nothing waits any more.
    is_closing: watch::Sender<bool>,
    /// Counts the ends of batches, for [`Exporter::settle`].
    batches: watch::Sender<u64>,
    /// Whether the last request failed.
    is_failing: AtomicBool,
    /// Traces that were dropped since the last request that was taken.
    dropped: AtomicU64,
    /// So many traces at the beginning of the queue are sent one by one, because the collector refused them together.
    singles: AtomicUsize,
}

/// Traces that are sent in one request.
struct Batch {
    /// The number of tasks at the beginning of the queue that it covers.
    tasks: usize,
    spans: usize,
    is_full: bool,
    body: Vec<u8>,
}

impl Exporter {
    /// An exporter. It sends nothing before [`Exporter::run`] is called.
    #[must_use]
    pub fn new(parts: TelemetryParts) -> Arc<Self> {
        let TelemetryParts { store, clock, collector, rules, limits, service: name, instance } = parts;
        Arc::new(Self {
            store,
            since: clock.now(),
            clock,
            collector,
            rules,
            limits,
            service: Service { name, instance },
            queue: Queue::new(limits.queue_max),
            known: Known::default(),
            must_reread: AtomicBool::new(false),
            added: Notify::new(),
            is_closing: watch::channel(false).0,
            batches: watch::channel(0).0,
            is_failing: AtomicBool::new(false),
            dropped: AtomicU64::new(0),
            singles: AtomicUsize::new(0),
        })
    }

    /// Sends what is in the queue, for ever. If this future is dropped, the next call continues with the same traces.
    ///
    /// # Errors
    /// None.
    pub async fn run(self: Arc<Self>) -> Result<(), String> {
        let mut is_behind = false;
        loop {
            loop {
                if self.must_reread.swap(false, Relaxed) {
                    self.reread_log().await;
                }
                if self.queue.len() > 0 {
                    break;
                }
                self.added.notified().await;
            }
            if !is_behind {
                self.pause(self.limits.delay_ms).await;
            }
            is_behind = self.send_batch().await;
            self.batches.send_modify(|count| *count += 1);
        }
    }

    /// Sends what is in the queue at once, for at most so many milliseconds. To be called when no further task ends.
    pub async fn settle(&self, ms_max: u64) {
        self.is_closing.send_replace(true);
        let mut batches = self.batches.subscribe();
        let empty = async { while self.queue.len() > 0 && batches.changed().await.is_ok() {} };
        if tokio::time::timeout(Duration::from_millis(ms_max), empty).await.is_err() {
            tracing::warn!(traces = self.queue.len(), "telemetry: traces were not sent before the process ended");
        }
    }

    /// Queues the tasks whose notification was lost. On a database that several nodes share, this cannot be told from the
    /// tasks of other nodes.
    async fn reread_log(&self) {
        if self.store.is_shared() {
            return;
        }
        match ended_since(self.store.as_ref(), self.since, self.clock.now()).await {
            Ok(ended) => ended.into_iter().for_each(|ended| self.add(ended)),
            // The next notification reads it again.
            Err(error) => {
                self.must_reread.store(true, Relaxed);
                tracing::warn!(%error, "telemetry: the log could not be read, some traces may be missing");
            }
        }
    }

    /// Queues an ended task.
    fn add(&self, ended: Ended) {
        if !self.known.note(ended.task) {
            return;
        }
        if self.queue.push(ended) {
            self.added.notify_one();
        } else {
            self.count_dropped(1);
            self.fails("too many traces wait");
        }
    }

    /// Waits, unless the process ends.
    async fn pause(&self, ms: u64) {
        let mut closing = self.is_closing.subscribe();
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(ms)) => {}
            _ = closing.wait_for(|is_closing| *is_closing) => {}
        }
    }

    /// Sends one batch, and repeats it until it is taken or refused. Returns whether it was full, so that more may wait.
    async fn send_batch(&self) -> bool {
        let mut wait_ms = RETRY_MS.0;
        let mut made = None;
        loop {
            let result = match &made {
                Some(batch) => Ok(batch),
                None => self.batch().await.map(|batch| &*made.insert(batch)),
            };
            let (after_ms, why) = match result {
                Ok(batch) if batch.spans == 0 => {
                    self.remove(batch);
                    return batch.is_full;
                }
                Ok(batch) => match self.collector.post(batch.body.clone()).await {
                    Posted::Taken { refused_spans, why } => {
                        self.taken(batch, refused_spans, &why);
                        return batch.is_full;
                    }
                    Posted::Refused(why) => {
                        return self.refused(batch, &why) || batch.is_full;
                    }
                    Posted::Later { after_ms, why } => (after_ms, why),
                },
                Err(error) => (0, error.to_string()),
            };
            self.fails(&why);
            if *self.is_closing.borrow() {
                self.give_up();
                return false;
            }
            self.pause(wait_ms.max(after_ms.min(RETRY_MS.1))).await;
            wait_ms = (wait_ms * 2).min(RETRY_MS.1);
        }
    }

    /// Drops everything, because the process ends.
    fn give_up(&self) {
        let traces = self.queue.len();
        self.queue.remove(traces);
        self.count_dropped(traces);
        tracing::warn!(traces, "telemetry: traces were not sent before the process ended");
    }

    /// The traces at the beginning of the queue, up to the size of a request.
    async fn batch(&self) -> Result<Batch, StoreError> {
        let (mut tasks, mut spans) = (0, Vec::new());
        while let Some(ended) = self.queue.get(tasks) {
            match self.spans(ended).await {
                Ok(own) => spans.extend(own),
                Err(error) if error.is_retryable() => return Err(error),
                // The other traces must not wait for one that can never be read.
                Err(error) => {
                    tracing::warn!(task = %ended.task, %error, "telemetry: a trace cannot be read and is dropped");
                    self.count_dropped(1);
                }
            }
            tasks += 1;
            if spans.len() >= self.limits.batch_spans_max || self.singles.load(Relaxed) > 0 {
                break;
            }
        }
        let body = request(&self.service, &spans).to_string().into_bytes();
        let is_full = tasks > 0 && (spans.len() >= self.limits.batch_spans_max || self.singles.load(Relaxed) > 0);
        Ok(Batch { tasks, spans: spans.len(), is_full, body })
    }

    /// The spans of a task. Empty if its conversation has been deleted since.
    async fn spans(&self, ended: Ended) -> Result<Vec<Span>, StoreError> {
        let Ended { task, conversation, seq } = ended;
        if self.store.deletion(conversation).await?.is_some() {
            return Ok(Vec::new());
        }
        let is_message = |event: &Event| event.task == task && matches!(event.body, EventBody::Received(_));
        let (mut events, mut until, mut page_max) = (Vec::new(), seq, PAGE.0);
        while until > Seq(0) && seq.0 - until.0 < EVENTS_MAX {
            let after = Seq(until.0.saturating_sub(page_max));
            let limit = u32::try_from(until.0 - after.0).unwrap_or(u32::MAX);
            let mut page = self.store.events(Scope::Operator, conversation, after, limit).await?;
            let is_whole = page.iter().any(is_message);
            page.retain(|event| event.task == task);
            page.append(&mut events);
            (events, until, page_max) = (page, after, (page_max * 2).min(PAGE.1));
            if is_whole {
                break;
            }
        }
        Ok(spans_of(task, &events, &self.rules))
    }

    /// Removes the traces of a batch from the queue.
    fn remove(&self, batch: &Batch) {
        self.queue.remove(batch.tasks);
        let _ = self.singles.fetch_update(Relaxed, Relaxed, |left| Some(left.saturating_sub(batch.tasks)));
    }

    fn taken(&self, batch: &Batch, refused_spans: u64, why: &str) {
        let refused_spans = refused_spans.min(batch.spans as u64);
        let spans = batch.spans as u64 - refused_spans;
        metrics::counter!("annie_telemetry_spans_total", "result" => "sent").increment(spans);
        let dropped = self.dropped.swap(0, Relaxed);
        if refused_spans > 0 {
            metrics::counter!("annie_telemetry_spans_total", "result" => "refused").increment(refused_spans);
            self.fails(&format!("the collector refused {refused_spans} spans: {why}"));
        } else if self.is_failing.swap(false, Relaxed) {
            tracing::info!(dropped, "telemetry: traces are sent again");
        }
        self.remove(batch);
    }

    /// The collector will not take the batch. Of several traces each is then sent by itself: one of them may be too large or not be
    /// understood. Returns whether that is so.
    fn refused(&self, batch: &Batch, why: &str) -> bool {
        self.fails(why);
        if batch.tasks > 1 {
            self.singles.store(batch.tasks, Relaxed);
            return true;
        }
        metrics::counter!("annie_telemetry_spans_total", "result" => "refused").increment(batch.spans as u64);
        self.remove(batch);
        self.count_dropped(batch.tasks);
        false
    }

    fn count_dropped(&self, traces: usize) {
        metrics::counter!("annie_telemetry_dropped_total").increment(traces as u64);
        self.dropped.fetch_add(traces as u64, Relaxed);
    }

    /// Logs the first failure after a success.
    fn fails(&self, why: &str) {
        if !self.is_failing.swap(true, Relaxed) {
            let queue_max = self.limits.queue_max;
            tracing::warn!(
                why,
                queue_max,
                "telemetry: traces cannot be sent; they wait or are dropped, and no turn is affected"
            );
        }
    }
}

impl LogSubscriber for Exporter {
    fn name(&self) -> &'static str {
        "telemetry"
    }

    fn topics(&self) -> Topics {
        Topics::FINAL_TEXT
    }

    fn stored(&self, event: &Event) {
        if event.body.is_final() {
            self.add(Ended { task: event.task, conversation: event.conversation, seq: event.seq });
        }
    }

    fn reread(&self) {
        self.must_reread.store(true, Relaxed);
        self.added.notify_one();
    }
}
