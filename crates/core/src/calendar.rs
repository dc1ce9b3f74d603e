//! The English names of days, months, units and parts of a day, and the small numbers, as people write them in requests: one
//! list for everything that reads dates.

/// From Monday.
pub const WEEKDAYS: [&str; 7] = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];

/// From January.
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

/// From one.
pub const NUMBERS: [&str; 12] =
    ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"];

/// How units of time are written, from minutes to years; one letter counts behind a number only.
pub const UNITS: [&[&str]; 6] = [
    &["min", "mins", "minute", "minutes"],
    &["h", "hr", "hrs", "hour", "hours"],
    &["d", "day", "days"],
    &["w", "wk", "wks", "week", "weeks"],
    &["mo", "month", "months"],
    &["y", "yr", "yrs", "year", "years"],
];

/// The parts of a day, and the hours at which people mean them to begin, for want of a better word.
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
