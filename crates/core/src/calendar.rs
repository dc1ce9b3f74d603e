//! The English names of days, months, time units and parts of a day, and the small numbers, as people write them in
//! requests. All code that parses dates uses this list.

/// Starting with Monday.
pub const WEEKDAYS: [&str; 7] = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];

/// Starting with January.
pub const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];

/// Starting with one.
pub const NUMBERS: [&str; 12] =
    ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"];

/// Spellings of time units, from minutes to years. A one-letter spelling is recognised only after a number.
pub const UNITS: [&[&str]; 6] = [
    &["min", "mins", "minute", "minutes"],
    &["h", "hr", "hrs", "hour", "hours"],
    &["d", "day", "days"],
    &["w", "wk", "wks", "week", "weeks"],
    &["mo", "month", "months"],
    &["y", "yr", "yrs", "year", "years"],
];

/// The parts of a day, each with the hour (0 to 23) at which it is assumed to begin.
pub const PARTS_OF_DAY: [(&str, u32); 8] = [
    ("morning", 9),
    ("noon", 12),
    ("midday", 12),
    ("afternoon", 15),
    ("evening", 18),
    ("tonight", 20),
    ("night", 20),
    ("midnight", 0),
];
