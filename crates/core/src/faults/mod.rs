//! The plan grammar of fault injection: where a fault is injected, what it does, how often and for how long. Tests, the
//! simulation, the soak and `annie chaos` use the same words, and each injects the faults that its world has.
//!
//! [`FaultSpec`] is one fault. As text it is the arguments of `annie chaos inject`, and a plan has one step a line
//! ([`parse_plan`]):
//!
//! ```
//! use annie_core::faults::{FaultKind, FaultSpec, Target};
//! let spec: FaultSpec = "task panic --at run --point ran --once".parse()?;
//! assert_eq!(spec, FaultSpec::new(Target::Task, FaultKind::Panic).at("run", "ran").once());
//! assert_eq!(spec.to_string(), "task panic --at run --point ran --once");
//! # Ok::<(), String>(())
//! ```

mod line;
mod text;

use std::{fmt, str::FromStr};

use crate::ports::FaultAction;
pub use line::{FaultLine, Injection, first_injection};
pub use text::{Step, parse_plan};

/// The kinds of task that pass fault points: the places of [`Target::Task`]. No kind of actor has one of these names.
pub const TASKS: [&str; 8] = ["round", "run", "commit", "delivery", "hook", "schedule", "reminder", "fork_report"];

/// The boundary at which a fault is injected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// An actor: its message envelope and the named points of its handlers. `place` is the actor's kind, or its path if it
    /// begins with `/`.
    Actor,
    /// Between two steps of a task that works for an actor. `place` is one of [`TASKS`].
    Task,
    /// A message in transit. `place` is as for actors. `point` is `mailbox:Message` or `reply:Message`; for messages that may
    /// arrive twice or late it is `arrival:Message`.
    Mail,
    /// The store. `place` is a method: `commit`, `claim`, `events`, `put_snapshot` …
    Store,
    /// A model backend. `place` is its name.
    Model,
    /// A skill. `place` is its name.
    Skill,
    /// The wall clock. There is only one.
    Clock,
    /// The skill files. There is only one folder.
    Files,
    /// The process. The fault takes effect at once. If it is killed from outside, the point `start` means that it is killed
    /// again while its next run starts.
    Process,
    /// The database of the process. Faults are injected from outside only.
    Database,
    /// The voice gate. Faults are injected from outside only, through the public front end.
    Gate,
}

impl Target {
    /// The targets in a running server.
    pub const ALL: [Self; 9] = [
        Self::Actor,
        Self::Task,
        Self::Mail,
        Self::Store,
        Self::Model,
        Self::Skill,
        Self::Clock,
        Self::Files,
        Self::Process,
    ];

    /// The targets with faults from outside only.
    pub const OUTSIDE: [Self; 2] = [Self::Database, Self::Gate];

    /// The name of the target.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Actor => "actor",
            Self::Task => "task",
            Self::Mail => "mail",
            Self::Store => "store",
            Self::Model => "model",
            Self::Skill => "skill",
            Self::Clock => "clock",
            Self::Files => "files",
            Self::Process => "process",
            Self::Database => "database",
            Self::Gate => "gate",
        }
    }

    /// The kinds of fault that a running server injects into itself at this target.
    #[must_use]
    pub const fn kinds(self) -> &'static [FaultKind] {
        use FaultKind as D;
        match self {
            Self::Actor => &[D::Panic, D::Kill, D::Stop, D::Fail, D::Hang, D::Slow, D::Block, D::Abort],
            Self::Task => &[D::Panic, D::Fail, D::Slow, D::Block, D::Abort],
            Self::Mail => &[D::Fail, D::Slow, D::Twice],
            Self::Store => &[
                D::Locked,
                D::Full,
                D::Unavailable,
                D::Corrupt,
                D::LoseReply,
                D::Slow,
                D::Stale,
                D::Hang,
                D::HangAfter,
                D::Abort,
                D::AbortAfter,
            ],
            Self::Model => &[
                D::RateLimited,
                D::Unavailable,
                D::Auth,
                D::Payment,
                D::Timeout,
                D::Cut,
                D::Overflow,
                D::Garbage,
                D::WrongTool,
                D::Huge,
                D::Slow,
                D::Hang,
                D::Panic,
                D::Abort,
                D::AbortAfter,
            ],
            Self::Skill => &[
                D::Panic,
                D::PanicAfter,
                D::Fail,
                D::Permanent,
                D::RateLimited,
                D::Unknown,
                D::Huge,
                D::Slow,
                D::Hang,
                D::HangAfter,
                D::Abort,
                D::AbortAfter,
            ],
            Self::Clock => &[D::Jump],
            Self::Files => &[D::Gone],
            Self::Process => &[D::Abort],
            Self::Database | Self::Gate => &[],
        }
    }

    /// The kinds of fault that something outside of the server injects at this target: `annie chaos run`, the soak.
    #[must_use]
    pub const fn outside_kinds(self) -> &'static [FaultKind] {
        use FaultKind as D;
        match self {
            Self::Process => &[D::Kill, D::Freeze, D::Takeover],
            Self::Database => &[D::Kill, D::Freeze, D::Cut, D::Full],
            Self::Files => &[D::Written, D::Half, D::Removed],
            Self::Gate => &[D::Hold],
            Self::Actor | Self::Task | Self::Mail | Self::Store | Self::Model | Self::Skill | Self::Clock => &[],
        }
    }
}

