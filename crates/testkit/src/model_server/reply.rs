//! The replies of the fake server, and every way in which real servers misbehave, as one value with chained settings.

use std::time::Duration;

use serde_json::{Value, json};

/// How a streamed reply encodes its tool calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CallShape {
    /// As OpenAI does: one call after the other, name first, then pieces of the arguments.
    #[default]
    Fragments,
    /// The pieces of all calls interleaved, distinguished by their index.
    Interleaved,
    /// Each call complete in one chunk (Ollama).
    Whole,
    /// Each call complete, with its arguments as a JSON object instead of text.
    ObjectArguments,
    /// Every call under index 0, distinguished by its id.
    SameIndex,
    /// Each call complete, without an index.
    NoIndex,
    /// Each call complete, without an id.
    NoIds,
}

/// A tool call to send.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Call {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) arguments: String,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Content {
    /// A completion, streamed or as one body, as the request asks.
    Answer { text: String, reasoning: String, calls: Vec<Call>, finish: String },
    /// An error in the format of the request's protocol.
    Error { kind: Option<&'static str>, message: String },
    /// The `data:` of server-sent events, verbatim.
    Events(Vec<String>),
    /// A body, verbatim.
    Body(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    Clean,
    Stall,
    Cut,
    Reset,
    Endless,
}

/// One reply of a [`super::FakeModelServer`].
///
/// ```
/// use annie_testkit::model_server::Reply;
/// use serde_json::json;
/// let calls = Reply::calls([("get_skill", json!({"domain": "tasks"}))]).crlf().split_every_bytes(7);
/// let broken = Reply::says("never finished").cut_after_events(2);
/// # let _ = (calls, broken);
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) content: Content,
    pub(super) usage: Value,
    pub(super) shape: CallShape,
    pub(super) crlf: bool,
    pub(super) comments: bool,
    pub(super) done: bool,
    pub(super) finished: bool,
    pub(super) piece_bytes: usize,
    pub(super) packet_bytes: Option<usize>,
    pub(super) first_after: Option<Duration>,
    pub(super) ending: Ending,
    pub(super) ending_after_events: usize,
}

impl Reply {
    fn new(status: u16, content: Content) -> Self {
        Self {
            status,
            headers: Vec::new(),
            content,
            usage: json!({"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15}),
            shape: CallShape::default(),
            crlf: false,
            comments: false,
            done: true,
            finished: true,
            piece_bytes: 16,
            packet_bytes: None,
            first_after: None,
            ending: Ending::Clean,
            ending_after_events: usize::MAX,
        }
    }

    fn answer(text: String, calls: Vec<Call>) -> Self {
        let finish = if calls.is_empty() { "stop" } else { "tool_calls" }.to_owned();
        Self::new(200, Content::Answer { text, reasoning: String::new(), calls, finish })
    }

    /// A completion with only text.
    #[must_use]
    pub fn says(text: impl Into<String>) -> Self {
        Self::answer(text.into(), Vec::new())
    }

    /// A completion that calls tools, under the ids `call_0`, `call_1` …
    #[must_use]
    pub fn calls<'a>(tools: impl IntoIterator<Item = (&'a str, Value)>) -> Self {
        Self::says_and_calls("", tools)
    }

