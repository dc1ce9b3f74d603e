//! The ended tasks whose traces are to be sent, at most so many. An entry is removed only after its trace was sent or given up, so
//! that a sender that is started again sends the same traces under the same ids.

use std::collections::VecDeque;

use annie_core::ids::{ConversationId, Seq, TaskId};
use parking_lot::Mutex;

/// The limits of the exporter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TelemetryLimits {
    /// The most traces that wait. Further ones are dropped.
    pub queue_max: usize,
    /// A request is sent when it has so many spans. A trace is not divided.
    pub batch_spans_max: usize,
    /// How long a trace waits for others in the same request, in milliseconds.
    pub delay_ms: u64,
    /// Time limit of a request, in milliseconds.
    pub timeout_ms: u64,
}

impl Default for TelemetryLimits {
    fn default() -> Self {
        // As the batch processors of OpenTelemetry's libraries.
        Self { queue_max: 2_048, batch_spans_max: 512, delay_ms: 1_000, timeout_ms: 10_000 }
    }
}

/// A task that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    pub task: TaskId,
    pub conversation: ConversationId,
    /// Its final event.
    pub seq: Seq,
}

/// The tasks that wait, the oldest first.
pub struct Queue {
    ended: Mutex<VecDeque<Ended>>,
    max: usize,
}

impl Queue {
    pub fn new(max: usize) -> Self {
        Self { ended: Mutex::default(), max }
    }

    /// Adds a task. Returns false if too many wait.
    pub fn push(&self, ended: Ended) -> bool {
        let mut queue = self.ended.lock();
        let has_room = queue.len() < self.max;
        if has_room {
            queue.push_back(ended);
        }
        measure(queue.len());
        has_room
    }

    pub fn len(&self) -> usize {
        self.ended.lock().len()
    }

    /// The task at a place.
    pub fn get(&self, place: usize) -> Option<Ended> {
        self.ended.lock().get(place).copied()
    }

    /// Removes the oldest tasks.
    pub fn remove(&self, count: usize) {
        let mut queue = self.ended.lock();
        let count = count.min(queue.len());
        queue.drain(..count);
        measure(queue.len());
    }
}

#[expect(clippy::cast_precision_loss, reason = "the length of a bounded queue")]
fn measure(len: usize) {
    metrics::gauge!("annie_telemetry_queue").set(len as f64);
}