macro_rules! words {
    ($($(#[$doc:meta])* $name:ident = $word:literal),+ $(,)?) => {
        /// The effect of a fault.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum FaultKind { $($(#[$doc])* $name),+ }

        impl FaultKind {
            /// All kinds.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// The name of the kind.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $word),+ }
            }
        }
    };
}

words! {
    /// Panics.
    Panic = "panic",
    /// Performs the work, and panics before the reply.
    PanicAfter = "panic_after",
    /// Kills the actor from outside; sends SIGKILL to a process or a database server.
    Kill = "kill",
    /// Asks the actor to stop in good order.
    Stop = "stop",
    /// Fails: an error of a handler, a full mailbox or a lost reply, a transient error of a skill.
    Fail = "fail",
    /// A permanent error of a skill.
    Permanent = "permanent",
    /// A skill performs its work and reports that the outcome is unknown.
    Unknown = "unknown",
    /// Never replies, and the work was not done.
    Hang = "hang",
    /// Never replies, and the work was done.
    HangAfter = "hang_after",
    /// Continues after `wait_ms`; for a model the delay is before the first token.
    Slow = "slow",
    /// A store replies only after `wait_ms`, with the data that it read before the wait: later writes are missing.
    Stale = "stale",
    /// A message arrives twice.
    Twice = "twice",
    /// Blocks the worker thread for `wait_ms`, like a handler that computes.
    Block = "block",
    /// Ends the process at once, without cleanup.
    Abort = "abort",
    /// Performs the work, and ends the process before anything receives the reply.
    AbortAfter = "abort_after",
    /// Another process holds the database lock.
    Locked = "locked",
    /// The disk is full; for a database, for a while.
    Full = "full",
    /// The database does not answer; a model's server answers 503.
    Unavailable = "unavailable",
    /// The database cannot be read.
    Corrupt = "corrupt",
    /// The work is done, but the caller receives an error.
    LoseReply = "lose_reply",
    /// HTTP 429 with a retry time; a transient error of a skill for the same reason.
    RateLimited = "rate_limited",
    /// HTTP 401.
    Auth = "auth",
    /// HTTP 402.
    Payment = "payment",
    /// No reply until the client's time-out.
    Timeout = "timeout",
    /// A stream that ends in the middle of a word; connections to a database that are cut in the middle of a transfer.
    Cut = "cut",
    /// The request is longer than the model's context.
    Overflow = "overflow",
    /// A reply that violates the protocol.
    Garbage = "garbage",
    /// A call of a tool that does not exist, with arguments that are not JSON.
    WrongTool = "wrong_tool",
    /// An answer or an output of one megabyte.
    Huge = "huge",
    /// The wall clock is shifted by `by_ms` (backwards if negative) while the fault is active.
    Jump = "jump",
    /// The skill files are missing while the fault is active: no skill is known.
    Gone = "gone",
    /// SIGSTOP, and SIGCONT after `wait_ms`; without `wait_ms` the injector chooses the time.
    Freeze = "freeze",
    /// SIGSTOP; another process starts on the same data; then SIGCONT, and the first process is killed.
    Takeover = "takeover",
    /// A skill file is written or replaced.
    Written = "written",
    /// Half a skill file is written.
    Half = "half",
    /// The folder of the skill files is removed.
    Removed = "removed",
    /// The voice gate is closed for `wait_ms`, and its holder neither renews nor releases it.
    Hold = "hold",
}

impl FaultKind {
    /// Whether the kind requires `wait_ms`.
    #[must_use]
    pub const fn waits(self) -> bool {
        matches!(self, Self::Slow | Self::Stale | Self::Block | Self::Hold)
    }

    /// The action of a fault point that injects this kind; `None` if actors and tasks have no such action.
    #[must_use]
    pub const fn action(self, wait_ms: u32) -> Option<FaultAction> {
        Some(match self {
            Self::Panic => FaultAction::Panic,
            Self::Kill => FaultAction::Kill,
            Self::Stop => FaultAction::Stop,
            Self::Fail => FaultAction::Fail,
            Self::Hang => FaultAction::Hang,
            Self::Slow => FaultAction::Slow { wait_ms },
            Self::Twice => FaultAction::Twice,
            _ => return None,
        })
    }
}

macro_rules! text_conversions {
    ($kind:ty, $all:expr, $what:literal) => {
        impl fmt::Display for $kind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl FromStr for $kind {
            type Err = String;
            fn from_str(text: &str) -> Result<Self, String> {
                $all.iter().copied().find(|one| one.as_str() == text).ok_or_else(|| {
                    let known: Vec<&str> = $all.iter().map(|one| one.as_str()).collect();
                    format!("there is no {} {text:?}; there are {}", $what, known.join(", "))
                })
            }
        }
    };
}

text_conversions!(Target, [&Target::ALL[..], &Target::OUTSIDE[..]].concat(), "target");
text_conversions!(FaultKind, FaultKind::ALL, "kind");

/// The maximum wait of a fault, in milliseconds: ten minutes.
const WAIT_MS_MAX: u32 = 600_000;
/// The maximum shift of the clock, in milliseconds: ten years.
const JUMP_MS_MAX: i64 = 10 * 366 * 86_400_000;
/// The maximum length of a pattern, in bytes.
const PATTERN_BYTES_MAX: usize = 300;

/// The specification of one fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultSpec {
    /// The boundary.
    pub target: Target,
    /// A pattern for the place at this boundary; `*` matches any text.
    pub place: String,
    /// A pattern for the point in it, for actors, tasks and mail, such as `before:Submit` or `committed`; `*` matches any text.
    pub point: String,
    /// The effect.
    pub kind: FaultKind,
    /// The duration of a wait, in milliseconds, for kinds that wait.
    pub wait_ms: u32,
    /// The shift of the clock, in milliseconds, for `jump`.
    pub by_ms: i64,
    /// The number of passes that are skipped before the first injection.
    pub skip: u64,
    /// The maximum number of injections; 0 means no limit.
    pub injections_max: u64,
    /// The probability of an injection per pass, in permille.
    pub chance_permille: u32,
    /// The seed of the random choice: the same seed selects the same passes.
    pub seed: u64,
    /// The time after which the fault ends, in milliseconds; 0 means that it lasts until it is cleared.
    pub for_ms: u64,
}