    /// A completion with text and tool calls.
    #[must_use]
    pub fn says_and_calls<'a>(text: &str, tools: impl IntoIterator<Item = (&'a str, Value)>) -> Self {
        let calls = tools.into_iter().enumerate().map(|(i, (name, arguments))| Call {
            id: format!("call_{i}"),
            name: name.to_owned(),
            arguments: arguments.to_string(),
        });
        Self::answer(text.to_owned(), calls.collect())
    }

    /// A completion that calls one tool with arguments as text, which may be broken JSON or empty.
    #[must_use]
    pub fn calls_raw(name: &str, arguments: &str) -> Self {
        let call = Call { id: "call_0".to_owned(), name: name.to_owned(), arguments: arguments.to_owned() };
        Self::answer(String::new(), vec![call])
    }

    /// Server-sent events with exactly these `data:` lines; `[DONE]` follows unless [`Self::without_done`].
    #[must_use]
    pub fn events(data: impl IntoIterator<Item = Value>) -> Self {
        Self::new(200, Content::Events(data.into_iter().map(|d| d.to_string()).collect()))
    }

    /// Exactly this body, as JSON.
    #[must_use]
    pub fn body(status: u16, body: impl Into<String>) -> Self {
        Self::new(status, Content::Body(body.into()))
    }

    /// An error in the format of the request's protocol.
    #[must_use]
    pub fn error(status: u16, message: &str) -> Self {
        Self::new(status, Content::Error { kind: None, message: message.to_owned() })
    }

    /// Status 529: Anthropic is overloaded.
    #[must_use]
    pub fn overloaded() -> Self {
        Self::new(529, Content::Error { kind: Some("overloaded_error"), message: "Overloaded".to_owned() })
    }

    /// Status 429, with `Retry-After` in seconds if given.
    #[must_use]
    pub fn rate_limited(retry_after_s: Option<u64>) -> Self {
        let reply = Self::error(429, "Rate limit reached");
        match retry_after_s {
            Some(seconds) => reply.header("retry-after", seconds.to_string()),
            None => reply,
        }
    }

    /// Status 400: the prompt does not fit, in OpenRouter's format.
    #[must_use]
    pub fn overflow_openrouter() -> Self {
        let error = json!({"error": {"code": 400, "message": "Prompt is too long",
            "metadata": {"error_type": "context_length_exceeded"}}});
        Self::body(400, error.to_string())
    }

    /// Status 400: the prompt does not fit, in the format of an old vLLM (the error at the top level).
    #[must_use]
    pub fn overflow_vllm() -> Self {
        let error = json!({"object": "error", "type": "BadRequestError", "code": 400,
            "message": "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens."});
        Self::body(400, error.to_string())
    }

    /// Status 400: the prompt does not fit, in llama.cpp's format.
    #[must_use]
    pub fn overflow_llamacpp() -> Self {
        let error = json!({"error": {"code": 400, "type": "exceed_context_size_error", "n_prompt_tokens": 5000,
            "n_ctx": 4096, "message": "the request exceeds the available context size"}});
        Self::body(400, error.to_string())
    }

    /// Status 400: the prompt does not fit, in Anthropic's format.
    #[must_use]
    pub fn overflow_anthropic() -> Self {
        Self::error(400, "prompt is too long: 210000 tokens > 200000 maximum")
    }

    /// Text without an end, in pieces as fast as the client reads.
    #[must_use]
    pub fn endless(piece: &str) -> Self {
        let mut reply = Self::says(piece);
        reply.ending = Ending::Endless;
        reply
    }

    /// A completion with `bytes` bytes of text, streamed in pieces of 4 KiB.
    #[must_use]
    pub fn of_size(bytes: usize) -> Self {
        let mut reply = Self::says("x".repeat(bytes));
        reply.piece_bytes = 4096;
        reply
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    /// Sets `usage`; null leaves it out.
    #[must_use]
    pub fn usage(mut self, usage: Value) -> Self {
        self.usage = usage;
        self
    }

    /// Adds reasoning before the text: OpenRouter's field `reasoning`, or a signed block of Anthropic's.
    #[must_use]
    pub fn reasoning(mut self, thought: &str) -> Self {
        if let Content::Answer { reasoning, .. } = &mut self.content {
            thought.clone_into(reasoning);
        }
        self
    }

    /// Sets `finish_reason`.
    #[must_use]
    pub fn finish(mut self, reason: &str) -> Self {
        if let Content::Answer { finish, .. } = &mut self.content {
            reason.clone_into(finish);
        }
        self
    }

    /// Encodes tool calls in this shape.
    #[must_use]
    pub const fn shape(mut self, shape: CallShape) -> Self {
        self.shape = shape;
        self
    }

    /// Ends lines with CR LF.
    #[must_use]
    pub const fn crlf(mut self) -> Self {
        self.crlf = true;
        self
    }

    /// Puts a comment line (`: OPENROUTER PROCESSING`) before every event.
    #[must_use]
    pub const fn with_comments(mut self) -> Self {
        self.comments = true;
        self
    }

    /// Leaves out `[DONE]` or `message_stop`.
    #[must_use]
    pub const fn without_done(mut self) -> Self {
        self.done = false;
        self
    }

    /// Leaves out the `finish_reason`.
    #[must_use]
    pub const fn without_finish(mut self) -> Self {
        self.finished = false;
        self
    }

    /// Sends text and arguments in pieces of this many bytes (default 16; a character is never split).
    #[must_use]
    pub const fn pieces_of_bytes(mut self, bytes: usize) -> Self {
        self.piece_bytes = bytes;
        self
    }

    /// Splits the whole body into packets of this many bytes, even within characters and line ends.
    #[must_use]
    pub const fn split_every_bytes(mut self, bytes: usize) -> Self {
        self.packet_bytes = Some(bytes);
        self
    }

    /// Waits this long before the first byte of the body (the headers are sent at once).
    #[must_use]
    pub const fn first_after(mut self, delay: Duration) -> Self {
        self.first_after = Some(delay);
        self
    }

    /// Sends this many events and then nothing more, with the connection open.
    #[must_use]
    pub const fn stall_after_events(mut self, count: usize) -> Self {
        self.ending = Ending::Stall;
        self.ending_after_events = count;
        self
    }

    /// Sends this many events, which the client receives, and then closes the connection without ending the body.
    #[must_use]
    pub const fn cut_after_events(mut self, count: usize) -> Self {
        self.ending = Ending::Cut;
        self.ending_after_events = count;
        self
    }

    /// Sends this many events and then resets the connection, by which the client may lose what it has not read yet.
    #[must_use]
    pub const fn reset_after_events(mut self, count: usize) -> Self {
        self.ending = Ending::Reset;
        self.ending_after_events = count;
        self
    }

    pub(super) const fn status(&self) -> u16 {
        self.status
    }

    pub(super) fn headers(&self) -> &[(String, String)] {
        &self.headers
    }
}
