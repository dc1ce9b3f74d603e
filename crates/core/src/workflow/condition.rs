//! Conditions: `{steps.check.result} contains "ready" and {args.days} > 3`. Comparisons are joined by `and` and `or`; `and` binds
//! more strongly. Two numbers are compared as numbers, everything else as text.

use super::template::{Reference, Values, plain, reference};
use crate::context::is_clipped;

/// The longest condition, in bytes.
const BYTES_MAX: usize = 1_000;

/// One side of a comparison.
#[derive(Debug, PartialEq, Eq)]
enum Side<'a> {
    Value(Reference<'a>),
    Text(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Equal,
    Unequal,
    Less,
    AtMost,
    Greater,
    AtLeast,
    Contains,
    Lacks,
    IsEmpty,
    IsNotEmpty,
}

#[derive(Debug, PartialEq, Eq)]
struct Comparison<'a> {
    left: Side<'a>,
    operator: Operator,
    right: Side<'a>,
}

/// A condition: one of these groups holds as a whole.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Condition<'a>(Vec<Vec<Comparison<'a>>>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token<'a> {
    Value(&'a str),
    Quoted(String),
    Word(&'a str),
}

impl<'a> Condition<'a> {
    /// Reads a condition.
    ///
    /// # Errors
    /// What is wrong, as a sentence without its end.
    pub(super) fn read(text: &'a str) -> Result<Self, String> {
        if text.len() > BYTES_MAX {
            return Err(format!("a condition has at most {BYTES_MAX} bytes"));
        }
        let mut rest = tokens(text)?.into_iter().peekable();
        let (mut groups, mut group) = (Vec::new(), Vec::new());
        loop {
            group.push(comparison(&mut rest)?);
            match rest.next() {
                None => break,
                Some(Token::Word("and")) => {}
                Some(Token::Word("or")) => groups.push(std::mem::take(&mut group)),
                Some(other) => return Err(format!("{} stands where `and` or `or` is expected", shown(&other))),
            }
        }
        groups.push(group);
        Ok(Self(groups))
    }

    /// The placeholders in it.
    pub(super) fn references(&self) -> impl Iterator<Item = Reference<'a>> + '_ {
        self.0.iter().flatten().flat_map(|c| [&c.left, &c.right]).filter_map(|operand| match operand {
            Side::Value(reference) => Some(*reference),
            Side::Text(_) => None,
        })
    }

    /// Whether it holds.
    ///
    /// # Errors
    /// The value that is missing.
    pub(super) fn holds(&self, values: &Values<'_>) -> Result<bool, String> {
        for group in &self.0 {
            let mut all = true;
            for comparison in group {
                all = all && comparison.holds(values)?;
            }
            if all {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Comparison<'_> {
    fn holds(&self, values: &Values<'_>) -> Result<bool, String> {
        let side = |operand: &Side<'_>| -> Result<(String, bool), String> {
            let Side::Value(reference) = operand else { return Ok((operand.text().to_owned(), true)) };
            let value = values.get(*reference)?.map(|value| plain(&value)).unwrap_or_default();
            let is_whole = !is_clipped(&value);
            Ok((value, is_whole))
        };
        let ((left, is_left_whole), (right, is_right_whole)) = (side(&self.left)?, side(&self.right)?);
        let (left, right) = (left.trim(), right.trim());
        let order = order_of(left, right);
        let contains = || left.to_lowercase().contains(&right.to_lowercase());
        let holds = match self.operator {
            Operator::Equal => order.is_eq(),
            Operator::Unequal => !order.is_eq(),
            Operator::Less => order.is_lt(),
            Operator::AtMost => order.is_le(),
            Operator::Greater => order.is_gt(),
            Operator::AtLeast => order.is_ge(),
            Operator::Contains => contains(),
            Operator::Lacks => !contains(),
            Operator::IsEmpty => left.is_empty(),
            Operator::IsNotEmpty => !left.is_empty(),
        };
        // The first part of a text says what the text contains, and nothing else.
        let is_certain = match self.operator {
            Operator::Contains => holds,
            Operator::Lacks => !holds,
            Operator::IsEmpty | Operator::IsNotEmpty => true,
            Operator::Equal
            | Operator::Unequal
            | Operator::Less
            | Operator::AtMost
            | Operator::Greater
            | Operator::AtLeast => false,
        };
        if is_right_whole && (is_left_whole || is_certain) { Ok(holds) } else { Err(values.not_whole("a value in it")) }
    }
}

impl Side<'_> {
    fn text(&self) -> &str {
        match self {
            Self::Text(text) => text,
            Self::Value(_) => "",
        }
    }
}

/// Numbers are compared as numbers, everything else as text. Integers are exact, because ids may be larger than a float can tell
/// apart.
fn order_of(left: &str, right: &str) -> std::cmp::Ordering {
    if let (Ok(left), Ok(right)) = (left.parse::<i128>(), right.parse::<i128>()) {
        return left.cmp(&right);
    }
    // `nan` and `inf` are words.
    let number = |text: &str| text.parse::<f64>().ok().filter(|number| number.is_finite());
    let order = number(left).zip(number(right)).and_then(|(left, right)| left.partial_cmp(&right));
    order.unwrap_or_else(|| left.cmp(right))
}

fn comparison<'a>(rest: &mut std::iter::Peekable<std::vec::IntoIter<Token<'a>>>) -> Result<Comparison<'a>, String> {
    let left = operand(rest.next())?;
    let operator = match rest.next() {
        Some(Token::Word("==" | "is")) => match rest.peek() {
            Some(Token::Word("empty")) => Operator::IsEmpty,
            Some(Token::Word("not")) => {
                rest.next();
                match rest.peek() {
                    Some(Token::Word("empty")) => Operator::IsNotEmpty,
                    _ => Operator::Unequal,
                }
            }
            _ => Operator::Equal,
        },
        Some(Token::Word("!=")) => Operator::Unequal,
        Some(Token::Word("<")) => Operator::Less,
        Some(Token::Word("<=")) => Operator::AtMost,
        Some(Token::Word(">")) => Operator::Greater,
        Some(Token::Word(">=")) => Operator::AtLeast,
        Some(Token::Word("contains")) => Operator::Contains,
        Some(Token::Word("lacks")) => Operator::Lacks,
        Some(other) => {
            let known = "==, !=, <, <=, >, >=, contains, lacks, is, is not, is empty, is not empty";
            return Err(format!("{} is no comparison: known are {known}", shown(&other)));
        }
        None => return Err("a comparison is missing behind a value".to_owned()),
    };
    let right = if matches!(operator, Operator::IsEmpty | Operator::IsNotEmpty) {
        rest.next();
        Side::Text(String::new())
    } else {
        operand(rest.next())?
    };
    Ok(Comparison { left, operator, right })
}