impl FaultSpec {
    /// A fault that is injected at every place and on every pass.
    #[must_use]
    pub fn new(target: Target, kind: FaultKind) -> Self {
        Self {
            target,
            place: "*".to_owned(),
            point: "*".to_owned(),
            kind,
            wait_ms: 0,
            by_ms: 0,
            skip: 0,
            injections_max: 0,
            chance_permille: 1_000,
            seed: 0,
            for_ms: 0,
        }
    }

    /// Restricts the fault to a place and a point.
    #[must_use]
    pub fn at(mut self, place: &str, point: &str) -> Self {
        place.clone_into(&mut self.place);
        point.clone_into(&mut self.point);
        self
    }

    /// Limits the fault to one injection.
    #[must_use]
    pub const fn once(mut self) -> Self {
        self.injections_max = 1;
        self
    }

    /// Injects the fault with this probability, by this seed.
    #[must_use]
    pub const fn by_chance(mut self, chance_permille: u32, seed: u64) -> Self {
        (self.chance_permille, self.seed) = (chance_permille, seed);
        self
    }

    /// Whether something outside of the server must inject the fault.
    #[must_use]
    pub fn is_from_outside(&self) -> bool {
        self.target.outside_kinds().contains(&self.kind)
    }

    /// Checks the specification of a fault that a server injects into itself.
    ///
    /// # Errors
    /// The field that is wrong, and what is wrong with it.
    pub fn check_inside(&self) -> Result<(), (&'static str, String)> {
        if self.is_from_outside() {
            let what =
                format!("{} {} is injected from outside of the server: use `annie chaos run`", self.target, self.kind);
            return Err(("kind", what));
        }
        self.check()
    }

