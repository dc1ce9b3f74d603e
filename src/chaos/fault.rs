//! What a fault is: where it strikes, what it does there, how often and for how long. Every front end takes and shows the
//! same words.

use std::{fmt, str::FromStr};

/// Which boundary it strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// The envelope and the named points of an actor's handlers; `place` is its kind, or its path if it begins with `/`.
    Actor,
    /// Between two steps of a task that works for an actor; `place` is `round`, `run`, `commit` or `delivery`.
    Task,
    /// Messages on their way; `place` as for actors, `point` is `mailbox:Message` or `reply:Message`, or, of those that may
    /// arrive twice or late, `arrival:Message`.
    Mail,
    /// The store; `place` is a method: `commit`, `claim`, `events`, `put_snapshot` …
    Store,
    /// A model backend, by its name.
    Model,
    /// A skill, by its name.
    Skill,
    /// The wall clock; there is one.
    Clock,
    /// The skill files; there is one folder.
    Files,
    /// The process; it strikes at once.
    Process,
}

impl Target {
    /// All of them.
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

    /// The word.
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
        }
    }

    /// What can be done there.
    #[must_use]
    pub const fn deeds(self) -> &'static [Deed] {
        use Deed as D;
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
        }
    }
}

macro_rules! words {
    ($($(#[$doc:meta])* $name:ident = $word:literal),+ $(,)?) => {
        /// What it does.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Deed { $($(#[$doc])* $name),+ }

        impl Deed {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// The word.
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
    /// Does it, and panics before it answers.
    PanicAfter = "panic_after",
    /// Kills the actor from outside.
    Kill = "kill",
    /// Asks the actor to stop in good order.
    Stop = "stop",
    /// Fails: an error of a handler, a full mailbox or a lost answer, a transient error of a skill.
    Fail = "fail",
    /// A permanent error of a skill.
    Permanent = "permanent",
    /// A skill does it and cannot tell.
    Unknown = "unknown",
    /// Never answers, and nothing was done.
    Hang = "hang",
    /// Never answers, and it was done.
    HangAfter = "hang_after",
    /// Goes on after `wait_ms`; of a model the first token.
    Slow = "slow",
    /// A store answers only after `wait_ms`, with what it found before: what was written meanwhile is missing.
    Stale = "stale",
    /// A message arrives twice.
    Twice = "twice",
    /// Blocks the worker thread for `wait_ms`, as a handler does that computes.
    Block = "block",
    /// Ends the process there and then, without any clearing up.
    Abort = "abort",
    /// Does it, and ends the process before anybody hears of it.
    AbortAfter = "abort_after",
    /// Somebody else holds the database.
    Locked = "locked",
    /// The disk is full.
    Full = "full",
    /// The database does not answer; a model's server answers 503.
    Unavailable = "unavailable",
    /// The database cannot be read.
    Corrupt = "corrupt",
    /// It is done, and its caller is told that it failed.
    LoseReply = "lose_reply",
    /// 429, with a time to come back.
    RateLimited = "rate_limited",
    /// 401.
    Auth = "auth",
    /// 402.
    Payment = "payment",
    /// Silence until the patience of the client is over.
    Timeout = "timeout",
    /// A stream that ends in the middle of a word.
    Cut = "cut",
    /// Something that is not the protocol.
    Garbage = "garbage",
    /// A call of a tool that does not exist, with arguments that are no JSON.
    WrongTool = "wrong_tool",
    /// An answer or an output of a megabyte.
    Huge = "huge",
    /// The wall clock is `by_ms` later (or earlier, if it is below zero) for as long as this lasts.
    Jump = "jump",
    /// The skill files are gone for as long as this lasts: no skill is known.
    Gone = "gone",
}

impl Deed {
    /// Whether it needs `wait_ms`.
    #[must_use]
    pub const fn waits(self) -> bool {
        matches!(self, Self::Slow | Self::Stale | Self::Block)
    }
}

macro_rules! spoken {
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

spoken!(Target, Target::ALL, "target");
spoken!(Deed, Deed::ALL, "deed");

/// The longest that a fault waits, in milliseconds: ten minutes.
const WAIT_MS_MAX: u32 = 600_000;
/// The furthest that a clock jumps, in milliseconds: ten years.
const JUMP_MS_MAX: i64 = 10 * 366 * 86_400_000;
/// The longest pattern, in bytes.
const PATTERN_BYTES_MAX: usize = 300;

/// A fault as it is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultSpec {
    /// Which boundary.
    pub target: Target,
    /// Which one of them; `*` stands for any text.
    pub place: String,
    /// Where in it, for actors, tasks and mail: `before:Submit`, `committed`; `*` stands for any text.
    pub point: String,
    /// What it does.
    pub deed: Deed,
    /// For how long, in milliseconds, if it waits.
    pub wait_ms: u32,
    /// How far, in milliseconds, if it is the clock that jumps.
    pub by_ms: i64,
    /// It lets so many passings be before the first strike.
    pub skip: u64,
    /// It strikes so often at most; 0 is without a limit.
    pub strikes_max: u64,
    /// Out of a thousand passings so many are struck.
    pub chance_permille: u32,
    /// Which of them: the same seed strikes the same passings.
    pub seed: u64,
    /// It ends after so long, in milliseconds; 0 is when it is cleared.
    pub for_ms: u64,
}

impl FaultSpec {
    /// One that strikes everywhere and always.
    #[must_use]
    pub fn new(target: Target, deed: Deed) -> Self {
        Self {
            target,
            place: "*".to_owned(),
            point: "*".to_owned(),
            deed,
            wait_ms: 0,
            by_ms: 0,
            skip: 0,
            strikes_max: 0,
            chance_permille: 1_000,
            seed: 0,
            for_ms: 0,
        }
    }

    /// At this place.
    #[must_use]
    pub fn at(mut self, place: &str, point: &str) -> Self {
        place.clone_into(&mut self.place);
        point.clone_into(&mut self.point);
        self
    }

    /// Once.
    #[must_use]
    pub const fn once(mut self) -> Self {
        self.strikes_max = 1;
        self
    }

    /// At so many of a thousand passings, by this seed.
    #[must_use]
    pub const fn by_chance(mut self, chance_permille: u32, seed: u64) -> Self {
        (self.chance_permille, self.seed) = (chance_permille, seed);
        self
    }

    /// Whether it makes sense.
    ///
    /// # Errors
    /// The field, and what is wrong with it.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        let deeds = self.target.deeds();
        if !deeds.contains(&self.deed) {
            let known: Vec<&str> = deeds.iter().map(|d| d.as_str()).collect();
            return Err((
                "deed",
                format!("{} does not strike at {}; there: {}", self.deed, self.target, known.join(", ")),
            ));
        }
        if self.deed.waits() && !(1..=WAIT_MS_MAX).contains(&self.wait_ms) {
            return Err(("wait_ms", format!("{} needs 1 to {WAIT_MS_MAX}", self.deed)));
        }
        if self.deed == Deed::Jump && (self.by_ms == 0 || self.by_ms.unsigned_abs() > JUMP_MS_MAX.unsigned_abs()) {
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

    /// Whether it means this place. `path` is an actor's place in the tree.
    #[must_use]
    pub fn means(&self, target: Target, place: &str, path: &str, point: &str) -> bool {
        let named = if self.place.starts_with('/') { path } else { place };
        self.target == target && fits(&self.place, named) && fits(&self.point, point)
    }
}

/// Whether a text fits a pattern in which `*` stands for any text.
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
    fn a_star_stands_for_any_text() {
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
    fn every_word_is_read_back_and_every_deed_strikes_somewhere() {
        for target in Target::ALL {
            assert_eq!(target.as_str().parse(), Ok(target));
            assert!(!target.deeds().is_empty());
        }
        for deed in Deed::ALL {
            assert_eq!(deed.as_str().parse(), Ok(*deed));
            assert!(Target::ALL.iter().any(|t| t.deeds().contains(deed)), "{deed} strikes nowhere");
        }
        assert!("tornado".parse::<Deed>().unwrap_err().contains("panic"));
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_its_field() {
        let refused = |spec: FaultSpec| spec.check().unwrap_err().0;
        assert_eq!(refused(FaultSpec::new(Target::Clock, Deed::Kill)), "deed");
        assert_eq!(refused(FaultSpec::new(Target::Store, Deed::Slow)), "wait_ms");
        assert_eq!(refused(FaultSpec::new(Target::Clock, Deed::Jump)), "by_ms");
        assert_eq!(refused(FaultSpec::new(Target::Store, Deed::Full).by_chance(0, 1)), "chance_permille");
        assert_eq!(refused(FaultSpec::new(Target::Store, Deed::Full).at("", "*")), "place");
        FaultSpec::new(Target::Actor, Deed::Kill).at("engine", "before:*").once().check().unwrap();
    }
}