fn operand(token: Option<Token<'_>>) -> Result<Side<'_>, String> {
    match token {
        Some(Token::Value(inside)) => reference(inside).map(Side::Value),
        Some(Token::Quoted(text)) => Ok(Side::Text(text)),
        Some(Token::Word(word)) => Ok(Side::Text(word.to_owned())),
        None => Err("a value is missing at the end".to_owned()),
    }
}

fn shown(token: &Token<'_>) -> String {
    match token {
        Token::Value(inside) => format!("`{{{inside}}}`"),
        Token::Quoted(text) => format!("{text:?}"),
        Token::Word(word) => format!("`{word}`"),
    }
}

fn tokens(text: &str) -> Result<Vec<Token<'_>>, String> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        rest = match first {
            '{' => {
                let end = rest.find('}').ok_or("a brace is not closed")?;
                tokens.push(Token::Value(&rest[1..end]));
                &rest[end + 1..]
            }
            '"' | '\'' => {
                let end = rest[1..].find(first).ok_or("a quote is not closed")?;
                tokens.push(Token::Quoted(rest[1..=end].to_owned()));
                &rest[end + 2..]
            }
            _ => {
                let end = rest.find(|c: char| c.is_whitespace() || c == '{' || c == '"').unwrap_or(rest.len());
                tokens.push(Token::Word(&rest[..end]));
                &rest[end..]
            }
        }
        .trim_start();
    }
    Ok(tokens)
}