    /// Checks the specification of any fault.
    ///
    /// # Errors
    /// The field that is wrong, and what is wrong with it.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        let kinds = [self.target.kinds(), self.target.outside_kinds()].concat();
        if !kinds.contains(&self.kind) {
            let known: Vec<&str> = kinds.iter().map(|d| d.as_str()).collect();
            return Err((
                "kind",
                format!(
                    "{} is not supported for target {}; supported kinds: {}",
                    self.kind,
                    self.target,
                    known.join(", ")
                ),
            ));
        }
        if self.kind.waits() && !(1..=WAIT_MS_MAX).contains(&self.wait_ms) {
            return Err(("wait_ms", format!("{} needs 1 to {WAIT_MS_MAX}", self.kind)));
        }
        if self.kind == FaultKind::Jump && (self.by_ms == 0 || self.by_ms.unsigned_abs() > JUMP_MS_MAX.unsigned_abs()) {
            return Err(("by_ms", format!("give how far it jumps: -{JUMP_MS_MAX} to {JUMP_MS_MAX}, and not 0")));
        }
        if !(1..=1_000).contains(&self.chance_permille) {
            return Err(("chance_permille", "give 1 to 1000".to_owned()));
        }
        for (field, pattern) in [("place", &self.place), ("point", &self.point)] {
            if pattern.is_empty() || pattern.len() > PATTERN_BYTES_MAX {
                return Err((field, format!("give 1 to {PATTERN_BYTES_MAX} bytes; `*` is any")));
            }
        }
        Ok(())
    }

    /// Whether the fault applies to this place. `path` is the actor's path in the tree.
    #[must_use]
    pub fn means(&self, target: Target, place: &str, path: &str, point: &str) -> bool {
        let named = if self.place.starts_with('/') { path } else { place };
        self.target == target && fits(&self.place, named) && fits(&self.point, point)
    }
}

/// Whether a text matches a pattern in which `*` matches any text.
fn fits(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(rest) = parts.next().and_then(|first| text.strip_prefix(first)) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    let mut rest = rest;
    for part in middle {
        match rest.find(part) {
            Some(at) => rest = rest.get(at + part.len()..).unwrap_or_default(),
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fault_pattern_star_matches_any_text() {
        for (pattern, text, wanted) in [
            ("*", "", true),
            ("*", "engine", true),
            ("engine", "engine", true),
            ("engine", "engines", false),
            ("before:*", "before:Wake", true),
            ("before:*", "after:Wake", false),
            ("*:Wake", "before:Wake", true),
            ("/conversations/engine:*/agent:*", "/conversations/engine:conv_1/agent:a", true),
            ("/conversations/engine:*/agent:*", "/conversations/engine:conv_1", false),
            ("a*a", "a", false),
        ] {
            assert_eq!(fits(pattern, text), wanted, "{pattern} on {text}");
        }
    }

    #[test]
    fn fault_names_round_trip_and_every_kind_has_a_target() {
        for target in Target::ALL {
            assert_eq!(target.as_str().parse(), Ok(target));
            assert!(!target.kinds().is_empty());
        }
        for target in Target::OUTSIDE {
            assert_eq!(target.as_str().parse(), Ok(target));
            assert!(target.kinds().is_empty() && !target.outside_kinds().is_empty());
        }
        let supports = |target: &Target, kind| target.kinds().contains(kind) || target.outside_kinds().contains(kind);
        for kind in FaultKind::ALL {
            assert_eq!(kind.as_str().parse(), Ok(*kind));
            let mut all = Target::ALL.iter().chain(&Target::OUTSIDE);
            assert!(all.any(|target| supports(target, kind)), "no target supports {kind}");
        }
        assert!("tornado".parse::<FaultKind>().unwrap_err().contains("panic"));
    }

    #[test]
    fn fault_spec_refuses_invalid_values_with_field() {
        let refused = |spec: FaultSpec| spec.check().unwrap_err().0;
        assert_eq!(refused(FaultSpec::new(Target::Clock, FaultKind::Kill)), "kind");
        assert_eq!(refused(FaultSpec::new(Target::Store, FaultKind::Slow)), "wait_ms");
        assert_eq!(refused(FaultSpec::new(Target::Clock, FaultKind::Jump)), "by_ms");
        assert_eq!(refused(FaultSpec::new(Target::Store, FaultKind::Full).by_chance(0, 1)), "chance_permille");
        assert_eq!(refused(FaultSpec::new(Target::Store, FaultKind::Full).at("", "*")), "place");
        FaultSpec::new(Target::Actor, FaultKind::Kill).at("engine", "before:*").once().check_inside().unwrap();
    }

    #[test]
    fn fault_from_outside_is_refused_inside() {
        let kill = FaultSpec::new(Target::Process, FaultKind::Kill);
        kill.check().unwrap();
        let (field, why) = kill.check_inside().unwrap_err();
        assert!(field == "kind" && why.contains("annie chaos run"), "{field}: {why}");
        FaultSpec::new(Target::Process, FaultKind::Abort).check_inside().unwrap();
    }
}
