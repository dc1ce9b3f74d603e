//! Faults and plans as text.

use std::{fmt, str::FromStr};

use super::FaultSpec;

/// The pattern that matches any text.
const ANY: &str = "*";
/// The word of a step that only waits.
const WAIT: &str = "wait";

/// One step of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Injects a fault.
    Fault(FaultSpec),
    /// Waits this many milliseconds.
    Wait(u64),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fault(spec) => spec.fmt(f),
            Self::Wait(ms) => write!(f, "{WAIT} {ms}"),
        }
    }
}

impl FromStr for Step {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim().strip_prefix(WAIT).filter(|rest| rest.starts_with(char::is_whitespace)) {
            Some(ms) => Ok(Self::Wait(number(WAIT, ms.trim())?)),
            None => text.parse().map(Self::Fault),
        }
    }
}

/// The steps of a plan: one a line, either a fault or `wait MILLISECONDS`. Empty lines, and what follows a `#`, are ignored.
///
/// # Errors
/// The number of the first line that is wrong, and what is wrong with it.
pub fn parse_plan(text: &str) -> Result<Vec<Step>, String> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    let steps = (1..).zip(lines).filter(|(_, line)| !line.is_empty());
    steps.map(|(number, line)| line.parse().map_err(|why| format!("line {number}: {why}"))).collect()
}

/// As the arguments of `annie chaos inject`, without those that have their default.
impl fmt::Display for FaultSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.target, self.kind)?;
        for (name, pattern) in [("at", &self.place), ("point", &self.point)] {
            if pattern != ANY {
                write!(f, " --{name} {pattern}")?;
            }
        }
        if self.wait_ms > 0 {
            write!(f, " --wait-ms {}", self.wait_ms)?;
        }
        if self.by_ms != 0 {
            write!(f, " --by-ms={}", self.by_ms)?;
        }
        if self.skip > 0 {
            write!(f, " --skip {}", self.skip)?;
        }
        match self.injections_max {
            0 => {}
            1 => f.write_str(" --once")?,
            n => write!(f, " --injections {n}")?,
        }
        if self.chance_permille != 1_000 {
            write!(f, " --chance {}", self.chance_permille)?;
        }
        if self.seed != 0 {
            write!(f, " --seed {}", self.seed)?;
        }
        match (self.for_ms / 1_000, self.for_ms % 1_000) {
            (0, 0) => Ok(()),
            (seconds, 0) => write!(f, " --for {seconds}"),
            (seconds, ms) => write!(f, " --for {seconds}.{ms:03}"),
        }
    }
}

impl FromStr for FaultSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = text.split_whitespace();
        let (Some(target), Some(kind)) = (words.next(), words.next()) else {
            return Err(format!("{text:?} is no fault: write TARGET KIND, such as `actor kill --at engine --once`"));
        };
        let mut spec = Self::new(target.parse()?, kind.parse()?);
        while let Some(word) = words.next() {
            let option =
                word.strip_prefix("--").ok_or_else(|| format!("{word:?} is no option: options begin with `--`"))?;
            if option == "once" {
                spec.injections_max = 1;
                continue;
            }
            let (name, value) = match option.split_once('=') {
                Some(both) => both,
                None => (option, words.next().ok_or_else(|| format!("--{option} has no value"))?),
            };
            set(&mut spec, name, value.trim_matches('\''))?;
        }
        spec.check().map_err(|(field, why)| format!("{field}: {why}"))?;
        Ok(spec)
    }
}

fn set(spec: &mut FaultSpec, name: &str, value: &str) -> Result<(), String> {
    match name {
        "at" => value.clone_into(&mut spec.place),
        "point" => value.clone_into(&mut spec.point),
        "wait-ms" => spec.wait_ms = number(name, value)?,
        "by-ms" => spec.by_ms = number(name, value)?,
        "skip" => spec.skip = number(name, value)?,
        "injections" => spec.injections_max = number(name, value)?,
        "chance" => spec.chance_permille = number(name, value)?,
        "seed" => spec.seed = number(name, value)?,
        "for" => spec.for_ms = seconds(name, value)?,
        _ => {
            let known = "at, point, wait-ms, by-ms, skip, injections, once, chance, seed, for";
            return Err(format!("there is no option --{name}; there are {known}"));
        }
    }
    Ok(())
}

fn number<T: FromStr>(name: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("{name}: {value:?} is no number in range"))
}

/// Seconds with at most three decimals, in milliseconds.
fn seconds(name: &str, value: &str) -> Result<u64, String> {
    let (whole, decimals) = value.split_once('.').unwrap_or((value, "0"));
    if decimals.is_empty() || decimals.len() > 3 {
        return Err(format!("{name}: give seconds with at most three decimals, not {value:?}"));
    }
    let (whole, ms): (u64, u64) = (number(name, whole)?, number(name, &format!("{decimals:0<3}"))?);
    Ok(whole.saturating_mul(1_000).saturating_add(ms))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::{FaultKind, Target};

    #[test]
    fn fault_text_round_trips_with_every_option() {
        for text in [
            "actor kill",
            "actor kill --at engine --point before:* --chance 20 --seed 7 --for 10",
            "store stale --at events --wait-ms 200 --skip 3 --once",
            "mail twice --at /conversations --injections 3",
            "clock jump --by-ms=-3600000 --for 0.250",
            "process kill --point start",
            "database cut --injections 30",
        ] {
            let spec: FaultSpec = text.parse().unwrap_or_else(|why| panic!("{text}: {why}"));
            assert_eq!(spec.to_string(), text);
        }
        let shell: FaultSpec = "clock jump --by-ms -5 --point '*' --for 2.5".parse().unwrap();
        assert_eq!((shell.by_ms, shell.point.as_str(), shell.for_ms), (-5, "*", 2_500));
    }

    #[test]
    fn fault_text_that_is_wrong_is_refused_with_the_reason() {
        for (text, part) in [
            ("actor", "TARGET KIND"),
            ("actress kill", "no target"),
            ("actor drown", "no kind"),
            ("actor jump", "not supported"),
            ("store slow", "wait_ms"),
            ("actor kill engine", "begin with `--`"),
            ("actor kill --where engine", "no option --where"),
            ("actor kill --skip", "no value"),
            ("actor kill --skip few", "\"few\""),
            ("actor kill --for 1.2345", "decimals"),
            ("actor kill --chance 2000", "chance_permille"),
        ] {
            let why = text.parse::<FaultSpec>().unwrap_err();
            assert!(why.contains(part), "{text}: {why}");
        }
    }

    #[test]
    fn plan_has_one_step_a_line_and_names_the_wrong_line() {
        let plan = "# first the Engines\nactor kill --at engine --once\n\nwait 500 # half a second\nprocess kill\n";
        let steps = parse_plan(plan).unwrap();
        let kill = FaultSpec::new(Target::Actor, FaultKind::Kill).at("engine", "*").once();
        let wanted =
            [Step::Fault(kill), Step::Wait(500), Step::Fault(FaultSpec::new(Target::Process, FaultKind::Kill))];
        assert_eq!(steps, wanted);
        let written: Vec<String> = steps.iter().map(ToString::to_string).collect();
        assert_eq!(parse_plan(&written.join("\n")).unwrap(), steps);
        assert!(parse_plan("wait 5\nwait for it").unwrap_err().starts_with("line 2: wait:"));
    }
}
